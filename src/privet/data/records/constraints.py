"""Clinical constraints: how often records break them, and synthetic records made to keep them."""

from dataclasses import replace

import numpy as np

from privet.data.records.cells import Floats, Integers
from privet.data.records.features import Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Constraint, Ends, Order, Schema


def violations(records: PatientRecords) -> dict[str, tuple[int, int]]:
    """How often each constraint is broken, and how often it could be.

    An order is checked in the rows that have both columns, an end in the stays that reach it.
    """
    return {describe(c): _count(records, c) for c in records.schema.constraints}


def enforce(records: PatientRecords) -> PatientRecords:
    """Records that keep their constraints.

    Pairs in the wrong order change places, within the bounds of their columns; where that does not
    help, the lower one is taken as not measured. Rows after an end are cut off.

    For synthetic records only: it is post-processing, which costs no privacy. Real records that
    break a constraint are data.
    """
    orders = [c for c in records.schema.constraints if isinstance(c, Order)]
    values = records.values.copy()
    for _ in orders:  # a chain a >= b >= c may need as many rounds as it has links
        for order in orders:
            _put_in_order(values, records.schema, *_places(records.schema, order))
    for order in orders:
        above, below = _places(records.schema, order)
        values[values[:, above] < values[:, below], below] = np.nan
    records = replace(records, values=values)
    for end in (c for c in records.schema.constraints if isinstance(c, Ends)):
        records = _cut(records, end)
    return records


def describe(constraint: Constraint) -> str:
    """A constraint in words."""
    if isinstance(constraint, Order):
        return f"{constraint.above} >= {constraint.below}"
    return f"nothing after {constraint.column} = {constraint.value}"


def _count(records: PatientRecords, constraint: Constraint) -> tuple[int, int]:
    if isinstance(constraint, Order):
        above, below = (records.values[:, p] for p in _places(records.schema, constraint))
        both = ~np.isnan(above) & ~np.isnan(below)
        return int((above < below).sum()), int(both.sum())
    last = _rows_until_end(records, constraint)
    return int((last < records.lengths).sum()), int(_ended(records, constraint).sum())


def _places(schema: Schema, order: Order) -> tuple[int, int]:
    names = [feature.name for feature in schema.temporal]
    return names.index(order.above), names.index(order.below)


def _put_in_order(values: Floats, schema: Schema, above: int, below: int) -> None:
    wrong = values[:, above] < values[:, below]
    changed = values[wrong][:, [below, above]]
    for place, column in zip((above, below), changed.T, strict=True):
        feature = schema.temporal[place]
        assert isinstance(feature, Numeric)  # the schema has checked it
        values[wrong, place] = np.clip(column, feature.low, feature.high)


def _is_end(records: PatientRecords, end: Ends) -> Integers:
    """The rows that end a stay."""
    names = [feature.name for feature in records.schema.temporal]
    place = names.index(end.column)
    feature = records.schema.temporal[place]
    # The schema has checked that the column is categorical and has the word.
    word = getattr(feature, "values").index(end.value)  # noqa: B009
    return np.flatnonzero(records.values[:, place] == word)


def _ended(records: PatientRecords, end: Ends) -> Integers:
    ended = np.zeros(len(records), dtype=np.int64)
    ended[records.stay_of_row[_is_end(records, end)]] = 1
    return ended


def _rows_until_end(records: PatientRecords, end: Ends) -> Integers:
    """How many rows each stay has up to its end, that one included; all where there is none."""
    rows = _is_end(records, end)[::-1]
    last = records.lengths.copy()
    last[records.stay_of_row[rows]] = records.step_of_row[rows] + 1  # the first one stands
    return last


def _cut(records: PatientRecords, end: Ends) -> PatientRecords:
    lengths = _rows_until_end(records, end)
    keep = records.step_of_row < lengths[records.stay_of_row]
    return replace(
        records,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=records.times[keep],
        values=records.values[keep],
    )
