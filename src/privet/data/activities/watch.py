"""Seven shoulder exercises under a smart watch, 10 users, left and right arm, 50 Hz.

Read from `watch.npz`: `x` (samples, 6) of all sequences one after another, `seq_len`, `y`,
`subject` and `side` (0 left, 1 right) for each sequence. The package seglearn has the same
signals as a pickle, which is not read: to load a pickle is to run it.
"""

from pathlib import Path
from typing import Final

import numpy as np

from privet.data.activities.by_user import WHOLE_RANGE, About, in_ranges
from privet.data.activities.sessions import Segment, Session
from privet.data.locate import locate
from privet.data.tables import read_npz
from privet.errors import InputError

NAME: Final = "watch"
RATE: Final = 50
CHANNELS: Final = ("ax", "ay", "az", "wx", "wy", "wz")
SIDES: Final = ("left", "right")
# Usual settings of such sensors for slow movements: 4 g, and 500 degrees a second.
RANGES: Final = (4.0, 4.0, 4.0, 8.73, 8.73, 8.73)

ABOUT: Final = About(
    name=NAME,
    classes=("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"),
    bounds=WHOLE_RANGE,
    users=tuple(range(1, 11)),
    test_users=(5, 10),
    licence="BSD 3-clause",
    source="Burns et al. 2018, Shoulder physiotherapy exercise recognition; seglearn's 'watch'",
)

_FILE: Final = "watch.npz"


def load_watch(data_dir: str | Path | None = None) -> tuple[Session, ...]:
    """All sequences, from the folder that a user names or where they are usually found.

    Signals are in units of `RANGES`, channels in the order of `CHANNELS`; `setting` is the side.
    """
    return read_watch(locate(NAME, has_files, data_dir))


def read_watch(folder: Path) -> tuple[Session, ...]:
    """The same, from this folder."""
    path = folder / _FILE
    x, lengths, y, users, sides = read_npz(path, ("x", "seq_len", "y", "subject", "side"))
    if int(lengths.sum()) != len(x) or not len(lengths) == len(y) == len(users) == len(sides):
        raise InputError(f"{path}: the sequences do not make up the signal", fix="fetch it again")
    signals = np.split(in_ranges(x, RANGES), np.cumsum(lengths)[:-1])
    return tuple(
        Session(
            user=user,
            rate=RATE,
            signal=signal,
            segments=(Segment(label=label, start=0, stop=len(signal)),),
            setting=SIDES[side],
        )
        for signal, label, user, side in zip(
            signals, y.tolist(), users.tolist(), sides.tolist(), strict=True
        )
    )


def has_files(folder: Path) -> bool:
    """Say whether `folder` has the file; does not read it."""
    return (folder / _FILE).is_file()
