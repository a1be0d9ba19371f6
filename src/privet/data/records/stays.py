"""Rows of files put into stays: grouped, sorted, without duplicates, with the stays' own facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.cells import NO_TIME, Floats, Integers
from privet.data.records.features import Feature
from privet.data.records.layouts import VALUE, Layout, Table, first_of_kind
from privet.data.records.records import PatientRecords
from privet.data.records.schema import SECONDS
from privet.errors import InputError

_SHIFT: Final = np.int64(2**31)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """How rows become stays.

    Attributes:
        patient, stay: numbers of each stay's ids, in the order in which stays first occur.
        rows: places of the rows, stay by stay and by time.
        offsets: where each stay begins among them.
        unsorted: how many rows stood right after a later one of their stay.
        duplicates: how many rows were left out because they repeat another one.
    """

    patient: Integers
    stay: Integers
    rows: Integers
    offsets: Integers
    unsorted: int
    duplicates: int


def put_in_order(layout: Layout, table: Table, others: Table | None, *, unique: bool) -> Order:
    """Number the stays, sort their rows by time (stable), drop rows that repeat another one."""
    keys = [_keys(layout, t) for t in (table, others) if t is not None]
    _, first, number = np.unique(np.concatenate(keys), return_index=True, return_inverse=True)
    by_occurrence = np.argsort(first)
    rank = np.empty_like(by_occurrence)
    rank[by_occurrence] = np.arange(len(first))
    of_row = rank[number[: len(table)]]
    ids = np.concatenate(keys)[first[by_occurrence]]

    time = table.columns[layout.schema.time]
    timed = _timed(layout, table)
    rows = np.flatnonzero(timed)
    rows = rows[np.argsort(of_row[rows], kind="stable")]
    unsorted = int(((np.diff(time[rows]) < 0) & (np.diff(of_row[rows]) == 0)).sum())
    rows = rows[np.lexsort((time[rows], of_row[rows]))]
    alike = (np.diff(of_row[rows]) == 0) & (np.diff(time[rows]) == 0)
    kept = rows[first_of_kind(alike, table.columns[VALUE][rows])] if unique else rows
    lengths = np.bincount(of_row[kept], minlength=len(first))
    return Order(
        patient=ids // _SHIFT,
        stay=ids % _SHIFT,
        rows=kept,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        unsorted=unsorted,
        duplicates=len(rows) - len(kept),
    )


def assemble(layout: Layout, table: Table, facts: Sequence[Table], order: Order) -> PatientRecords:
    """The records; facts about a stay come from the last of the tables that has them.

    All of these tables but the first must have all stays.
    """
    schema = layout.schema
    found: dict[str, NDArray[Any]] = {}
    for number, source in enumerate(facts):
        found |= _facts(layout, source, order, strict=number > 0)
    patients, stays = layout.patients.names()[order.patient], layout.stays.names()
    times, starts = _times(layout, table, order, found.get(schema.start or ""))

    def matrix(features: Sequence[Feature]) -> Floats:
        columns = [found[feature.name] for feature in features]
        return np.stack(columns, axis=1) if columns else np.empty((len(patients), 0))

    return PatientRecords(
        schema=schema,
        patients=patients,
        stays=patients if schema.stay is None else stays[order.stay],
        starts=starts,
        static=matrix(schema.static),
        outcomes=matrix(schema.outcomes),
        offsets=order.offsets,
        times=times,
        values=table.columns[VALUE][order.rows],
    )


def places_of(wanted: Integers, keys: Integers) -> Integers:
    """Where each wanted key stands among `keys`, -1 for nowhere."""
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found: Integers = np.where(keys[order][place] == wanted, order[place], -1)
    return found


def _keys(layout: Layout, table: Table) -> Integers:
    """One number for patient and stay together."""
    schema = layout.schema
    patient = table.columns[schema.patient]
    keys: Integers = patient * _SHIFT + (0 if schema.stay is None else table.columns[schema.stay])
    return keys


def _timed(layout: Layout, table: Table) -> NDArray[np.bool_]:
    """Which rows have a time. One without may say that there is a stay, but have no values."""
    time = table.columns[layout.schema.time]
    timed: NDArray[np.bool_] = time != NO_TIME if layout.schema.timestamps else ~np.isnan(time)
    wrong = np.flatnonzero(~timed & ~np.isnan(table.columns[VALUE]).all(axis=1))
    if len(wrong):
        raise InputError(
            f"{table.place(int(wrong[0]))}, column '{layout.schema.time}': values without a time",
            expected="a time in every row that has values",
        )
    return timed


def _times(
    layout: Layout, table: Table, order: Order, starts: Integers | None
) -> tuple[Floats, NDArray[np.datetime64] | None]:
    """Times since the stay's start, and the starts where times are dates."""
    schema, lengths = layout.schema, np.diff(order.offsets)
    times = table.columns[schema.time][order.rows]
    if not schema.timestamps:
        return times, None
    if starts is None:
        starts = np.full(len(lengths), NO_TIME)
        some = lengths > 0
        starts[some] = times[order.offsets[:-1][some]]
    own = np.repeat(starts, lengths)
    wrong = np.flatnonzero((own == NO_TIME) | (times < own))
    if len(wrong):
        what = "no start of its stay" if own[wrong[0]] == NO_TIME else "before its stay's start"
        raise InputError(
            f"{table.place(int(order.rows[wrong[0]]))}: {what}",
            expected=f"a date in '{schema.start}' that is not after the stay's rows",
        )
    unit = SECONDS[schema.time_unit] * 1e6
    return (times - own) / unit, starts.astype("datetime64[us]")


def _facts(layout: Layout, table: Table, order: Order, *, strict: bool) -> dict[str, NDArray[Any]]:
    """What a table says about each stay, by stay or, where it has no such column, by patient."""
    schema = layout.schema
    names = [name for name in layout.facts() if name in table.columns]
    by_patient, by_stay = schema.patient in table.columns, (schema.stay or "") in table.columns
    if by_patient and (by_stay or schema.stay is None):
        group, wanted = _match(_keys(layout, table), order.patient * _SHIFT + order.stay)
    elif by_stay:
        group, wanted = _match(table.columns[schema.stay or ""], order.stay)
    else:
        group, wanted = _match(table.columns[schema.patient], order.patient)
    if strict and (wanted < 0).any():
        raise InputError(
            f"{table.paths[0]} has no line for some stays",
            got=f"{int((wanted < 0).sum())} without",
            expected="one for each stay of the records",
        )
    return {name: _constant(table, name, group)[wanted] for name in names}


def _match(keys: Integers, wanted: Integers) -> tuple[Integers, Integers]:
    """Groups of equal keys, numbered from 0; and the group of each wanted key, -1 for none."""
    known, group = np.unique(keys, return_inverse=True)
    return group, places_of(wanted, known)


def _constant(table: Table, name: str, group: Integers) -> NDArray[Any]:
    """The one value of each group, and a blank; a second value in a group is bad input."""
    column = table.columns[name]
    blank = np.nan if column.dtype.kind == "f" else NO_TIME
    known = np.flatnonzero(~np.isnan(column) if column.dtype.kind == "f" else column != NO_TIME)
    values = np.full(int(group.max()) + 2, blank, dtype=column.dtype)  # the last for no group
    values[group[known[::-1]]] = column[known[::-1]]  # the first one stands
    changed = known[column[known] != values[group[known]]]
    if len(changed):
        raise InputError(
            f"{table.place(int(changed[0]))}, column '{name}': changes within a stay",
            expected="one value for the whole stay",
            fix="declare it as temporal, or correct the cell",
        )
    return values
