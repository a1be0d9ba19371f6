"""Where columns of text, numbers and dates are written: CSV, packed CSV or Parquet files.

A file appears under its name when it is complete, not before; a failure leaves nothing behind.
"""

import csv
import gzip
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.chunks import check_kind, is_parquet
from privet.errors import FaultyEnvironment, InputError

TEXT: Final = "O"
NUMBER: Final = "f"
DATE: Final = "M"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A column to write: texts (objects; None is blank), numbers (NaN) or dates (NaT).

    Attributes:
        name: of the column.
        cells: its cells.
        decimals: of numbers, where these are enough to tell them exactly.
    """

    name: str
    cells: NDArray[Any]
    decimals: int | None = None

    @property
    def kind(self) -> str:
        """TEXT, NUMBER or DATE."""
        return self.cells.dtype.kind

    def texts(self) -> list[str]:
        """The cells as they stand in a CSV file, exactly; blank where there is nothing."""
        if self.kind == TEXT:
            return ["" if cell is None else cell for cell in self.cells]
        different, place = np.unique(self.cells, return_inverse=True)
        write = _date if self.kind == DATE else self._number
        texts = np.array([write(cell) for cell in different.tolist()], dtype=object)
        found: list[str] = texts[place].tolist()
        return found

    def _number(self, number: float) -> str:
        if number != number:  # NaN
            return ""
        if self.decimals is not None:
            text = f"{number:.{self.decimals}f}"
            if float(text) == number:
                return text
        return f"{number:.0f}" if number.is_integer() and abs(number) < 2**53 else repr(number)


def numbers(name: str, cells: NDArray[Any], decimals: int | None = None) -> Column:
    """A column of numbers."""
    return Column(name=name, cells=np.asarray(cells, dtype=np.float64), decimals=decimals)


def texts(name: str, cells: NDArray[Any] | Sequence[str | None]) -> Column:
    """A column of texts; None is blank."""
    return Column(name=name, cells=np.array(cells, dtype=object))


def dates(name: str, cells: NDArray[np.datetime64]) -> Column:
    """A column of dates and times."""
    return Column(name=name, cells=np.asarray(cells, dtype="datetime64[us]"))


class Sink(Protocol):
    """An open file of columns."""

    def write(self, columns: Sequence[Column]) -> None:
        """Add rows; the columns are the same each time."""

    def close(self) -> None:
        """Write what is left."""


@contextmanager
def open_sink(path: Path, columns: Sequence[Column], *, overwrite: bool = False) -> Iterator[Sink]:
    """A file that gets its name when all went well. `columns` may be empty: they tell the names."""
    check_kind(path)
    if path.exists() and not overwrite:
        raise InputError("the file exists", got=path, fix="choose another name")
    ending = ".csv.gz" if path.name.lower().endswith(".gz") else path.suffix
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{ending}")
    with told(path):
        try:
            sink: Sink = (ParquetSink if is_parquet(path) else CsvSink)(temporary, columns)
            try:
                yield sink
            finally:
                sink.close()
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Say in one line that something cannot be written."""
    try:
        yield
    except OSError as error:
        raise FaultyEnvironment(
            f"cannot write {path}: {error.strerror or error}",
            fix="choose a folder you may write to, with enough space",
        ) from error


@final
class CsvSink:
    """A CSV file, packed if its name ends in .gz."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._raw = path.open("wb")
        packed = path.name.lower().endswith(".gz")
        # Without time and name in it, so that the same records make the same file.
        self._binary: Any = (
            gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", mtime=0)
            if packed
            else self._raw
        )
        self._stream = io.TextIOWrapper(self._binary, encoding="utf-8", newline="")
        self._writer = csv.writer(self._stream, lineterminator="\n")
        self._writer.writerow([column.name for column in columns])

    def write(self, columns: Sequence[Column]) -> None:
        """Add rows."""
        self._writer.writerows(zip(*(column.texts() for column in columns), strict=True))

    def close(self) -> None:
        """Write what is left."""
        try:
            self._stream.close()
        finally:
            self._raw.close()  # a gzip file leaves open what it was given


@final
class ParquetSink:
    """A Parquet file; numbers as doubles, dates in microseconds, the rest as strings."""

    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise FaultyEnvironment(
                "Parquet files need pyarrow, which is not installed",
                fix="pip install 'privet[parquet]'",
            ) from None
        kinds = {TEXT: pa.string(), NUMBER: pa.float64(), DATE: pa.timestamp("us")}
        self._pa = pa
        self._schema = pa.schema([(column.name, kinds[column.kind]) for column in columns])
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, columns: Sequence[Column]) -> None:
        """Add rows."""
        arrays = [
            self._pa.array(column.cells, type=field.type, from_pandas=True)  # NaN and NaT as null
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def _date(moment: Any) -> str:
    # None for NaT; isoformat leaves the fraction out where there is none.
    return "" if moment is None else str(moment.isoformat(sep=" "))
