"""Write patient records in the columns, units, gaps and times that they were read from.

What is written is read back as the same records, exactly, with these exceptions: rows that repeat
each other need `keep_duplicates=True`; dates keep whole microseconds; where the schema has no
start column, a stay of dates begins with its first row; in the long form rows of one time come
together in one. Offsets of dates from UTC were taken off in reading and are not written.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.cells import Floats, Integers
from privet.data.records.features import Categorical, Feature
from privet.data.records.layouts import LONG, VALUE, VARIABLE, WIDE
from privet.data.records.records import PatientRecords
from privet.data.records.schema import SECONDS, Schema
from privet.data.records.sinks import Column, Sink, dates, numbers, open_sink, texts
from privet.errors import InputError

STAYS_AT_A_TIME: Final = 2_000
# When stays begin that have no date of their own.
EPOCH: Final = np.datetime64("2000-01-01T00:00:00", "us")


def write_records(
    records: PatientRecords, path: str | Path, *, layout: str = WIDE, overwrite: bool = False
) -> None:
    """Write records to a CSV (.csv, .csv.gz) or Parquet file; see `RecordWriter`."""
    with RecordWriter(path, records.schema, layout=layout, overwrite=overwrite) as writer:
        writer.write(records)


@final
class RecordWriter:
    """A file to which any number of records may be written, part after part.

    The file appears under its name when the `with` block ends well. Columns: patient, stay, start,
    time, then in the wide form the temporal columns, in the long one `variable` and `value`; then
    static columns and outcomes, repeated in each row. Blank is missing. A stay without rows has
    one row without a time.
    """

    def __init__(
        self, path: str | Path, schema: Schema, *, layout: str = WIDE, overwrite: bool = False
    ) -> None:
        if layout not in (WIDE, LONG):
            raise InputError("unknown layout", got=f"'{layout}'", expected=f"{WIDE} or {LONG}")
        self.schema, self.layout = schema, layout
        self._path, self._overwrite = Path(path), overwrite
        self._open = ExitStack()
        self._sink: Sink | None = None

    def __enter__(self) -> Self:
        columns = self._columns(nothing(self.schema))
        sink = open_sink(self._path, columns, overwrite=self._overwrite)
        self._sink = self._open.enter_context(sink)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sink = None
        self._open.__exit__(kind, error, trace)

    def write(self, records: PatientRecords) -> None:
        """Add records of the writer's schema."""
        if self._sink is None:
            raise InputError("the writer is not open", fix="use it in a with block")
        if records.schema != self.schema:
            raise InputError("records of another schema than the writer's")
        for first in range(0, len(records), STAYS_AT_A_TIME):
            part = records.part(np.arange(first, min(first + STAYS_AT_A_TIME, len(records))))
            self._sink.write(self._columns(part))

    def _columns(self, records: PatientRecords) -> list[Column]:
        stay, row = _lines(records)
        if self.layout == WIDE:
            values = np.full((len(row), len(self.schema.temporal)), np.nan)
            values[row >= 0] = records.values[row[row >= 0]]
            temporal = _values(self.schema.temporal, values)
        else:
            stay, row, temporal = _long(records, stay, row)
        return [
            *_keys(records, stay),
            _times(records, stay, row),
            *temporal,
            *_values(self.schema.static, records.static[stay]),
            *_values(self.schema.outcomes, records.outcomes[stay]),
        ]


def words(feature: Categorical, places: Floats) -> NDArray[np.object_]:
    """The words of places in a vocabulary; None for NaN."""
    vocabulary = np.array([*feature.values, None], dtype=object)
    found: NDArray[np.object_] = vocabulary[np.where(np.isnan(places), -1, places).astype(int)]
    return found


def moments(records: PatientRecords, stay: Integers, times: Floats) -> NDArray[np.datetime64]:
    """When times of stays were, in whole microseconds; stays without a start began at `EPOCH`."""
    starts = np.full(len(records), EPOCH) if records.starts is None else records.starts
    unit = SECONDS[records.schema.time_unit] * 1e6
    since = np.rint(times * unit).astype(np.int64).astype("timedelta64[us]")
    found: NDArray[np.datetime64] = starts.astype("datetime64[us]")[stay] + since
    return found


def _lines(records: PatientRecords) -> tuple[Integers, Integers]:
    """The stay and the row of each line; row -1 for a stay without rows."""
    counts = np.maximum(records.lengths, 1)
    stay = np.repeat(np.arange(len(records)), counts)
    step = np.arange(len(stay)) - np.repeat(np.cumsum(counts) - counts, counts)
    return stay, np.where(records.lengths[stay] == 0, -1, records.offsets[stay] + step)


def _keys(records: PatientRecords, stay: Integers) -> list[Column]:
    schema = records.schema
    columns = [texts(schema.patient, records.patients[stay])]
    if schema.stay is not None:
        columns.append(texts(schema.stay, records.stays[stay]))
    if schema.start is not None:
        columns.append(dates(schema.start, moments(records, stay, np.zeros(len(stay)))))
    return columns


def _times(records: PatientRecords, stay: Integers, row: Integers) -> Column:
    schema, timed = records.schema, row >= 0
    times = np.full(len(row), np.nan)
    times[timed] = records.times[row[timed]]
    if not schema.timestamps:
        return numbers(schema.time, times)
    found = np.full(len(row), np.datetime64("NaT", "us"))
    found[timed] = moments(records, stay[timed], times[timed])
    return dates(schema.time, found)


def _values(features: Sequence[Feature], values: Floats) -> list[Column]:
    return [_column(f, values[:, place]) for place, f in enumerate(features)]


def _column(feature: Feature, values: Floats) -> Column:
    if isinstance(feature, Categorical):
        return texts(feature.name, words(feature, values))
    return numbers(feature.name, values, feature.decimals)


def _long(
    records: PatientRecords, stay: Integers, row: Integers
) -> tuple[Integers, Integers, list[Column]]:
    """A line for each value; one without a variable for each row that has no values."""
    features = records.schema.temporal
    there = np.zeros((len(row), len(features) + 1), dtype=bool)
    there[row >= 0, :-1] = ~np.isnan(records.values[row[row >= 0]])
    there[:, -1] = ~there.any(axis=1)
    line, place = np.nonzero(there)
    names = np.array([*(f.name for f in features), None], dtype=object)
    written = np.full(len(line), None, dtype=object)
    for column, feature in enumerate(features):
        own = place == column
        written[own] = _column(feature, records.values[row[line[own]], column]).texts()
    return stay[line], row[line], [texts(VARIABLE, names[place]), texts(VALUE, written)]


def nothing(schema: Schema) -> PatientRecords:
    """Records of zero stays."""
    none = np.array([], dtype=np.str_)
    return PatientRecords(
        schema=schema,
        patients=none,
        stays=none,
        starts=np.array([], dtype="datetime64[us]") if schema.timestamps else None,
        static=np.empty((0, len(schema.static))),
        outcomes=np.empty((0, len(schema.outcomes))),
        offsets=np.zeros(1, dtype=np.int64),
        times=np.empty(0),
        values=np.empty((0, len(schema.temporal))),
    )
