"""Membership inference: whether the candidate tells who was among the training records.

Members are training records, the others held-out ones, as many of both, one stay of each patient.
The attacker holds the candidate records, and for all but the first attack other real records of the
same kind (`reference`, one half of the held-out ones). Scores, higher for members:

| attack     | score of x                                                                          |
|------------|-------------------------------------------------------------------------------------|
| nearest    | - d(x, nearest candidate), cell by cell                                             |
| calibrated | log d(x, nearest reference) - log d(x, nearest candidate), cell by cell             |
| summaries  | the same, on `AXES` principal axes of standardised summaries of stays               |
| density    | log p_candidate(x) - log p_reference(x): DOMIAS (van Breugel et al., 2023)          |

Densities are those of the fifth neighbour on the same axes, p = k / (n volume(r_k)); they rank like
log r_k(reference) - log r_k(candidate). DOMIAS itself fits a kernel or a flow.

Whatever comes out describes these attacks and bounds nothing: better ones may exist, and an average
hides the few people who are found. The strongest attack is chosen by the same records, so that its
area is a little above 0.5 even where there is nothing to find.
"""

from typing import Any, Final

import numpy as np
from sklearn.decomposition import PCA

from privet.audits.membership import LOW_RATES, roc
from privet.synthesis.evaluation.flattened import Vectors, flattened
from privet.synthesis.evaluation.intervals import area, found_at
from privet.synthesis.evaluation.measure import Comparison, Figures, Headline, Measure, Outcome
from privet.synthesis.evaluation.neighbours import nearest
from privet.synthesis.evaluation.side import Floats, Side, one_stay_each
from privet.synthesis.evaluation.summaries import summaries

QUERIES: Final = 1_000  # members, and as many others
BASE: Final = 20_000  # candidate records; reference records
NEIGHBOUR: Final = 5
AXES: Final = 10
POINTS: Final = 200  # of a drawn curve
_EDGE: Final = 5.0  # standard deviations at which numbers are cut off
_LEAST: Final = 1e-6  # distance that counts as none


def compare(comparison: Comparison) -> Outcome:
    """Area, true positives at low rates of false alarm, by attack; and the strongest."""
    queries, candidate, reference = _cast(comparison)
    n = len(queries) // 2
    scores = attacks(queries, candidate, reference)
    found = {name: _figures(score[:n], score[n:]) for name, score in scores.items()}
    strongest = max(found, key=lambda name: found[name]["auroc"])
    figures: Figures = {
        "auroc": found[strongest]["auroc"],
        "strongest": strongest,
        "members": n,
        "reference": len(reference),
        "attacks": found,
    }
    drawn = {name: _curve(score[:n], score[n:]) for name, score in scores.items()}
    return Outcome(figures=figures, drawn=drawn)


def _cast(comparison: Comparison) -> tuple[Side, Side, Side]:
    """Members followed by as many others; the candidate; the reference."""
    rng = comparison.rng("membership")
    train, test = (one_stay_each(side, rng) for side in (comparison.train, comparison.test))
    order = rng.permutation(len(test))
    half = len(test) // 2
    n = min(QUERIES, len(train), half)
    members, others = train.part(rng.permutation(len(train))[:n]), test.part(order[:n])
    reference = test.part(order[half:]).at_most(BASE, rng)
    return _joined(members, others), comparison.candidate.at_most(BASE, rng), reference


def _joined(a: Side, b: Side) -> Side:
    first, then = a.records, b.records
    together: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(then, name)])
        for name in ("patients", "stays", "static", "outcomes", "times", "values")
    }
    offsets = np.concatenate([first.offsets, first.offsets[-1] + then.offsets[1:]])
    return Side(type(first)(schema=a.schema, offsets=offsets, **together))


def attacks(queries: Side, candidate: Side, reference: Side) -> dict[str, Floats]:
    """Scores of the queries by attack."""
    x, made, known = (side.once(flattened) for side in (queries, candidate, reference))
    to_made, to_known = (nearest(x, base)[1][:, 0] for base in (made, known))
    u, made, known = _axes(queries, candidate, reference)
    near_made, near_known = (_log(nearest(u, base, NEIGHBOUR)[1]) for base in (made, known))
    return {
        "nearest": -to_made,
        "calibrated": _log(to_known) - _log(to_made),
        "summaries": near_known[:, 0] - near_made[:, 0],
        "density": near_known[:, -1] - near_made[:, -1],
    }


def _axes(queries: Side, candidate: Side, reference: Side) -> tuple[Vectors, Vectors, Vectors]:
    """Principal axes that the attacker can find: of candidate and reference records."""
    tables = [side.once(summaries)[1] for side in (queries, candidate, reference)]
    owned = np.concatenate(tables[1:])
    there = (~np.isnan(owned)).sum(axis=0) > 1
    centre, scale = np.nanmean(owned[:, there], axis=0), np.nanstd(owned[:, there], axis=0)
    scale = np.where(scale > 1e-12, scale, np.inf)
    ready = [
        np.nan_to_num(np.clip((table[:, there] - centre) / scale, -_EDGE, _EDGE))
        for table in tables
    ]
    axes = min(AXES, *np.concatenate(ready[1:]).shape)
    model = PCA(n_components=axes, svd_solver="covariance_eigh").fit(np.concatenate(ready[1:]))
    u, made, known = (model.transform(table).astype(np.float32) for table in ready)
    return u, made, known


def _log(distance: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(distance, _LEAST)))


def _figures(members: Floats, others: Floats) -> Figures:
    figures = area(members, others)
    rates = {f"tpr_at_{rate:g}": found_at(rate, members, others) for rate in LOW_RATES}
    return figures | rates


def _curve(members: Floats, others: Floats) -> Figures:
    found = roc(members, others)
    least = 1 / len(others)
    at = np.geomspace(least, 1.0, POINTS)
    return {"fpr": at, "tpr": [found.tpr_at(rate) for rate in at]}


MEASURE: Final = Measure(
    name="membership",
    says="Whether known attacks can tell who was among the training records. No proof.",
    compare=compare,
    headlines=(Headline(figure="auroc", says="members found, AUROC of the best attack", best=0.5),),
    private=True,
)
