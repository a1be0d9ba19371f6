"""Streams of human activities; the unit is the user.

Tasks are either conditions under which every user was measured (a sampling rate, the arm with the
watch) or groups of users. Under conditions users come back in every task: such a stream is shared,
unless each task is given users of its own. Users for testing are trained on in no task.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from privet.data.activities import hapt, watch
from privet.data.activities.by_user import About, Examples, dataset_of, present
from privet.data.activities.sessions import Session, cut, resampled
from privet.errors import InputError
from privet.lifelong.asked import Asked
from privet.lifelong.stream import Stream, Task

# Samples a second, in the order of L2DP-ML's own stream, for which this one stands in.
RATES: Final = ("5", "10", "20", "50")

Read = Callable[[str | Path | None], Examples]


def by_rate(asked: Asked) -> Stream:
    """HAPT's accelerations at several rates: windows of 100 samples, 20 s at 5 Hz, 2 s at 50."""
    rates = _conditions(asked, RATES)
    sessions = [_accelerations(session) for session in hapt.load_hapt(asked.data_dir)]
    tasks = {f"{rate}hz": cut(resampled(s, int(rate)) for s in sessions) for rate in rates}
    return _under_conditions(hapt.ABOUT, tasks, asked)


def by_side(asked: Asked) -> Stream:
    """The watch on the left arm, and on the right."""
    sides = _conditions(asked, watch.SIDES)
    sessions = watch.load_watch(asked.data_dir)
    tasks = {side: cut(s for s in sessions if s.setting == side) for side in sides}
    return _under_conditions(watch.ABOUT, tasks, asked)


def by_users(about: About, read: Read, asked: Asked) -> Stream:
    """Groups of users, of those for training and of those for testing alike."""
    asked.require_no_order()
    _require_all_records(asked)
    asked.require_at_most(len(about.test_users))
    examples, named = read(asked.data_dir), f"{asked.name}-{asked.n_tasks}"
    groups = (_groups(users, asked.n_tasks) for users in (about.train_users, about.test_users))
    tasks = []
    for number, (users, test_users) in enumerate(zip(*groups, strict=True), start=1):
        name = f"{named}/{number}"
        data = dataset_of(examples, about, name=name, users=users, test_users=test_users)
        tasks.append(Task(name=f"{number}", data=data))
    return Stream(name=named, tasks=tuple(tasks), shared=False, reference=asked.reference())


def hapt_windows(data_dir: str | Path | None) -> Examples:
    """Windows of HAPT's accelerations at 50 Hz."""
    return cut(_accelerations(session) for session in hapt.load_hapt(data_dir))


def watch_windows(data_dir: str | Path | None) -> Examples:
    """Windows of the watch's accelerations and turns, of both arms."""
    return cut(watch.load_watch(data_dir))


def _under_conditions(about: About, examples: dict[str, Examples], asked: Asked) -> Stream:
    """All users under every condition, or (disjoint) each user under one."""
    _require_all_records(asked)
    everyone = about.train_users
    groups = [everyone] * asked.n_tasks if asked.shared else _groups(everyone, asked.n_tasks)
    named = asked.name if asked.shared else f"{asked.name}-{asked.n_tasks}-disjoint"
    tasks = []
    for number, (condition, windows) in enumerate(examples.items()):
        users = groups[number]
        # With the number where users are dealt out: in another order others are in this task.
        task = condition if asked.shared else f"{number + 1}-{condition}"
        data = dataset_of(windows, about, name=f"{named}/{task}", users=users)
        identities = present(windows, users) if asked.shared else None
        tasks.append(Task(name=task, data=data, identities=identities))
    return Stream(name=named, tasks=tuple(tasks), shared=asked.shared, reference=asked.reference())


def _conditions(asked: Asked, known: Sequence[str]) -> Sequence[str]:
    chosen = asked.order or known
    if len(set(chosen)) < len(chosen) or not set(chosen) <= set(known):
        raise InputError(
            f"bad order of the tasks of '{asked.name}'",
            got="-".join(chosen),
            expected=f"some of {', '.join(known)}, each once, as '{asked.name}:{'-'.join(known)}'",
        )
    asked.require_at_most(len(chosen))
    return chosen[: asked.n_tasks]


def _require_all_records(asked: Asked) -> None:
    if asked.records is not None:
        raise InputError(
            f"the tasks of '{asked.name}' are cut by users, not by records",
            got=f"records={asked.records}",
            fix="leave it out; methods limit what a user contributes",
        )


def _groups(users: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Of the declared users, whoever of them is in the files."""
    return [tuple(group.tolist()) for group in np.array_split(np.array(users), n)]


def _accelerations(session: Session) -> Session:
    return replace(session, signal=session.signal[:, : hapt.ACCELERATIONS])
