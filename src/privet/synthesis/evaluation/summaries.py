"""A stay as one row of numbers: what ordinary classifiers learn from.

Of each temporal column: mean, least, greatest, first and last value, slope against time, number of
values, whether there is one. Of a categorical column: the share of each word, the last word, number
and whether. Then static columns, number of rows, duration and mean gap. Numbers that a stay does
not have are NaN. Outcomes are not among them.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from privet.data.records.features import Categorical
from privet.synthesis.evaluation.side import Floats, Places, Side, numbers_of, on_unit_scale

Named = list[tuple[str, Floats]]


def summaries(side: Side) -> tuple[list[str], Floats]:
    """Names, and (stays, numbers)."""
    columns: Named = []
    for place, feature in enumerate(side.schema.temporal):
        columns += _of_column(side, place, feature.name)
    for kind, feature, values in side.columns():
        if kind == "static":
            columns += list(numbers_of(feature, values))
    columns += _of_times(side)
    return [name for name, _ in columns], np.stack([column for _, column in columns], axis=1)


def stay_means(side: Side) -> tuple[list[str], Floats]:
    """Static columns, means of temporal columns, outcomes: names, and (stays, numbers)."""
    columns: Named = []
    for kind, feature, values in side.columns():
        for name, numbers in numbers_of(feature, values):
            by_stay = _means(side, numbers) if kind == "temporal" else numbers
            columns.append((name, by_stay))
    return [name for name, _ in columns], np.stack([column for _, column in columns], axis=1)


def _means(side: Side, numbers: Floats) -> Floats:
    there = np.flatnonzero(~np.isnan(numbers))
    stay, n = side.stay_of_row[there], len(side)
    count = np.bincount(stay, minlength=n)
    return _ratio(np.bincount(stay, weights=numbers[there], minlength=n), count)


def _of_column(side: Side, place: int, name: str) -> Named:
    feature, n = side.schema.temporal[place], len(side)
    there = np.flatnonzero(~side.missing[:, place])
    stay, values = side.stay_of_row[there], side.temporal(place)[there]
    count = np.bincount(stay, minlength=n).astype(np.float64)
    ends = _Ends(stay, count)
    found: Named = [("count", count), ("ever", (count > 0).astype(np.float64))]
    if isinstance(feature, Categorical):
        found.append(("last", ends.last(values)))
        for word, is_it in numbers_of(feature, values):
            found.append((f"share {word}", _ratio(np.bincount(stay, is_it, n), count)))
    else:
        numbers = on_unit_scale(feature, values)
        total = partial(np.bincount, stay, minlength=n)
        found += [
            ("mean", _ratio(total(weights=numbers), count)),
            ("least", ends.reduced(np.minimum, numbers)),
            ("greatest", ends.reduced(np.maximum, numbers)),
            ("first", ends.first(numbers)),
            ("last", ends.last(numbers)),
            ("slope", _slope(side.records.times[there], numbers, stay, n)),
        ]
    return [(f"{name} {what}", column) for what, column in found]


class _Ends:
    """Firsts, lasts, least and greatest of values that stand stay by stay."""

    def __init__(self, stay: Places, count: Floats) -> None:
        self.some: NDArray[np.bool_] = count > 0
        ends = np.cumsum(count[self.some]).astype(np.int64)
        self.starts, self.ends = ends - count[self.some].astype(np.int64), ends

    def first(self, values: Floats) -> Floats:
        return self._spread(values[self.starts])

    def last(self, values: Floats) -> Floats:
        return self._spread(values[self.ends - 1])

    def reduced(self, by: np.ufunc, values: Floats) -> Floats:
        return self._spread(by.reduceat(values, self.starts) if len(values) else values)

    def _spread(self, found: Floats) -> Floats:
        whole = np.full(len(self.some), np.nan)
        whole[self.some] = found
        return whole


def _slope(times: Floats, values: Floats, stay: Places, n: int) -> Floats:
    """By least squares, in ranges for each unit of time; NaN for values at a single time."""
    total = partial(np.bincount, stay, minlength=n)
    count = total().astype(np.float64)
    centred = times - _ratio(total(weights=times), count)[stay]
    return _ratio(total(weights=centred * values), total(weights=centred**2))


def _of_times(side: Side) -> Named:
    lengths = side.records.lengths.astype(np.float64)
    duration = np.bincount(side.stay_of_row, side.gaps, len(side)).astype(np.float64)
    return [("rows", lengths), ("duration", duration), ("mean gap", _ratio(duration, lengths))]


def _ratio(a: NDArray[np.generic], b: NDArray[np.generic]) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.asarray(np.true_divide(a, b))
    return np.where(np.isfinite(ratio), ratio, np.nan)
