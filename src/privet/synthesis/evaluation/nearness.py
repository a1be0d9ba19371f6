"""Whether the candidate's records lie nearer to training records than to others. Described only.

For each candidate record, the nearest among training and held-out real records together, cell by
cell. If the candidate knows no more of the ones than of the others, it is a training record with
the chance n_train / (n_train + n_test). `excess` is what goes beyond: 0 by chance, 1 if always.

| figure   | what it is                                                                          |
|----------|-------------------------------------------------------------------------------------|
| interval | exact (binomial), for other candidate records beside the same real ones              |
| by_luck  | 95 % of the shares when the words "training" and "held-out" are dealt anew          |

The second is wider where a few real records are near to many candidates (short stays are), and is
the one to compare the share with; `beyond_luck` is what goes beyond its upper end. A share within
it shows no copying, and proves nothing: one copied record in ten thousand does not move it. That is
what the proved epsilon is for.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.synthesis.evaluation.flattened import Vectors, flattened
from privet.synthesis.evaluation.intervals import share
from privet.synthesis.evaluation.measure import Comparison, Figures, Headline, Measure, Outcome
from privet.synthesis.evaluation.neighbours import nearest
from privet.synthesis.evaluation.side import Floats, Places, one_stay_each

QUERIES: Final = 2_000  # candidate records, drawn at random
BASE: Final = 20_000  # real records of either kind
DEALT: Final = 2_000  # times


def compare(comparison: Comparison) -> Outcome:
    """Shares and distances, one stay of each patient."""
    rng = comparison.rng("nearness")
    candidate = one_stay_each(comparison.candidate, rng).at_most(QUERIES, rng)
    queries = candidate.once(flattened)
    train, test = (
        one_stay_each(side, rng).at_most(BASE, rng).once(flattened)
        for side in (comparison.train, comparison.test)
    )
    to_train, to_test = nearest(queries, train), nearest(queries, test)
    figures = _shares(to_train, to_test, (len(train), len(test)), rng)
    fair = [
        _among_as_many(queries, base, min(len(train), len(test)), found)
        for base, found in ((train, to_train), (test, to_test))
    ]
    figures |= {"median_to_train": np.median(fair[0]), "median_to_test": np.median(fair[1])}
    drawn = {"to_train": np.sort(fair[0]), "to_test": np.sort(fair[1])}
    return Outcome(figures=figures, drawn=drawn)


Found = tuple[Places, Floats]


def _among_as_many(queries: Vectors, base: Vectors, n: int, found: Found) -> Floats:
    """Distances to the nearest of n records: comparable where there are n of both kinds."""
    return (found if len(base) == n else nearest(queries, base[:n]))[1][:, 0]


def _shares(
    to_train: Found, to_test: Found, sizes: tuple[int, int], rng: np.random.Generator
) -> Figures:
    ours, theirs = to_train[1][:, 0], to_test[1][:, 0]
    decided = ours != theirs
    chance = sizes[0] / sum(sizes)
    found = share(int((ours < theirs).sum()), int(decided.sum()))
    place = np.where(ours < theirs, to_train[0][:, 0], sizes[0] + to_test[0][:, 0])[decided]
    low, high = _by_luck(place, sizes, rng)
    return found | {
        "chance": chance,
        "by_luck": [low, high],
        "ties": int((~decided).sum()),
        "excess": _beyond(found["share"], chance),
        "beyond_luck": max(0.0, _beyond(found["share"], high)),
        "train": sizes[0],
        "test": sizes[1],
    }


def _beyond(found: float | None, usual: float) -> float:
    """How much of the way from what is usual to always."""
    return 0.0 if found is None or usual >= 1 else (found - usual) / (1 - usual)


def _by_luck(
    place: Places, sizes: tuple[int, int], rng: np.random.Generator
) -> tuple[float, float]:
    """The middle 95 % of shares, the real records being dealt to both kinds at random."""
    if len(place) == 0:
        return 0.0, 1.0
    hits = np.bincount(place, minlength=sum(sizes))
    is_train: NDArray[np.bool_] = np.arange(sum(sizes)) < sizes[0]
    shares = [hits[rng.permutation(is_train)].sum() / len(place) for _ in range(DEALT)]
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


MEASURE: Final = Measure(
    name="nearness",
    says="Whether records lie nearer to training records than chance has it. No proof.",
    compare=compare,
    headlines=(Headline(figure="beyond_luck", says="nearer to training, beyond luck", best=0.0),),
    private=True,
)
