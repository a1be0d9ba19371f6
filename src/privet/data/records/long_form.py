"""The long form: one line for each value, put together into rows of one time.

Values of one stay and one time come together in one row. A second value of one variable at one
time goes to a second row, in the order of the file. A line without a variable and a value says
that there is a row, a line without a time that there is a stay.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.cells import BLANKS, NO_TIME, BadCell, Floats, Integers, Texts
from privet.data.records.features import Feature
from privet.data.records.layouts import (
    VALUE,
    CellReader,
    Layout,
    Rows,
    Table,
    first_of_kind,
    read_columns,
)
from privet.errors import InputError

_BLANK: Final = -1
_UNDECLARED: Final = -2


def read_long(
    paths: Sequence[Path], layout: Layout, facts: Mapping[str, CellReader], *, unique: bool
) -> Rows:
    """Rows of the long form; lines that repeat another one are dropped if `unique`."""
    variables, texts = Texts(), Texts()
    pair: dict[str, CellReader] = {layout.variable: variables, layout.value: texts}
    lines = read_columns(paths, {**layout.keys(), **layout.times(), **facts, **pair})
    place = _places(layout.schema.temporal, variables)[lines.columns.pop(layout.variable)]
    value = _values(layout, lines, place, lines.columns.pop(layout.value), texts.names())
    undeclared = place == _UNDECLARED
    # Such a line says no more than that there is a stay.
    time = lines.columns[layout.schema.time]
    time[undeclared] = NO_TIME if layout.schema.timestamps else np.nan
    keys = [*(lines.columns[name] for name in layout.keys()), time]  # noqa: SIM118

    order = np.lexsort((place, *reversed(keys)))
    order = order[~undeclared[order]]
    alike = _same(keys, order) & (np.diff(place[order]) == 0)
    kept = order[first_of_kind(alike, value[order][:, None])] if unique else order
    lines_used = np.concatenate([kept, np.flatnonzero(undeclared)])
    table = _put_together(lines, keys, lines_used, place, value, len(layout.schema.temporal))
    return Rows(
        table=table,
        facts=lines,
        duplicates=len(order) - len(kept),
        undeclared=int(undeclared.sum()),
    )


def _places(features: Sequence[Feature], variables: Texts) -> Integers:
    """The column that each text of the variable column names."""
    known = {feature.name: place for place, feature in enumerate(features)}
    names = (name.strip() for name in variables.names())
    return np.array(
        [known.get(name, _BLANK if name.casefold() in BLANKS else _UNDECLARED) for name in names],
        dtype=np.int64,
    )


def _values(
    layout: Layout, lines: Table, place: Integers, text: Integers, texts: Sequence[str]
) -> Floats:
    """Each line's value, read as its variable's column is; every different text only once."""
    values = np.full(len(lines), np.nan)
    for column, feature in enumerate(layout.schema.temporal):
        own = np.flatnonzero(place == column)
        used, back = np.unique(text[own], return_inverse=True)
        try:
            values[own] = layout.reader_of(feature)([texts[i] for i in used])[back]
        except BadCell as bad:
            raise InputError(
                f"{lines.place(int(own[back == bad.row][0]))}, column '{layout.value}', "
                f"variable '{feature.name}': {bad.what}",
                expected=bad.expected,
                fix=bad.fix,
            ) from None
    filled = np.array([t.strip().casefold() not in BLANKS for t in texts], dtype=bool)
    wrong = np.flatnonzero((place == _BLANK) & filled[text])
    if len(wrong):
        raise InputError(
            f"{lines.place(int(wrong[0]))}, column '{layout.variable}': a value of no variable",
            expected="the name of a variable",
        )
    return values


def _same(keys: Sequence[NDArray[Any]], order: Integers) -> NDArray[np.bool_]:
    """Which lines, in this order, have the ids and the time of the line before."""
    same = np.ones(max(len(order) - 1, 0), dtype=bool)
    for key in keys:
        same &= np.diff(key[order]) == 0
    return same


def _put_together(
    lines: Table,
    keys: Sequence[NDArray[Any]],
    used: Integers,
    place: Integers,
    value: Floats,
    columns: int,
) -> Table:
    """One row for each time and each repetition of a variable, in the order of first lines."""
    turn = _turns(keys, used, place)
    order = used[np.lexsort((turn[used], *(key[used] for key in reversed(keys))))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = ~(_same(keys, order) & (np.diff(turn[order]) == 0))
    group = np.cumsum(new) - 1
    first = np.minimum.reduceat(order, np.flatnonzero(new)) if len(order) else order
    rank = np.argsort(np.argsort(first))
    values = np.full((len(first), columns), np.nan)
    there = place[order] >= 0
    values[rank[group[there]], place[order][there]] = value[order][there]
    rows = np.sort(first)
    return Table(
        paths=lines.paths,
        ends=np.searchsorted(rows, lines.ends),
        lines=lines.lines[rows],
        columns={**{name: c[rows] for name, c in lines.columns.items()}, VALUE: values},
    )


def _turns(keys: Sequence[NDArray[Any]], used: Integers, place: Integers) -> Integers:
    """How many lines of the same time and variable come before each line."""
    order = used[np.lexsort((used, place[used], *(key[used] for key in reversed(keys))))]
    again = np.zeros(len(order), dtype=bool)
    again[1:] = _same(keys, order) & (np.diff(place[order]) == 0)
    position = np.arange(len(order))
    begin = np.maximum.accumulate(np.where(again, 0, position))
    turns = np.zeros(len(place), dtype=np.int64)
    turns[order] = position - begin
    return turns
