"""A user's own stream: a folder with a description file (.toml) for each task.

Tasks come in the order of the files' names, numbers in them taken as such (`task-10` is after
`task-9`). Or a file `stream.toml` says which, in which order, and whether units come back:

    tasks = ["spring.toml", "summer.toml"]
    shared = true

With `shared = true` a unit is the same in two tasks if its id in the unit column is. Identities are
hashes of ids, so a task that is added changes none of the earlier ones. Without it no id may be in
two tasks: what a disjoint stream costs holds only if nobody comes back.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.data.description import described, read_description, read_parts
from privet.data.units import Records, place_of
from privet.errors import InputError
from privet.lifelong.asked import whole_number
from privet.lifelong.stream import Stream, Task

ORDER: Final = "stream.toml"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Described:
    """A task as its files have it, with the ids of its units."""

    name: str
    data: Dataset
    train: Records
    test: Records


def load_folder(folder: Path, *, n_tasks: int | None = None, shared: bool | None = None) -> Stream:
    """The stream of a folder; of more tasks than `n_tasks`, the first so many.

    Args:
        folder: with a description file for each task, and perhaps `stream.toml`.
        n_tasks: None for all.
        shared: whether units come back; if `stream.toml` says so, too, it must say the same.
    """
    folder = folder.resolve()
    paths, declared = _order(folder)
    most = len(paths)
    count = most if n_tasks is None else whole_number("number of tasks", n_tasks, most=most)
    kind = _kind(folder, declared, shared)
    tasks = [_read(folder, path) for path in paths[:count]]
    _require_same_columns(tasks)
    _require_tests_apart(tasks)
    if kind:
        _require_ids(tasks)
    else:
        _require_disjoint(tasks)
    return Stream(
        name=folder.name,
        tasks=tuple(_task(task, shared=kind) for task in tasks),
        shared=kind,
        reference={"name": str(folder), "n_tasks": count, "shared": kind},
    )


def _order(folder: Path) -> tuple[list[Path], bool | None]:
    """Description files in their order, and whether units come back, if that is declared."""
    paths = [path for path in folder.glob("*.toml") if path.name != ORDER]
    facts = _read_order(folder / ORDER) if (folder / ORDER).is_file() else {}
    if "tasks" in facts:
        paths = [folder / name for name in facts["tasks"]]
    else:
        paths.sort(key=_by_numbers)
    if not paths:
        raise InputError(
            f"no tasks in {folder}",
            expected="a description file (.toml) for each task",
            fix="make them with privet data declare",
        )
    return paths, facts.get("shared")


def _by_numbers(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", path.stem)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], path.name


def _read_order(path: Path) -> dict[str, Any]:
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from error
    names = facts.get("tasks", ["..."])
    named = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    sound = named and len({Path(name).stem for name in names}) == len(names) > 0
    if not sound or not isinstance(facts.get("shared", False), bool):
        raise InputError(
            f"{path}: bad 'tasks' or 'shared'",
            expected='tasks = ["FILE.toml", ...], of different names, and shared = true or false',
        )
    if unknown := sorted(facts.keys() - {"tasks", "shared"}):
        raise InputError(f"{path}: unknown key '{unknown[0]}'", expected="tasks, shared")
    return facts


def _kind(folder: Path, declared: bool | None, asked: bool | None) -> bool:
    if declared is not None and asked is not None and declared != asked:
        raise InputError(
            f"{folder / ORDER} says whether units come back, and says otherwise",
            got=f"shared={asked}",
            expected=f"shared={declared}",
            fix="leave it to the file",
        )
    return bool(declared if asked is None else asked)


def _read(folder: Path, path: Path) -> _Described:
    description = read_description(path)
    train, test = read_parts(description, path.parent)
    data = described(description, path, train, test)
    named = replace(data, name=f"{folder.name}/{path.stem}")
    return _Described(name=path.stem, data=named, train=train, test=test)


def _task(task: _Described, *, shared: bool) -> Task:
    identities = _identities(task.train.ids) if shared else None
    return Task(name=task.name, data=task.data, identities=identities)


def _identities(ids: Sequence[str]) -> NDArray[np.int64]:
    """Numbers that depend on the ids alone; 63 bits, so that they fit."""
    return np.array([place_of(name) >> 1 for name in ids], dtype=np.int64)


def _require_same_columns(tasks: Sequence[_Described]) -> None:
    first = tasks[0].data
    for task in tasks:
        if task.data.features != first.features:
            raise InputError(
                f"task '{task.name}' has other columns than the first",
                got=", ".join(task.data.features),
                expected=f"{', '.join(first.features)}, in this order",
                fix="declare all tasks alike: one network serves them all",
            )


def _require_ids(tasks: Sequence[_Described]) -> None:
    for task in tasks:
        if task.data.train.units is None:
            raise InputError(
                f"task '{task.name}' does not tell who comes back in other tasks",
                expected="a unit_column in the description of every task of a shared stream",
                fix="declare it, or set shared = false if nobody is in two tasks",
            )


def _require_disjoint(tasks: Sequence[_Described]) -> None:
    seen: set[str] = set()
    for task in tasks:
        if not seen.isdisjoint(task.train.ids):
            raise InputError(
                f"a {task.data.unit} of task '{task.name}' is in an earlier task, too",
                expected=f"each {task.data.unit} in one task",
                fix=f"set shared = true in {ORDER}",
            )
        seen.update(task.train.ids)


def _require_tests_apart(tasks: Sequence[_Described]) -> None:
    """Figures about test records are published uncharged: nobody in them may train, in any task."""
    trained = {name for task in tasks for name in task.train.ids}
    for task in tasks:
        if task.data.test_is_public and not trained.isdisjoint(task.test.ids):
            raise InputError(
                f"a {task.data.unit} of the public test records of task '{task.name}' "
                "is in the training records of a task",
                fix=f"bring all records of a {task.data.unit} to one side in every task, or set "
                "test_is_public = false",
            )
