"""Each column by itself: Kullback-Leibler divergence in both directions, and Wasserstein-1."""

from typing import Any, Final

import numpy as np

from privet.data.records.features import Categorical, Feature
from privet.synthesis.evaluation.distances import kl, shares_by_bin, wasserstein
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    mean_of,
)
from privet.synthesis.evaluation.side import Floats


def compare(comparison: Comparison) -> Outcome:
    """Figures of each column, and their means."""
    features: dict[str, Figures] = {}
    drawn: dict[str, Figures] = {}
    columns = zip(comparison.test.columns(), comparison.candidate.columns(), strict=True)
    for (kind, feature, real), (_, _, other) in columns:
        found = [values[~np.isnan(values)] for values in (real, other)]
        features[feature.name] = {"kind": kind} | compare_column(feature, *found)
        drawn[feature.name] = {"kind": kind} | _drawn(feature, *found)
    means = {
        f"mean_{key}": mean_of(column[key] for column in features.values())
        for key in ("wasserstein", "kl_real_other", "kl_other_real")
    }
    return Outcome(figures=means | {"features": features}, drawn=drawn)


def compare_column(feature: Feature, real: Floats, other: Floats) -> Figures:
    """Of values without gaps. Where only one side has any, W1 counts as the whole range."""
    if not (len(real) or len(other)):
        return {"wasserstein": None, "kl_real_other": None, "kl_other_real": None}
    p, q = shares_by_bin(feature, real), shares_by_bin(feature, other)
    both = len(real) and len(other)
    return {
        "wasserstein": wasserstein(feature, real, other) if both else 1.0,
        "kl_real_other": kl(p, q),
        "kl_other_real": kl(q, p),
    }


def _drawn(feature: Feature, real: Floats, other: Floats) -> dict[str, Any]:
    return {
        "real": shares_by_bin(feature, real),
        "other": shares_by_bin(feature, other),
        "ticks": _ticks(feature),
    }


def _ticks(feature: Feature) -> list[str]:
    """What to write below the bins: words, or numbers at the ends and in the middle."""
    if isinstance(feature, Categorical):
        return list(feature.values)
    return [f"{value:.3g}" for value in feature.value_at(np.array([0.0, 0.5, 1.0]))]


MEASURE: Final = Measure(
    name="marginals",
    says="Whether each column by itself has the values that it should, as often as it should.",
    compare=compare,
    headlines=(
        Headline(figure="mean_wasserstein", says="Wasserstein-1, in ranges, mean", best=0.0),
        Headline(figure="mean_kl_real_other", says="KL(real ‖ synthetic), mean", best=0.0),
        Headline(figure="mean_kl_other_real", says="KL(synthetic ‖ real), mean", best=0.0),
    ),
)
