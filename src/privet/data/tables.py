"""Readers of a user's own data: CSV and Parquet tables, NPZ arrays. Never pickle.

An error names the row and the column but never repeats the cell: messages end in logs and
tickets, and a cell of a sensitive table must not. Rows count from 1, without the header.
"""

import csv
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Split
from privet.data.units import Records, grouped, place_of
from privet.errors import FaultyEnvironment, InputError

_FILL = "fill or drop missing values before training"


def read_table(
    path: Path,
    *,
    features: Sequence[str],
    label: str,
    classes: Sequence[str],
    unit_column: str | None = None,
) -> Records:
    """Read the named columns of a CSV or Parquet table, the label as an index into `classes`."""
    _check_file(path)
    read = _read_parquet if path.suffix.lower() == ".parquet" else _read_csv
    others = [label] if unit_column is None else [label, unit_column]
    with _one_line_errors(path):
        x, (labels, *owners) = read(path, features, others)
    if len(x) == 0:
        raise InputError(f"{path} has a header but no rows", expected="at least one row")
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = int(bad[0][0]) + 1, features[int(bad[0][1])]
        raise InputError(
            f"{path}: NaN or infinite value in row {row}, column '{column}'", fix=_FILL
        )
    names = ["" if cell is None else str(cell) for cell in labels]
    split = Split(x=x, y=_label_indices(path, names, classes))
    return (
        Records(split=split) if unit_column is None else grouped(path, split, unit_column, *owners)
    )


