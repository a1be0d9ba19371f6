"""Streams: tasks that arrive one after another, and who is in how many of them.

| spec     | here            | meaning                                                          |
|----------|-----------------|------------------------------------------------------------------|
| t_i, D_i | `Task`          | the records of a task, its own test records, its public facts    |
| m        | `len(stream)`   | tasks known so far                                               |
| K        | `classes`       | one label space for all tasks, fixed beforehand                  |
| unit     | `data.unit`     | what is protected as one: a record, an image, a user             |

Who is in how many tasks decides what a lifetime costs. A *disjoint* stream has every unit in one
task. In a *shared* stream a unit may be in every task, under an identity that holds for all of
them: an image that each task permutes in its own way, a user who comes back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One task of a stream.

    `data.train.units`, where given, number the units within the task; `identities` has one number
    for each of these units (for each record, where records are units) that means the same unit in
    every task of the stream. None in disjoint streams.
    """

    name: str
    data: Dataset
    identities: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.identities is None:
            return
        units = self.data.train.n_units
        if self.identities.shape != (units,) or len(np.unique(self.identities)) != units:
            raise InputError(
                f"task '{self.name}': bad identities of units",
                expected="one number for each unit of the task, all different",
            )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """Tasks in the order in which they arrive.

    Attributes:
        name: of tables and of the ledger; the data set of a task is called `NAME/TASK`.
        tasks: alike in shape, classes, bounds and unit.
        shared: whether a unit may be in several tasks.
        reference: how to load the same stream again, after a crash.
    """

    name: str
    tasks: tuple[Task, ...]
    shared: bool
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError(f"stream '{self.name}' has no tasks", expected="at least one")
        first = self.tasks[0].data
        for task in self.tasks:
            _require_alike(self.name, task, first)
            if self.shared != (task.identities is not None):
                raise InputError(
                    f"stream '{self.name}': identities of units belong to shared streams",
                    got=f"task '{task.name}' {'without' if self.shared else 'with'} them",
                )

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example, in every task."""
        return self.tasks[0].data.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """The label space, fixed beforehand: which classes a task shows must not be seen in it."""
        return self.tasks[0].data.classes

    @property
    def unit(self) -> str:
        """What is protected as one."""
        return self.tasks[0].data.unit


def _require_alike(stream: str, task: Task, first: Dataset) -> None:
    data = task.data
    facts = {
        "shape": (data.shape, first.shape),
        "classes": (data.classes, first.classes),
        "bounds": (data.bounds, first.bounds),
        "unit": (data.unit, first.unit),
        "grouping of records": (data.train.units is None, first.train.units is None),
    }
    for what, (here, there) in facts.items():
        if here != there:
            raise InputError(
                f"stream '{stream}': task '{task.name}' has another {what} than the first",
                got=here,
                expected=f"{there}",
                fix="declare all tasks alike: one network and one label space serve them all",
            )
