"""How often each column has no value: of its cells, and of whole stays."""

from typing import Final

import numpy as np

from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    largest_of,
    mean_of,
)
from privet.synthesis.evaluation.side import Side, sums_by_group


def rates(side: Side) -> dict[str, tuple[float, float]]:
    """By column: the share of empty cells, and of stays without any value of it.

    A static or outcome column has one cell in each stay, so both are the same. Of records without
    rows all cells count as empty.
    """
    found: dict[str, tuple[float, float]] = {}
    never = values_by_stay(side) == 0
    for place, feature in enumerate(side.schema.temporal):
        cells = side.missing[:, place]
        found[feature.name] = (float(cells.mean()) if len(cells) else 1.0, never[:, place].mean())
    for kind, feature, values in side.columns():
        if kind != "temporal":
            found[feature.name] = (float(np.isnan(values).mean()),) * 2
    return found


def values_by_stay(side: Side) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """(stays, temporal columns): how many values each stay has."""
    return sums_by_group(side.stay_of_row, len(side), ~side.missing)


def compare(comparison: Comparison) -> Outcome:
    """Rates on both sides, and their absolute difference in percentage points."""
    real, other = rates(comparison.test), rates(comparison.candidate)
    features: dict[str, Figures] = {
        name: {
            "cells_real": real[name][0],
            "cells_other": other[name][0],
            "cells_error": _points(real[name][0], other[name][0]),
            "never_real": real[name][1],
            "never_other": other[name][1],
            "never_error": _points(real[name][1], other[name][1]),
        }
        for name in (feature.name for feature in comparison.test.schema.features)
    }
    summary = {
        f"{how}_{what}": total(column[what] for column in features.values())
        for what in ("cells_error", "never_error")
        for how, total in (("mean", mean_of), ("largest", largest_of))
    }
    return Outcome(figures=summary | {"features": features})


def _points(a: float, b: float) -> float:
    return float(100 * abs(a - b))


MEASURE: Final = Measure(
    name="missing-rates",
    says="Whether each column is empty as often as it should be.",
    compare=compare,
    headlines=(
        Headline(
            figure="mean_cells_error", says="empty cells, mean error", best=0.0, unit="points"
        ),
        Headline(
            figure="largest_cells_error", says="empty cells, worst column", best=0.0, unit="points"
        ),
        Headline(
            figure="mean_never_error", says="never measured, mean error", best=0.0, unit="points"
        ),
    ),
)
