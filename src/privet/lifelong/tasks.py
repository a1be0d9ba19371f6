"""Streams by name, or a user's own as a folder of task files.

| stream                | tasks                                                                  |
|-----------------------|------------------------------------------------------------------------|
| permuted-SET          | the pixels of SET, in an order of each task's own                      |
| rotated-SET           | SET at an angle of each task's own; `rotated-SET:0-30-60` chooses      |
| split-SET             | some classes of SET each                                               |
| hapt-rates            | a phone at 5, 10, 20, 50 Hz; `hapt-rates:50-20-10-5` chooses the order |
| watch-sides           | a watch on the left arm, on the right; an order can be chosen as well  |
| hapt-, watch-, wisdm-users | groups of users                                                   |

By default tasks are disjoint: every image, or user, is in one. With `shared=True` the tasks of a
permuted or rotated stream have the same images, and a lifetime costs accordingly. Under rates and
sides users come back by nature: shared is the default there.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, final

from privet.data import catalogue, locate
from privet.data.activities import hapt, watch, wisdm
from privet.data.activities.by_user import USER
from privet.data.dataset import EXAMPLE
from privet.errors import InputError
from privet.lifelong import activity_streams, image_streams
from privet.lifelong.asked import Asked, whole_number
from privet.lifelong.stream import Stream
from privet.lifelong.task_folder import load_folder

Holds = Callable[[Path], bool]


@final
@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """A named stream, and whether its files were found.

    Attributes:
        name: for `load_stream`.
        what: its tasks, in a line.
        found: whether it can be loaded.
        n_tasks: how many tasks it has unless told otherwise.
        unit: what is protected as one.
        disjoint, shared: which kinds of it there are.
    """

    name: str
    what: str
    found: bool
    n_tasks: int
    unit: str
    disjoint: bool
    shared: bool


@final
@dataclass(frozen=True, kw_only=True)
class _Named:
    name: str
    what: str
    source: str  # in `locate`, or in the catalogue
    holds: Holds | None  # None: embedded
    n_tasks: int
    build: Callable[[Asked], Stream]
    unit: str = EXAMPLE
    kinds: tuple[bool, ...] = (False,)  # values of `shared` that are possible, the usual one first

    def found(self, data_dir: str | Path | None) -> bool:
        if self.holds is None:
            return True
        return locate.find_folder(self.source, self.holds, data_dir) is not None


def load_stream(
    name: str | Path,
    *,
    n_tasks: int | None = None,
    records: int | None = None,
    shared: bool | None = None,
    seed: int = 0,
    data_dir: str | Path | None = None,
) -> Stream:
    """Load a stream by name, or a folder with a description file for each task.

    Args:
        name: one of `describe_streams`, with `:TASK-TASK-...` where tasks can be chosen; or the
            path of a folder (see `task_folder`).
        n_tasks: how many tasks; None for the usual number.
        records: for each task, in the order of the files; None for its share of the declared size.
        shared: whether all tasks have the same units; None for what is usual.
        seed: of the permutations. Public; other streams draw nothing.
        data_dir: where files lie that are not in the usual places.
    """
    wanted, colon, order = str(name).partition(":")
    if wanted not in STREAMS:
        if not Path(name).is_dir():
            raise _unknown(str(name))
        if records is not None:
            raise InputError("records of a folder's tasks are those of its files", got=records)
        return load_folder(Path(name), n_tasks=n_tasks, shared=shared)
    words = tuple(order.split("-")) if colon else ()
    entry = STREAMS[wanted]
    count = n_tasks if n_tasks is not None else len(words) or entry.n_tasks
    return entry.build(
        Asked(
            name=wanted,
            order=words,
            n_tasks=whole_number("number of tasks", count),
            records=None if records is None else whole_number("number of records", records),
            shared=_kind(entry, shared),
            seed=whole_number("seed", seed, least=0),
            data_dir=data_dir,
        )
    )


def describe_streams(data_dir: str | Path | None = None) -> list[StreamInfo]:
    """All named streams; looks for their files, reads none."""
    return [
        StreamInfo(
            name=entry.name,
            what=entry.what,
            found=entry.found(data_dir),
            n_tasks=entry.n_tasks,
            unit=entry.unit,
            disjoint=False in entry.kinds,
            shared=True in entry.kinds,
        )
        for entry in STREAMS.values()
    ]


def _kind(entry: _Named, shared: bool | None) -> bool:
    if shared is None:
        return entry.kinds[0]
    if shared not in entry.kinds:
        raise InputError(
            f"no unit of '{entry.name}' is in two tasks",
            got="shared=True",
            expected="shared=False",
            fix="leave --shared out",
        )
    return shared


def _unknown(name: str) -> InputError:
    near = difflib.get_close_matches(name.lower(), STREAMS, 1)
    return InputError(
        "unknown stream of tasks",
        got=f"'{name}'",
        expected=f"one of {', '.join(STREAMS)}, or a folder of description files",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )


def _of_images(
    kind: str, what: str, build: Callable[[str, Asked], Stream], sizes: dict[str, int]
) -> list[_Named]:
    return [
        _Named(
            name=f"{kind}-{base}",
            what=what.format(base),
            source=base,
            holds=catalogue.CATALOGUE[base].holds,
            n_tasks=n_tasks,
            build=partial(build, base),
            kinds=(False,) if kind == "split" else (False, True),
        )
        for base, n_tasks in sizes.items()
    ]


_ENTRIES: Final = (
    *_of_images(
        "permuted",
        "{} with its pixels in an order of each task's own",
        image_streams.permuted,
        {"digits": 5, "mnist": 20, "fashion-mnist": 20, "cifar10": 17},
    ),
    *_of_images(
        "rotated",
        "{} at an angle of each task's own, from 0 to below 180 degrees",
        image_streams.rotated,
        {"digits": 5, "mnist": 10},
    ),
    *_of_images(
        "split",
        "{}, some of its classes in each task",
        image_streams.split,
        {"digits": 5, "mnist": 5, "fashion-mnist": 5, "cifar10": 5},
    ),
    _Named(
        name="hapt-rates",
        what="six activities under a phone at 5, 10, 20 and 50 Hz",
        source=hapt.NAME,
        holds=hapt.has_files,
        n_tasks=4,
        build=activity_streams.by_rate,
        unit=USER,
        kinds=(True, False),
    ),
    _Named(
        name="hapt-users",
        what="six activities under a phone, groups of users",
        source=hapt.NAME,
        holds=hapt.has_files,
        n_tasks=3,
        build=partial(activity_streams.by_users, hapt.ABOUT, activity_streams.hapt_windows),
        unit=USER,
    ),
    _Named(
        name="watch-sides",
        what="seven exercises under a watch on the left arm, on the right",
        source=watch.NAME,
        holds=watch.has_files,
        n_tasks=2,
        build=activity_streams.by_side,
        unit=USER,
        kinds=(True, False),
    ),
    _Named(
        name="watch-users",
        what="seven exercises under a watch, groups of users",
        source=watch.NAME,
        holds=watch.has_files,
        n_tasks=2,
        build=partial(activity_streams.by_users, watch.ABOUT, activity_streams.watch_windows),
        unit=USER,
    ),
    _Named(
        name="wisdm-users",
        what="six activities as features of ten seconds, groups of users",
        source=wisdm.NAME,
        holds=wisdm.has_files,
        n_tasks=3,
        build=partial(activity_streams.by_users, wisdm.ABOUT, wisdm.load_wisdm),
        unit=USER,
    ),
)
STREAMS: Final[dict[str, _Named]] = {entry.name: entry for entry in _ENTRIES}
