"""Files of records, a few thousand rows at a time: CSV, packed CSV and Parquet.

A line number is that of the file, header included; Parquet has rows, counted from 1.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.errors import FaultyEnvironment, InputError

CHUNK: Final = 16_384
KINDS: Final = (".csv", ".csv.gz", ".parquet")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Some rows of a file.

    Attributes:
        path: of the file.
        lines: where each row stands.
        columns: cells by column: text of a CSV; text, numbers or dates of a Parquet file.
    """

    path: Path
    lines: Sequence[int]
    columns: Mapping[str, Sequence[Any]]

    def place(self, row: int) -> str:
        """Where a row stands, for a person."""
        return f"{self.path}: {'row' if is_parquet(self.path) else 'line'} {self.lines[row]}"


def header_of(path: Path) -> list[str]:
    """The names of a file's columns; reads nothing else."""
    _check_file(path)
    with _one_line_errors(path):
        if is_parquet(path):
            return list(_pyarrow_parquet().read_schema(path).names)
        with _open_text(path) as stream:
            return _header(path, csv.reader(stream, strict=True))


def read_chunks(path: Path, names: Sequence[str], *, rows: int = CHUNK) -> Iterator[Chunk]:
    """Yield the named columns, in chunks of `rows`; a missing column is bad input."""
    header = header_of(path)
    for name in names:
        if name not in header:
            raise _no_column(path, name, header)
        if header.count(name) > 1:
            raise InputError(f"{path}: column '{name}' occurs twice", fix="rename one of them")
    read = _parquet_chunks if is_parquet(path) else _csv_chunks
    with _one_line_errors(path):
        yield from read(path, list(names), rows)


def is_parquet(path: Path) -> bool:
    """Whether a path names a Parquet file; everything else is CSV."""
    return path.name.lower().endswith(".parquet")


def check_kind(path: Path) -> Path:
    """Refuse a path whose ending is not one of `KINDS`."""
    if not path.name.lower().endswith(KINDS):
        raise InputError("unknown kind of file", got=path, expected=f"one of {', '.join(KINDS)}")
    return path


def _csv_chunks(path: Path, names: list[str], size: int) -> Iterator[Chunk]:
    with _open_text(path) as stream:
        reader = csv.reader(stream, strict=True)
        header = _header(path, reader)
        places = [header.index(name) for name in names]
        rows: list[list[str]] = []
        lines: list[int] = []
        for row in reader:
            if len(row) != len(header):
                if not row:  # blank lines are none
                    continue
                raise InputError(
                    f"{path}: line {reader.line_num} is ragged",
                    got=f"{len(row)} cells",
                    expected=f"{len(header)}, as in the header",
                )
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == size:
                yield _transposed(path, lines, rows, names, places)
                rows, lines = [], []
        if rows:
            yield _transposed(path, lines, rows, names, places)


def _transposed(
    path: Path, lines: list[int], rows: list[list[str]], names: list[str], places: list[int]
) -> Chunk:
    columns = list(zip(*rows, strict=True))
    cells = {name: columns[place] for name, place in zip(names, places, strict=True)}
    return Chunk(path=path, lines=lines, columns=cells)


def _header(path: Path, reader: Iterator[list[str]]) -> list[str]:
    header = [name.strip() for name in next((row for row in reader if row), [])]
    if not header:
        raise InputError(f"{path} is empty", expected="a header and at least one row")
    return header


def _parquet_chunks(path: Path, names: list[str], size: int) -> Iterator[Chunk]:
    first = 1
    with _pyarrow_parquet().ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=size, columns=names):
            # By name: a Parquet file gives its columns in its own order.
            cells = {name: _parquet_cells(batch.column(name)) for name in names}
            yield Chunk(path=path, lines=range(first, first + len(batch)), columns=cells)
            first += len(batch)


def _parquet_cells(column: Any) -> Sequence[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _parquet_cells(column.cast(kind.value_type))
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
    whole = pa.types.is_integer(kind) and not column.null_count
    quick = whole or pa.types.is_floating(column.type)  # with nulls as NaN
    cells: Sequence[Any] = column.to_numpy(zero_copy_only=False) if quick else column.to_pylist()
    return cells


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise FaultyEnvironment(
            "Parquet files need pyarrow, which is not installed",
            fix="pip install 'privet[parquet]'",
        ) from None
    return pyarrow.parquet


def _open_text(path: Path) -> io.TextIOWrapper:
    if path.name.lower().endswith(".gz"):
        return io.TextIOWrapper(gzip.GzipFile(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _no_column(path: Path, name: str, header: Sequence[str]) -> InputError:
    shown = ", ".join(header[:20]) + (", ..." if len(header) > 20 else "")
    return InputError(f"{path} has no column '{name}'", expected=f"one of its columns: {shown}")


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputError("file not found", got=path, fix="check the path")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty", expected="a header and at least one row")


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises on a corrupt file into one line of ours."""
    try:
        yield
    except (OSError, ValueError, EOFError, MemoryError, csv.Error, zlib.error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        kind = "Parquet" if is_parquet(path) else "CSV"
        raise InputError(f"{path} cannot be read as {kind}: {reason}") from error
