"""The mean of each numeric column in the first row of stays, the second, and so on."""

from typing import Final

import numpy as np

from privet.data.records.features import Numeric
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    mean_of,
)
from privet.synthesis.evaluation.side import Floats, Side

ENOUGH: Final = 30  # values on which a mean rests


def mean_by_step(side: Side, place: int) -> tuple[Floats, Floats]:
    """Means in the column's unit, NaN where fewer than `ENOUGH` values; how many values."""
    values, steps = side.temporal(place), side.schema.max_steps
    there = np.flatnonzero(~side.missing[:, place])
    step = side.records.step_of_row[there]
    count = np.bincount(step, minlength=steps).astype(np.float64)
    total = np.bincount(step, weights=values[there], minlength=steps)
    return np.where(count >= ENOUGH, total / np.maximum(count, 1), np.nan), count


def compare(comparison: Comparison) -> Outcome:
    """Mean absolute difference in public ranges; each row weighs as many values as are real."""
    features: dict[str, float | None] = {}
    drawn: Figures = {}
    for place, feature in enumerate(comparison.test.schema.temporal):
        if not isinstance(feature, Numeric):
            continue
        real, count = mean_by_step(comparison.test, place)
        other, _ = mean_by_step(comparison.candidate, place)
        apart = np.abs(real - other) / (feature.high - feature.low)
        known = np.isfinite(apart)
        weights = count[known]
        features[feature.name] = (
            float(np.average(apart[known], weights=weights)) if len(weights) else None
        )
        drawn[feature.name] = {"real": real, "other": other, "values": count.sum()}
    figures: Figures = {"mean": mean_of(features.values()), "features": features}
    return Outcome(figures=figures, drawn=drawn)


MEASURE: Final = Measure(
    name="trajectories",
    says="Whether columns rise and fall over a stay as they should, on average.",
    compare=compare,
    headlines=(Headline(figure="mean", says="means by row, error in ranges", best=0.0),),
)
