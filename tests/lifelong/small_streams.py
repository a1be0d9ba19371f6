"""Streams that are learned in a moment."""

import numpy as np

from privet.data.dataset import Bounds, Dataset, Split
from privet.lifelong.stream import Stream, Task

QUICK = {"model": "linear", "epochs": 2.0, "batch": 20}


def small_data(name, n, seed, units=None):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.uniform(0, 1, size=(n, 4)).astype(np.float32)
    x[:, seed % 4] = np.where(y == 1, 0.9, 0.1)
    test = Split(x=x[:20], y=y[:20].astype(np.int64))
    return Dataset(
        name=name, train=Split(x=x, y=y.astype(np.int64), units=units), test=test,
        bounds=Bounds(low=(0.0,), high=(1.0,)), classes=("no", "yes"), licence="none",
        source="made up", test_is_public=True, unit="example" if units is None else "user",
        nominal_size=n if units is None else int(units.max()) + 1,
    )  # fmt: skip


def small_stream(tasks=3, *, shared=False, n=60, name="made-up"):
    made = tuple(
        Task(
            name=f"{i}",
            data=small_data(f"{name}/{i}", n, i),
            identities=np.arange(n) if shared else None,
        )
        for i in range(1, tasks + 1)
    )
    return Stream(name=name, tasks=made, shared=shared)
