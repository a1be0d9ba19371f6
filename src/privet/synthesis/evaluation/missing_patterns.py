"""How gaps hang together: with each other, with time, with the value before, within a record.

| part          | what is compared                                                                |
|---------------|---------------------------------------------------------------------------------|
| joint         | correlations of the indicators "empty" of every two temporal columns, over rows |
| by step       | share of empty cells of each column in the first row, the second, ...           |
| by time       | the same, by time since the start (`TIMES` parts with as many real rows each)   |
| after a value | correlation of "empty in this row" with the last value before it, by column     |
| per record    | empty cells of a stay, averaged over columns: the histogram of the IGAMT paper  |

A correlation with something constant counts as 0.
"""

from typing import Any, Final

import numpy as np

from privet.data.records.features import Numeric
from privet.synthesis.evaluation.correlations import correlations, off_diagonal, pearson
from privet.synthesis.evaluation.distances import earth_moved
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    largest_of,
    mean_of,
)
from privet.synthesis.evaluation.side import Floats, Places, Side, on_unit_scale, sums_by_group

TIMES: Final = 20
HISTOGRAM: Final = 30
ENOUGH_ROWS: Final = 30


def compare(comparison: Comparison) -> Outcome:
    """All parts of the table above."""
    real, other = comparison.test, comparison.candidate
    names = [feature.name for feature in real.schema.temporal]
    joint = [co_missing(side) for side in (real, other)]
    edges = time_edges(real)
    steps = [rates_by(s, s.records.step_of_row, s.schema.max_steps) for s in (real, other)]
    times = [rates_by(s, np.searchsorted(edges, s.records.times), TIMES) for s in (real, other)]
    after, record = _after(real, other), [empty_per_record(side) for side in (real, other)]
    figures: Figures = {
        "joint_mean": mean_of(off_diagonal(np.abs(joint[1] - joint[0]))),
        "joint_largest": largest_of(off_diagonal(np.abs(joint[1] - joint[0]))),
        "by_step_mean": _rate_error(*steps),
        "by_time_mean": _rate_error(*times),
        "after_value_mean": mean_of(column["error"] for column in after.values()),
        "after_value": after,
        "per_record": earth_moved(*record) if all(map(len, record)) else None,
    }
    drawn = {
        "names": names,
        "joint": joint,
        "edges": edges,
        "by_step": [_of_enough(*group) for group in steps],
        "by_time": [_of_enough(*group) for group in times],
        "per_record": _histograms(record, real.schema.max_steps),
    }
    return Outcome(figures=figures, drawn=drawn)


def co_missing(side: Side) -> Floats:
    """Correlations of emptiness of every two columns, over all rows; 0 where one is constant."""
    return correlations(lambda rows: side.missing[rows].astype(np.float64), len(side.missing))[0]


def time_edges(side: Side) -> Floats:
    """Times that part the rows into `TIMES` groups of about the same size."""
    if not len(side.records.times):
        return np.zeros(TIMES - 1)
    return np.asarray(np.quantile(side.records.times, np.linspace(0, 1, TIMES + 1)[1:-1]))


def rates_by(side: Side, group: Places, n: int) -> tuple[Floats, Floats]:
    """(groups, columns) shares of empty cells, NaN where there are no rows, and rows by group."""
    rows = np.bincount(group, minlength=n).astype(np.float64)
    empty = sums_by_group(group, n, side.missing)
    with np.errstate(invalid="ignore"):
        return empty / rows[:, None], rows


def _of_enough(rate: Floats, rows: Floats) -> Floats:
    """Rates that rest on few rows are noise: not drawn."""
    return np.where(rows[:, None] >= ENOUGH_ROWS, rate, np.nan)


def _rate_error(real: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> float | None:
    """Mean absolute difference in points; each group weighs as many rows as it has in `real`."""
    apart = 100 * np.abs(real[0] - other[0]).mean(axis=1)
    known = np.isfinite(apart)
    weights = real[1][known]
    return float(np.average(apart[known], weights=weights)) if weights.sum() else None


def after_value(side: Side, place: int) -> float | None:
    """How emptiness in a row goes with the column's last value before, in the same stay."""
    feature = side.schema.temporal[place]
    values, empty = side.temporal(place), side.missing[:, place]
    rows = np.arange(len(values))
    latest = np.maximum.accumulate(np.where(empty, -1, rows)) if len(rows) else rows
    before = np.concatenate([[-1], latest[:-1]])[: len(rows)]
    known = before >= side.records.offsets[:-1][side.stay_of_row]
    if known.sum() < ENOUGH_ROWS or not isinstance(feature, Numeric):
        return None
    return pearson(on_unit_scale(feature, values[before[known]]), empty[known].astype(np.float64))


def _after(real: Side, other: Side) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, feature in enumerate(real.schema.temporal):
        a, b = after_value(real, place), after_value(other, place)
        apart = None if a is None else abs(a - (b or 0.0))
        found[feature.name] = {"real": a, "other": b, "error": apart}
    return found


def empty_per_record(side: Side) -> Floats:
    """Of each stay: its empty cells, averaged over temporal columns."""
    empty = side.missing.mean(axis=1)
    return np.asarray(np.bincount(side.stay_of_row, empty, len(side)), dtype=np.float64)


def _histograms(samples: list[Floats], most: int) -> Figures:
    edges = np.linspace(0, most, min(HISTOGRAM, most) + 1)
    counts = [np.histogram(s, edges)[0] / max(len(s), 1) for s in samples]
    return {"edges": edges, "real": counts[0], "other": counts[1]}


MEASURE: Final = Measure(
    name="missing-patterns",
    says="Whether gaps come together, at times, after values and in numbers as they should.",
    compare=compare,
    headlines=(
        Headline(figure="joint_mean", says="correlations of gaps, mean error", best=0.0),
        Headline(figure="by_step_mean", says="gaps by row, mean error", best=0.0, unit="points"),
        Headline(figure="by_time_mean", says="gaps by time, mean error", best=0.0, unit="points"),
        Headline(figure="after_value_mean", says="gaps after a value, mean error", best=0.0),
        Headline(figure="per_record", says="empty cells of a stay, W1", best=0.0, unit="cells"),
    ),
)
