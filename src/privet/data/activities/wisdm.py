"""WISDM activity prediction 1.1: a phone in the pocket, 36 users, features of ten seconds each.

Read from `transformed.csv.gz` or from `WISDM_ar_v1.1_transformed.arff`, as published. XAVG (0 in
every row) and ZSTANDDEV (a copy of XSTANDDEV) are faults of the published file and left out.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from privet.data.activities.by_user import About, Examples
from privet.data.dataset import Bounds
from privet.data.locate import locate
from privet.errors import InputError

NAME: Final = "wisdm"
BLANK: Final = 0.0  # for a time between peaks where too few peaks were found
FAULTY: Final = ("XAVG", "ZSTANDDEV")

_BINS: Final = tuple(f"{axis}{place}" for axis in "XYZ" for place in range(10))
# The accelerometer measures up to 2 g, or 20 m/s2; three peaks in 10 s are 5,000 ms apart at most.
_RANGES: Final = {
    **dict.fromkeys(_BINS, (0.0, 1.0)),
    **dict.fromkeys(("YAVG", "ZAVG"), (-20.0, 20.0)),
    **dict.fromkeys(("XPEAK", "YPEAK", "ZPEAK"), (0.0, 5000.0)),
    **dict.fromkeys(("XABSOLDEV", "YABSOLDEV", "ZABSOLDEV"), (0.0, 20.0)),
    **dict.fromkeys(("XSTANDDEV", "YSTANDDEV"), (0.0, 20.0)),
    "RESULTANT": (0.0, 35.0),
}

ABOUT: Final = About(
    name=NAME,
    classes=("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing"),
    bounds=Bounds(
        low=tuple(low for low, _ in _RANGES.values()),
        high=tuple(high for _, high in _RANGES.values()),
    ),
    users=tuple(range(1, 37)),
    test_users=tuple(range(4, 37, 4)),
    licence="free; please cite the authors and keep their readme.txt with the files",
    source="Kwapisz, Weiss and Moore 2010, WISDM activity prediction 1.1, transformed",
    features=tuple(_RANGES),
)

_TABLE: Final = "transformed.csv.gz"
_ORIGINAL: Final = "WISDM_ar_v1.1_transformed.arff"


def load_wisdm(data_dir: str | Path | None = None) -> Examples:
    """All rows, from the folder that a user names or where they are usually found."""
    return read_wisdm(locate(NAME, has_files, data_dir))


def read_wisdm(folder: Path) -> Examples:
    """The same, from this folder; columns in the order of `ABOUT.features`."""
    path = folder / _TABLE if (folder / _TABLE).is_file() else folder / _ORIGINAL
    try:
        rows = [_example(path, place, row) for place, row in enumerate(_rows(path), start=1)]
    except (OSError, EOFError, UnicodeError, zlib.error, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="fetch the file again") from error
    if not rows:
        raise InputError(f"{path} has no rows", fix="fetch the file again")
    users, labels, values = zip(*rows, strict=True)
    return Examples(
        x=np.array(values, dtype=np.float32),
        y=np.array(labels, dtype=np.int64),
        users=np.array(users, dtype=np.int64),
    )


def has_files(folder: Path) -> bool:
    """Say whether `folder` has them in one of the two forms; reads none."""
    return (folder / _TABLE).is_file() or (folder / _ORIGINAL).is_file()


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.name == _TABLE:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            yield from csv.DictReader(stream)
        return
    names: list[str] = []
    with path.open(encoding="utf-8", newline="") as stream:
        for line in stream:
            if attribute := re.match(r'\s*@attribute\s+"?([^"\s]+)', line, re.IGNORECASE):
                names.append(attribute[1])
            elif line.strip().lower() == "@data":
                break
        cells = (row for row in csv.reader(stream, skipinitialspace=True) if row)
        yield from (dict(zip(names, row, strict=False)) for row in cells)


def _example(path: Path, place: int, row: dict[str, str]) -> tuple[int, int, list[float]]:
    try:
        values = [_value(name, row[name]) for name in ABOUT.features]
        return int(float(row["user"])), ABOUT.classes.index(row["class"].strip()), values
    except (KeyError, ValueError, AttributeError):
        raise InputError(
            f"{path}: row {place} is not one of '{NAME}'",
            expected="user, class, and a number in every column but those of peaks",
            fix="fetch the file again",
        ) from None


def _value(name: str, cell: str) -> float:
    if name.endswith("PEAK") and cell.strip() in ("", "?"):
        return BLANK
    value = float(cell)
    if not np.isfinite(value):
        raise ValueError(name)
    return value
