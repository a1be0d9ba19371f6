"""The activities as data sets by name: windows of three axes, or rows of features.

    NAME            everybody's earlier records train, their later ones test: FLSys's split
    NAME/new-users  whole users train, others test

Windows are of shape (3, 100), accelerations alone, one every 50 samples: 2 s at 50 Hz, half of each
window stands in the next. The first split is the easier one: the model has seen the person, often
the very walk. Its test records belong to users who are protected, so figures on them stay inside.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.activities import hapt, simulated, watch, wisdm
from privet.data.activities.by_user import About, Examples, dataset_of, within_users
from privet.data.activities.sessions import LATE, LENGTH, Session, cut, early_and_late
from privet.data.dataset import Dataset
from privet.errors import InputError

NEW_USERS: Final = "new-users"
AXES: Final = 3
SHAPE: Final = (AXES, LENGTH)

Read = Callable[[Path], Sequence[Session]]


def load_part(name: str, folder: Path, part: str) -> Dataset:
    """The data set `name` from its folder; `part` is "" or `NEW_USERS`."""
    if name == wisdm.NAME:
        return _of_rows(wisdm.ABOUT, wisdm.read_wisdm(folder), part)
    about, read = _SIGNALS[name]
    return _of_signals(about, [_accelerations(session) for session in read(folder)], part)


def simulated_population(users: int) -> Dataset:
    """As many simulated users as are asked for, the first 60 those of `activities`."""
    if users < 1:
        raise InputError("bad number of users", got=users, expected="at least 1")
    about = replace(
        simulated.ABOUT, name=f"{simulated.NAME}-{users}", users=tuple(range(1, users + 1))
    )
    return _of_signals(about, list(simulated.sessions_of(about.users)), "")


def _of_signals(about: About, sessions: Sequence[Session], part: str) -> Dataset:
    if part == NEW_USERS:
        return dataset_of(_windows(sessions), about, name=f"{about.name}/{NEW_USERS}")
    early, late = early_and_late(sessions)
    return within_users(_windows(early), _windows(late), about, name=about.name)


def _of_rows(about: About, rows: Examples, part: str) -> Dataset:
    """Rows are taken to be in the order of time, within a user and an activity."""
    if part == NEW_USERS:
        return dataset_of(rows, about, name=f"{about.name}/{NEW_USERS}")
    late = _last_of_each(rows)
    return within_users(_chosen(rows, ~late), _chosen(rows, late), about, name=about.name)


def _windows(sessions: Sequence[Session]) -> Examples:
    examples = cut(sessions)
    return replace(examples, x=examples.x[:, 0])  # an image of one channel -> channels by time


def _accelerations(session: Session) -> Session:
    return replace(session, signal=session.signal[:, :AXES])


def _last_of_each(rows: Examples) -> NDArray[np.bool_]:
    """The last rows of each user and activity, so many as are not among the first 1 - `LATE`."""
    late = np.zeros(len(rows.y), dtype=bool)
    for user, label in set(zip(rows.users.tolist(), rows.y.tolist(), strict=True)):
        own = np.flatnonzero((rows.users == user) & (rows.y == label))
        late[own[round(len(own) * (1 - LATE)) :]] = True
    return late


def _chosen(rows: Examples, chosen: NDArray[np.bool_]) -> Examples:
    return Examples(x=rows.x[chosen], y=rows.y[chosen], users=rows.users[chosen])


_SIGNALS: Final[dict[str, tuple[About, Read]]] = {
    hapt.NAME: (hapt.ABOUT, hapt.read_hapt),
    watch.NAME: (watch.ABOUT, watch.read_watch),
    simulated.NAME: (simulated.ABOUT, lambda _: simulated.everyone()),
}
