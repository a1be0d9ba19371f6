"""HAPT (UCI HAR 2.1): accelerometer and gyroscope of a phone at the waist, 30 users, 50 Hz.

Read from `hapt_raw_50hz.npz`, or from the text files as published: `RawData/acc_expXX_userYY.txt`,
`RawData/gyro_expXX_userYY.txt` and `RawData/labels.txt`. Only the six basic activities are
labelled here; the transitions between them last few seconds.
"""

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privet.data.activities.by_user import WHOLE_RANGE, About, in_ranges
from privet.data.activities.sessions import Segment, Session
from privet.data.locate import locate
from privet.data.tables import read_npz
from privet.errors import InputError

NAME: Final = "hapt"
RATE: Final = 50
CHANNELS: Final = ("ax", "ay", "az", "wx", "wy", "wz")
ACCELERATIONS: Final = 3  # of the channels, the first
# The phone's accelerometer was set to 2 g, its gyroscope to 500 degrees a second.
RANGES: Final = (2.0, 2.0, 2.0, 8.73, 8.73, 8.73)

ABOUT: Final = About(
    name=NAME,
    classes=("walking", "upstairs", "downstairs", "sitting", "standing", "laying"),
    bounds=WHOLE_RANGE,
    users=tuple(range(1, 31)),
    test_users=(2, 4, 9, 10, 12, 13, 18, 20, 24),  # as the authors published them
    licence="please cite the authors; not for commercial use",
    source="Reyes-Ortiz, Oneto, Sama, Parra and Anguita 2015, HAPT",
)

_ARCHIVE: Final = "hapt_raw_50hz.npz"
_ARRAYS: Final = (
    *("acc", "gyro", "acc_scale", "gyro_scale"),
    *("exp_id", "exp_user", "exp_start", "exp_len", "labels"),
)


def load_hapt(data_dir: str | Path | None = None) -> tuple[Session, ...]:
    """All sessions, from the folder that a user names or where they are usually found.

    Signals are in units of `RANGES`, channels in the order of `CHANNELS`.
    """
    return read_hapt(locate(NAME, has_files, data_dir))


def read_hapt(folder: Path) -> tuple[Session, ...]:
    """The same, from this folder."""
    if (folder / _ARCHIVE).is_file():
        return _read_archive(folder / _ARCHIVE)
    return _read_texts(folder / "RawData")


def has_files(folder: Path) -> bool:
    """Say whether `folder` has them in one of the two forms; reads none."""
    return (folder / _ARCHIVE).is_file() or (folder / "RawData" / "labels.txt").is_file()


def _read_archive(path: Path) -> tuple[Session, ...]:
    arrays = dict(zip(_ARRAYS, read_npz(path, _ARRAYS), strict=True))
    acc = arrays["acc"] * float(arrays["acc_scale"])
    gyro = arrays["gyro"] * float(arrays["gyro_scale"])
    signal = in_ranges(np.concatenate([acc, gyro], axis=1), RANGES)
    columns = (arrays[name].tolist() for name in ("exp_id", "exp_user", "exp_start", "exp_len"))
    return tuple(
        _session(user, signal[start : start + length], _rows_of(arrays["labels"], number))
        for number, user, start, length in zip(*columns, strict=True)
    )


def _read_texts(folder: Path) -> tuple[Session, ...]:
    labels = _read_numbers(folder / "labels.txt", columns=5).astype(np.int64)
    sessions = []
    for path in sorted(folder.glob("acc_exp*_user*.txt")):
        found = re.fullmatch(r"acc_exp(\d+)_user(\d+)\.txt", path.name)
        if found is None:
            continue
        turning = path.with_name(path.name.replace("acc", "gyro", 1))
        parts = [_read_numbers(file, columns=3) for file in (path, turning)]
        if len(parts[0]) != len(parts[1]):
            raise InputError(f"{path} and {turning.name} differ in length", fix="fetch them again")
        signal = in_ranges(np.concatenate(parts, axis=1), RANGES)
        sessions.append(_session(int(found[2]), signal, _rows_of(labels, int(found[1]))))
    return tuple(sessions)


def _read_numbers(path: Path, *, columns: int) -> NDArray[np.float64]:
    try:
        table = np.loadtxt(path, ndmin=2)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"{path} cannot be read: {reason}", fix="fetch the file again") from error
    if table.shape[1] != columns:
        raise InputError(f"{path} has other columns", got=table.shape[1], expected=f"{columns}")
    return table


def _rows_of(labels: NDArray[Any], session: int) -> NDArray[Any]:
    return np.asarray(labels[labels[:, 0] == session])


def _session(user: int, signal: NDArray[np.float32], labels: NDArray[Any]) -> Session:
    basic = (row for row in labels.tolist() if row[2] <= len(ABOUT.classes))
    # Start and end are counted from 1, and the end belongs to the segment.
    segments = tuple(Segment(label=a - 1, start=s - 1, stop=e) for _, _, a, s, e in basic)
    return Session(user=user, rate=RATE, signal=signal, segments=segments)
