"""Streams that are made of a named set of images: permuted, rotated, or split by classes.

Which records a task has is decided by their place in the published files, by declared sizes and by
their own labels, never by counting: one record more or fewer is one in one task (or, of a shared
stream, the same one in every task), and moves no other.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data import catalogue
from privet.data.dataset import Dataset, Split
from privet.data.identity import contents
from privet.errors import InputError
from privet.lifelong.asked import Asked, whole_number
from privet.lifelong.stream import Stream, Task
from privet.lifelong.transforms import permutation, permute, rotate

Transform = Callable[[NDArray[np.generic]], NDArray[np.generic]]
HALF_TURN: Final = 180.0


def permuted(base: str, asked: Asked) -> Stream:
    """Each task has one permutation of the pixels (and channels), the first task too."""
    asked.require_no_order()
    size = math.prod(catalogue.CATALOGUE[base].shape)
    orders = [permutation(size, seed=asked.seed, task=task) for task in range(asked.n_tasks)]
    transforms = {f"{i}": partial(permute, order=order) for i, order in enumerate(orders, 1)}
    return _transformed(base, asked, transforms, f"pixels permuted, seed {asked.seed}")


def rotated(base: str, asked: Asked) -> Stream:
    """Each task has one angle; equally spaced from 0 on, below half a turn.

    Not up to it: upside down a 6 is a 9, and one network for all tasks has one answer.
    """
    spaced = [place * HALF_TURN / asked.n_tasks for place in range(asked.n_tasks)]
    angles = [_angle(word) for word in asked.order] if asked.order else spaced
    asked.require_at_most(len(angles))
    if len(set(angles)) < len(angles):
        raise InputError("an angle occurs twice", got="-".join(asked.order))
    # The number as well: in another order another part of the records is turned by this angle.
    transforms = {
        f"{number}-{angle:g}deg": partial(rotate, degrees=angle)
        for number, angle in enumerate(angles[: asked.n_tasks], start=1)
    }
    return _transformed(base, asked, transforms, "rotated")


def split(base: str, asked: Asked) -> Stream:
    """Each task has the images of some classes; the label space of every task is that of all."""
    asked.require_no_order()
    whole = catalogue.load(base, asked.data_dir)
    asked.require_at_most(len(whole.classes) // 2)  # a task needs two classes to tell apart
    groups = np.array_split(np.arange(len(whole.classes)), asked.n_tasks)
    named = f"{asked.name}-{asked.n_tasks}" + (f"x{asked.records}" if asked.records else "")
    tasks = tuple(_task_of_classes(whole, group, named, asked.records) for group in groups)
    return Stream(name=named, tasks=tasks, shared=False, reference=asked.reference())


def _transformed(base: str, asked: Asked, transforms: Mapping[str, Transform], how: str) -> Stream:
    whole = catalogue.load(base, asked.data_dir)
    places = _places(whole, asked)
    records = places[0].stop - places[0].start
    named = f"{asked.name}-{asked.n_tasks}x{records}{'-shared' if asked.shared else ''}"
    tasks = []
    for (task, transform), place in zip(transforms.items(), places, strict=True):
        data = _made_over(whole, place, transform)
        named_data = replace(data, name=f"{named}/{task}", source=f"{whole.source}; {how}")
        identities = np.arange(len(data.train)) + place.start if asked.shared else None
        tasks.append(Task(name=task, data=named_data, identities=identities))
    return Stream(name=named, tasks=tuple(tasks), shared=asked.shared, reference=asked.reference())


def _places(whole: Dataset, asked: Asked) -> list[slice]:
    """Which of the training records each task has: its own, or the same ones for all."""
    most = whole.nominal_size
    if not asked.shared:
        asked.require_at_most(most)
        most //= asked.n_tasks
    each = f"number of records for each of {asked.n_tasks} tasks"
    records = whole_number(each, asked.records or most, most=most)
    starts = [0 if asked.shared else task * records for task in range(asked.n_tasks)]
    return [slice(start, start + records) for start in starts]


def _made_over(whole: Dataset, place: slice, transform: Transform) -> Dataset:
    """Transformed images, which the ledger knows again as those that they were made from."""
    part = Split(x=whole.train.x[place], y=whole.train.y[place])
    before = whole.training_on(part, nominal_size=place.stop - place.start)
    return replace(
        before,
        train=Split(x=transform(part.x), y=part.y),
        test=Split(x=transform(whole.test.x), y=whole.test.y),
        originals=contents(before),
    )


def _task_of_classes(
    whole: Dataset, group: NDArray[np.int64], stream: str, records: int | None
) -> Task:
    most = whole.nominal_size * len(group) // len(whole.classes)
    size = whole_number("number of records for a task", records or most, most=most)
    # Fewer records: those of a first part of the files. The first so many of the classes would be
    # a matter of counting, where one record less draws another one in.
    reach = len(whole.train)
    if records is not None:
        reach = math.ceil(records * len(whole.classes) / len(group))
    chosen = np.isin(whole.train.y, group) & (np.arange(len(whole.train)) < reach)
    task = "-".join(map(str, group.tolist()))
    data = replace(
        whole,
        name=f"{stream}/{task}",
        train=whole.train.part(chosen),
        test=whole.test.part(np.isin(whole.test.y, group)),
        nominal_size=size,
        source=f"{whole.source}; classes {task}",
    )
    return Task(name=task, data=data)


def _angle(word: str) -> float:
    try:
        angle = float(word)
    except ValueError:
        angle = math.nan
    if not 0 <= angle < 360:
        raise InputError("bad angle of a task", got=word, expected="degrees, 0 <= angle < 360")
    return angle
