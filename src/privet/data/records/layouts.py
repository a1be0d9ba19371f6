"""The two forms of a table of records, each read into the same rows.

wide   one row for each time, a column for each feature
long   one row for each value: patient, [stay], time, variable, value
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.cells import (
    Dates,
    Floats,
    Ids,
    Integers,
    Times,
    read_column,
    value_reader,
)
from privet.data.records.chunks import is_parquet, read_chunks
from privet.data.records.features import Feature
from privet.data.records.schema import Schema
from privet.errors import InputError

WIDE: Final = "wide"
LONG: Final = "long"
LAYOUTS: Final = ("auto", WIDE, LONG)
VARIABLE: Final = "variable"
VALUE: Final = "value"

CellReader = Callable[[Sequence[Any]], NDArray[Any]]
Missing = Mapping[str, Sequence[str]]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of one or several files of the same form, read; and where each row stands.

    Attributes:
        paths: of the files.
        ends: the number of rows up to the end of each file.
        lines: of each row.
        columns: by name.
    """

    paths: tuple[Path, ...]
    ends: Integers
    lines: Integers
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row stands, for a person."""
        path = self.paths[int(np.searchsorted(self.ends, row, side="right"))]
        return f"{path}: {'row' if is_parquet(path) else 'line'} {self.lines[row]}"


def read_columns(
    paths: Sequence[Path],
    readers: Mapping[str, CellReader],
    values: Mapping[str, CellReader] | None = None,
) -> Table:
    """Read the named columns of files; those of `values` become one, `VALUE`, with two dimensions.

    Time and memory grow with the number of cells in those columns.
    """
    names = [*readers, *(() if values is None else (VALUE,))]
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    lines: list[Integers] = []
    ends: list[int] = []
    for path in paths:
        before = len(lines)
        for chunk in read_chunks(path, [*readers, *(values or ())]):
            for name, reader in readers.items():
                pieces[name].append(read_column(chunk, name, reader))
            if values is not None:
                columns = [read_column(chunk, name, r) for name, r in values.items()]
                pieces[VALUE].append(np.stack(columns, axis=1))
            lines.append(np.asarray(chunk.lines, dtype=np.int64))
        if len(lines) == before:
            raise InputError(f"{path} has a header but no rows", expected="at least one row")
        ends.append(sum(map(len, lines)))
    return Table(
        paths=tuple(paths),
        ends=np.array(ends),
        lines=np.concatenate(lines),
        columns={name: np.concatenate(pieces.pop(name)) for name in names},
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """How the columns of a schema are read; several files share the numbers of their ids.

    Attributes:
        schema: of the records.
        missing: words that mean "missing", by column, besides the usual.
        variable, value: names of the two columns of the long form.
        patients, stays, dates: the readers that all files share.
    """

    schema: Schema
    missing: Missing = field(default_factory=dict)
    variable: str = VARIABLE
    value: str = VALUE
    patients: Ids = field(default_factory=Ids)
    stays: Ids = field(default_factory=Ids)
    dates: Dates = field(default_factory=Dates)

    def kind_of(self, header: Sequence[str]) -> str:
        """Which form a file has."""
        named = {self.variable, self.value} <= set(header)
        wide = {feature.name for feature in self.schema.temporal} <= set(header)
        return LONG if named and not wide else WIDE

    def keys(self) -> dict[str, CellReader]:
        """Readers of whose a row is."""
        keys: dict[str, CellReader] = {self.schema.patient: self.patients}
        return keys if self.schema.stay is None else {**keys, self.schema.stay: self.stays}

    def times(self) -> dict[str, CellReader]:
        """The reader of when a row was."""
        return {self.schema.time: self.dates if self.schema.timestamps else Times()}

    def facts(self) -> dict[str, CellReader]:
        """Readers of the columns about a whole stay."""
        features = (*self.schema.static, *self.schema.outcomes)
        facts = {feature.name: self.reader_of(feature) for feature in features}
        return facts if self.schema.start is None else {self.schema.start: self.dates, **facts}

    def reader_of(self, feature: Feature) -> CellReader:
        """The reader of a declared column."""
        return value_reader(feature, self.missing.get(feature.name, ()))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What a table of records holds, in either form.

    Attributes:
        table: a row for each time, with the temporal columns as `VALUE`.
        facts: the table that tells the facts about stays; in the wide form the same.
        duplicates: lines of the long form that were dropped because they repeat another.
        undeclared: lines of the long form about variables that the schema does not have.
    """

    table: Table
    facts: Table
    duplicates: int = 0
    undeclared: int = 0


def read_wide(paths: Sequence[Path], layout: Layout, facts: Mapping[str, CellReader]) -> Rows:
    """Rows of the wide form."""
    temporal = {f.name: layout.reader_of(f) for f in layout.schema.temporal}
    table = read_columns(paths, {**layout.keys(), **layout.times(), **facts}, temporal)
    return Rows(table=table, facts=table)


def first_of_kind(alike: NDArray[np.bool_], values: Floats) -> NDArray[np.bool_]:
    """Which rows do not repeat one before them; alike[i]: may row i + 1 repeat row i or before."""
    keep = np.ones(len(values), dtype=bool)
    seen: set[bytes] = set()
    for row in np.flatnonzero(alike):  # few: rows of one stay and one time
        if row == 0 or not alike[row - 1]:
            seen = {values[row].tobytes()}
        content = values[row + 1].tobytes()
        keep[row + 1] = content not in seen
        seen.add(content)
    return keep