def read_arrays(path: Path, *, classes: Sequence[str], unit_column: str | None = None) -> Records:
    """Read the arrays `x` (examples first) and `y` (class indices or names) of an NPZ file."""
    x, y, *owners = read_npz(path, ["x", "y"] + ([] if unit_column is None else [unit_column]))
    if x.ndim < 2 or x.dtype.kind not in "uif":
        raise InputError(
            f"{path}: 'x' cannot be used",
            got=f"shape {x.shape} of {x.dtype}",
            expected="numbers of shape (examples, ...)",
        )
    if y.shape != (len(x),) or y.dtype.kind not in "uiU":
        raise InputError(
            f"{path}: 'y' cannot be used",
            got=f"shape {y.shape} of {y.dtype}",
            expected=f"{len(x)} class indices or class names",
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0]) + 1
        raise InputError(f"{path}: NaN or infinite value in row {row} of 'x'", fix=_FILL)
    named = y.dtype.kind == "U"
    indices = _label_indices(path, y.tolist(), classes) if named else y.astype(np.int64)
    _check_range(path, indices, len(classes))
    split = Split(x=x.astype(x.dtype.newbyteorder("="), copy=False), y=indices)
    if unit_column is None:
        return Records(split=split)
    (cells,) = owners
    if cells.shape != y.shape:
        raise InputError(
            f"{path}: '{unit_column}' cannot be used",
            got=f"shape {cells.shape}",
            expected=f"{len(x)} ids",
        )
    return grouped(path, split, unit_column, cells.tolist())


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Read the named arrays of an NPZ file; arrays of Python objects (pickles) are refused."""
    _check_file(path)
    # We open the file, because numpy leaves it open where it is no archive.
    with _one_line_errors(path), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is not an NPZ archive", expected="a file of numpy.savez")
        with archive:
            missing = [name for name in names if name not in archive.files]
            if missing:
                raise _missing(path, "array", missing[0], archive.files)
            return [archive[name] for name in names]


def split_by_content(records: Records, test_fraction: float) -> tuple[Records, Records]:
    """Part records into train and test, each by a hash of its own content, or of its unit's id.

    Guarantee: adding or removing a unit moves no other unit. Two data sets that differ in
    one unit thus give training sets that differ in at most that unit, which is what the
    accountant assumes. A shuffled split would not: one more row reshuffles all the others. All
    records of a unit go to the same side.
    """
    split, threshold = records.split, int(test_fraction * 2**64)
    if split.units is None:
        places = [_place(row, int(label)) for row, label in zip(split.x, split.y, strict=True)]
    else:
        places = [place_of(name) for name in records.ids]
    in_test = np.array([place < threshold for place in places], dtype=bool)[split.unit_of_record]
    return records.part(~in_test), records.part(in_test)


def _place(row: NDArray[np.generic], label: int) -> int:
    """Hash a record to a whole number in 0..2^64-1, alike on every machine and in every format."""
    values = row.astype("<f8") + 0.0  # + 0.0 makes -0.0 the equal 0.0
    digest = blake2b(values.tobytes(), digest_size=8, person=b"privet split")
    digest.update(label.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def _read_csv(
    path: Path, features: Sequence[str], others: Sequence[str]
) -> tuple[NDArray[np.float64], list[list[Any]]]:
    x: list[list[float]] = []
    cells: list[list[Any]] = [[] for _ in others]
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = (row for row in csv.reader(stream, strict=True) if row)  # blank lines are none
        header = [name.strip() for name in next(rows, [])]
        if not header:
            raise InputError(f"{path} is empty", expected="a header and at least one row")
        places = _column_places(path, header, [*features, *others])
        number_places, other_places = places[: len(features)], places[len(features) :]
        for number, row in enumerate(rows, start=1):
            if len(row) != len(header):
                raise InputError(
                    f"{path}: row {number} is ragged",
                    got=f"{len(row)} cells",
                    expected=f"{len(header)}, as in the header",
                )
            x.append([_number(path, row[place], number, header[place]) for place in number_places])
            for column, place in zip(cells, other_places, strict=True):
                column.append(row[place].strip())
    return np.array(x, dtype=np.float64).reshape(len(x), len(features)), cells


def _number(path: Path, cell: str, row: int, column: str) -> float:
    try:
        if "_" in cell:  # float() would take 1_0 for 10, which no table means
            raise ValueError
        return float(cell)
    except ValueError:
        what = "is empty" if not cell.strip() else "is not a number"
        raise InputError(
            f"{path}: the cell in row {row}, column '{column}' {what}",
            expected="a number",
            fix="fill, encode or drop it before training",
        ) from None


def _read_parquet(
    path: Path, features: Sequence[str], others: Sequence[str]
) -> tuple[NDArray[np.float64], list[list[Any]]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise FaultyEnvironment(
            "Parquet files need pyarrow, which is not installed",
            fix="pip install 'privet[parquet]'",
        ) from None
    _column_places(path, pyarrow.parquet.read_schema(path).names, [*features, *others])
    table = pyarrow.parquet.read_table(path, columns=[*features, *others])
    columns = [_parquet_numbers(path, name, table.column(name)) for name in features]
    return np.stack(columns, axis=1), [table.column(name).to_pylist() for name in others]


def _parquet_numbers(path: Path, name: str, column: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise InputError(
            f"{path}: column '{name}' does not hold numbers", got=column.type, expected="numbers"
        )
    if column.null_count:
        row = column.is_null().to_pylist().index(True) + 1
        raise InputError(f"{path}: the cell in row {row}, column '{name}' is empty", fix=_FILL)
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _column_places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    for name in wanted:
        if name not in header:
            raise _missing(path, "column", name, header)
        if header.count(name) > 1:
            raise InputError(f"{path}: column '{name}' occurs twice", fix="rename one of them")
    return [header.index(name) for name in wanted]


def _check_range(path: Path, indices: NDArray[np.int64], n_classes: int) -> None:
    outside = np.argwhere((indices < 0) | (indices >= n_classes))
    if len(outside):
        raise InputError(
            f"{path}: the label in row {int(outside[0][0]) + 1} is not among the declared classes",
            expected=f"0..{n_classes - 1}, an index into them",
            fix="declare the class, or correct the row",
        )


def _label_indices(path: Path, labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    index = {name: place for place, name in enumerate(classes)}
    for row, name in enumerate(labels, start=1):
        if name not in index:
            raise InputError(
                f"{path}: the label in row {row} is not among the declared classes",
                expected=f"one of {', '.join(classes)}",
                fix="declare the class, or correct the row",
            )
    return np.array([index[name] for name in labels], dtype=np.int64)


def _missing(path: Path, kind: str, name: str, present: Sequence[str]) -> InputError:
    shown = ", ".join(present[:20]) + (", ..." if len(present) > 20 else "")
    return InputError(f"{path} has no {kind} '{name}'", expected=f"one of its {kind}s: {shown}")


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputError("file not found", got=path, fix="check the path")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty", expected="a file with examples")


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises on a corrupt file into one line of ours."""
    try:
        yield
    except (OSError, ValueError, EOFError, MemoryError, csv.Error) as error:
        raise _corrupt(path, error) from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise _corrupt(path, error) from error


def _corrupt(path: Path, error: Exception) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(f"{path} cannot be read as {path.suffix.lstrip('.')}: {reason}")
