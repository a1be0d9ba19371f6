"""Read patient records from CSV or Parquet, in wide or long form; say what was done to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from privet.data.records.chunks import check_kind, header_of
from privet.data.records.features import Numeric
from privet.data.records.layouts import (
    LAYOUTS,
    LONG,
    CellReader,
    Layout,
    Rows,
    Table,
    read_columns,
    read_wide,
)
from privet.data.records.long_form import read_long
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.stays import assemble, put_in_order
from privet.errors import InputError

Paths = str | Path | Sequence[str | Path]


@final
@dataclass(frozen=True, kw_only=True)
class ReadingNotes:
    """What was read and what was done to it. Counts of private records: never in a release.

    Attributes:
        rows: of the file; in the long form, after the values of one time came together.
        patients, stays: how many.
        duplicates: rows (long form: lines) dropped because they repeat another one exactly.
        unsorted: rows that stood right after a later one of their stay; they were moved.
        outside: values outside the declared bounds, by column; they are kept as they are.
        done: whatever else was done, in words, and how often.
    """

    rows: int
    patients: int
    stays: int
    duplicates: int = 0
    unsorted: int = 0
    outside: Mapping[str, int] = field(default_factory=dict)
    done: Mapping[str, int] = field(default_factory=dict)


def read_records(path: Paths, schema: Schema, **how: Any) -> PatientRecords:
    """The records of `read_with_notes`, which see."""
    return read_with_notes(path, schema, **how)[0]


def read_with_notes(
    path: Paths,
    schema: Schema,
    *,
    layout: str = "auto",
    static_path: str | Path | None = None,
    keep_duplicates: bool = False,
    **names: Any,
) -> tuple[PatientRecords, ReadingNotes]:
    """Read records of CSV (.csv, .csv.gz) or Parquet files of one form, and say what was done.

    Args:
        path: of the file; or of several, read as one.
        schema: the declared facts. Columns that it does not name are not read.
        layout: "wide" (a column for each feature), "long" (patient, [stay], time, variable,
            value), or "auto", which sees it from the header.
        static_path: of a second file with static columns, outcomes or starts, a line for each
            stay or, without a stay column, for each patient. Its stays that have no rows are
            kept, without rows. Columns that are not in it are read from the first file, where a
            blank among a stay's values does not count.
        keep_duplicates: keep rows that repeat another one exactly.
        names: `variable` and `value`, columns of the long form; `missing`, words that mean
            "missing", by column, besides blank, NA, NaN, null and the like.

    What is done with what is not as it should be: rows are sorted by time (stable, counted);
    rows of a stay that are equal in time and in all values are dropped but for the first
    (counted); other rows of one time are kept as they stand, in the order of the file; values
    outside the bounds are kept (counted); dates with offsets are converted to UTC; a row with
    neither a time nor values says that there is a stay; a column without any value is a column
    without any value; one patient is enough to be read.

    Bad input, with file, line and column, never with the cell: ragged lines, missing columns,
    text among numbers, infinite numbers, words outside the vocabulary, values without a time,
    times that are negative, infinite or NaN, dates with and without a zone, dates before their
    stay's start, a fact that changes within a stay, a stay that the second file does not have,
    a file without rows.

    Cost: time and memory grow with the cells of the columns that are read, plus a sort of the
    rows; about 10 s and 1 GB for a million rows of 40 columns in the wide form, 7 s for a million
    lines of the long one.
    """
    paths = [path] if isinstance(path, str | Path) else list(path)
    files = [check_kind(Path(file)) for file in paths]
    how = Layout(schema=schema, **names)
    other = None if static_path is None else _read_facts(check_kind(Path(static_path)), how)
    rows = _read_rows(files, how, layout, other, unique=not keep_duplicates)
    # The second file may tell of stays without rows, if it has the ids of all.
    complete = other is not None and set(how.keys()) <= set(other.columns)
    order = put_in_order(how, rows.table, other if complete else None, unique=not keep_duplicates)
    facts = [rows.facts] if other is None else [rows.facts, other]
    records = assemble(how, rows.table, facts, order)
    return records, ReadingNotes(
        rows=len(rows.table),
        patients=len(np.unique(records.patients)),
        stays=len(records),
        duplicates=rows.duplicates + order.duplicates,
        unsorted=order.unsorted,
        outside=outside_bounds(records),
        done={"lines of undeclared variables left out": rows.undeclared} if rows.undeclared else {},
    )


def outside_bounds(records: PatientRecords) -> dict[str, int]:
    """How many values of each numeric column lie outside its declared bounds."""
    schema = records.schema
    counts: dict[str, int] = {}
    parts = (
        (schema.temporal, records.values),
        (schema.static, records.static),
        (schema.outcomes, records.outcomes),
    )
    for features, values in parts:
        low = np.array([f.low if isinstance(f, Numeric) else -np.inf for f in features])
        high = np.array([f.high if isinstance(f, Numeric) else np.inf for f in features])
        outside = ((values < low) | (values > high)).sum(axis=0).tolist()
        numbered = zip(features, outside, strict=True)
        counts |= {f.name: n for f, n in numbered if isinstance(f, Numeric)}
    return counts


def _read_rows(
    files: Sequence[Path], how: Layout, layout: str, other: Table | None, *, unique: bool
) -> Rows:
    if layout not in LAYOUTS:
        raise InputError(
            "unknown layout", got=f"'{layout}'", expected=f"one of {', '.join(LAYOUTS)}"
        )
    header = header_of(files[0])
    elsewhere = {} if other is None else other.columns
    facts: dict[str, CellReader] = {
        name: reader for name, reader in how.facts().items() if name not in elsewhere
    }
    kind = how.kind_of(header) if layout == "auto" else layout
    if kind == LONG:
        return read_long(files, how, facts, unique=unique)
    return read_wide(files, how, facts)


def _read_facts(path: Path, how: Layout) -> Table:
    header = header_of(path)
    if not set(how.keys()) & set(header):
        raise InputError(
            f"{path} does not say whose its lines are",
            expected=f"a column '{how.schema.stay or how.schema.patient}'",
        )
    readers = {**how.keys(), **how.facts()}
    return read_columns([path], {name: r for name, r in readers.items() if name in header})
