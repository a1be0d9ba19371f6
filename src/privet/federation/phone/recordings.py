"""Recorded streams that are played to collectors as if a sensor measured them now.

A file is a sensor, `accelerometer.csv`, in the order of time; what was done may be left empty:

    seconds,label,x,y,z
    0.02,walking,0.11,-0.93,0.31
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

import numpy as np

from privet.data.activities.sessions import Session
from privet.errors import InputError
from privet.federation.phone.collecting import UNLABELLED, Samples

PAUSE: Final = 5.0  # seconds between two sessions
BEFORE: Final = ("seconds", "label")
MOST: Final = float(np.finfo(np.float32).max)  # in size, of anything that is measured


@final
class Recording:
    """One sensor's stream, with its own seconds counted from when the phone's clock began."""

    def __init__(self, samples: Samples) -> None:
        if len(samples) and not (np.diff(samples.times) > 0).all():
            raise InputError("a recording is not in the order of time", fix="sort it by seconds")
        self._samples = samples

    def between(self, start: float, stop: float) -> Samples:
        """What was measured from start on and before stop."""
        first, end = np.searchsorted(self._samples.times, [start, stop])
        return self._samples.part(slice(int(first), int(end)))

    def __len__(self) -> int:
        """Samples."""
        return len(self._samples)


def of_sessions(sessions: Sequence[Session]) -> Recording:
    """One after the other, with a pause between them."""
    times, labels, began = [], [], 0.0
    for session in sessions:
        times.append(began + np.arange(len(session.signal)) / session.rate)
        label = np.full(len(session.signal), UNLABELLED, dtype=np.int64)
        for segment in session.segments:
            label[segment.start : segment.stop] = segment.label
        labels.append(label)
        began = float(times[-1][-1]) + PAUSE
    return Recording(
        Samples(
            times=np.concatenate(times),
            values=np.concatenate([session.signal for session in sessions]),
            labels=np.concatenate(labels),
        )
    )


def read(path: Path, classes: Sequence[str]) -> Recording:
    """A file as above; labels are names of the model's classes."""
    if not path.is_file():
        raise InputError("no such recording", got=path, expected="a CSV file")
    numbers = {name: number for number, name in enumerate(classes)} | {"": UNLABELLED}
    rows: list[list[float]] = []
    labels: list[int] = []
    lines = _lines(path)
    header = next(lines, [])
    if tuple(header[:2]) != BEFORE or len(header) < 3:
        raise InputError(
            f"bad header of {path}", got=",".join(header)[:200], expected="seconds,label,x,..."
        )
    for number, row in enumerate(lines, start=2):
        rows.append(_numbers(path, number, row, len(header)))
        labels.append(_label(path, number, row[1], numbers))
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(header) - 1)
    return Recording(
        Samples(
            times=values[:, 0].copy(),
            values=values[:, 1:].astype(np.float32),
            labels=np.array(labels, dtype=np.int64),
        )
    )


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.reader(file)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError("not a CSV file", got=f"{path}: {error}") from None


def _numbers(path: Path, number: int, row: list[str], columns: int) -> list[float]:
    try:
        if len(row) != columns:
            raise ValueError
        found = [float(row[0]), *(float(value) for value in row[2:])]
        if not (np.abs(found) <= MOST).all():
            raise ValueError
    except ValueError:
        raise InputError(
            f"{path}, line {number}: not a sample", expected=f"{columns} columns of numbers"
        ) from None
    return found


def _label(path: Path, number: int, name: str, numbers: dict[str, int]) -> int:
    if name not in numbers:
        raise InputError(
            f"{path}, line {number}: no class of the model",
            got=name,
            expected=", ".join(known for known in numbers if known),
        )
    return numbers[name]
