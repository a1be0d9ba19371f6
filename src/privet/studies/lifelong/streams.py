"""Which tasks: the same for all contenders of a seed, so that these can be compared in pairs.

A stream is asked for as `NAME`, `NAME/disjoint` or `NAME/shared`. The seed is that of its
permutations (where it has any), and of the first weights. Versions are measured on `examples` test
records of each task, evenly spread.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from privet.errors import InputError
from privet.lifelong.stream import Stream, Task
from privet.lifelong.tasks import STREAMS, load_stream
from privet.studies.robust_private.public import require_no_budget

KINDS: Final = {"": None, "disjoint": False, "shared": True}


@final
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A stream of the study; a seed makes it a stream.

    Attributes:
        name: of `privet lifelong streams`, with an order behind a colon where it has one.
        shared: whether all tasks have the same units; None for what is usual.
        n_tasks, records: as in `load_stream`.
        examples: test records of each task; None for all.
        data_dir: where its files are.
    """

    name: str
    shared: bool | None
    n_tasks: int | None
    records: int | None
    examples: int | None
    data_dir: Path | None

    @property
    def label(self) -> str:
        """Of tables and folders."""
        kind = {None: "", True: "/shared", False: "/disjoint"}[self.shared]
        return f"{self.name}{kind}"

    @property
    def base(self) -> str:
        """The named stream, without its order."""
        return self.name.partition(":")[0]

    @property
    def is_shared(self) -> bool:
        """Whether all tasks have the same units."""
        return STREAMS[self.base].kinds[0] if self.shared is None else self.shared

    def asked(self) -> dict[str, Any]:
        """What decides on the tasks, but for the seed."""
        return {key: value for key, value in asdict(self).items() if key != "data_dir"}

    def at(self, seed: int) -> Stream:
        """Loaded."""
        return _loaded(self, seed)


def wanted(
    names: Sequence[str],
    *,
    n_tasks: int | None,
    records: int | None,
    examples: int | None,
    data_dir: Path | None,
) -> list[Wanted]:
    """Those that are named, each one once; public ones alone."""
    if not names or len(set(names)) < len(names):
        raise InputError("bad list of streams", got=", ".join(names), expected="each one once")
    if examples is not None and examples < 1:
        raise InputError("bad number of examples", got=examples, expected="at least 1")
    found = []
    for text in names:
        name, slash, kind = text.partition("/")
        if name.partition(":")[0] not in STREAMS or kind not in KINDS or bool(slash) != bool(kind):
            raise InputError(
                "a study is for named, public streams",
                got=f"'{text}'",
                expected=f"NAME, NAME/disjoint or NAME/shared; NAME of {', '.join(STREAMS)}",
            )
        found.append(
            Wanted(
                name=name, shared=KINDS[kind], n_tasks=n_tasks, records=records,
                examples=examples, data_dir=data_dir,
            )
        )  # fmt: skip
    return found


def require_no_budgets(streams: Sequence[Wanted], seed: int) -> None:
    """Load all of them, and refuse records that the user's own ledger has a cap for."""
    for one in streams:
        for task in one.at(seed):
            require_no_budget(task.data)


@lru_cache(maxsize=1)
def _loaded(asked: Wanted, seed: int) -> Stream:
    stream = load_stream(
        asked.name,
        n_tasks=asked.n_tasks,
        records=asked.records,
        shared=asked.shared,
        seed=seed,
        data_dir=asked.data_dir,
    )
    if asked.examples is None:
        return stream
    return replace(stream, tasks=tuple(_cut(task, asked.examples) for task in stream))


def _cut(task: Task, examples: int) -> Task:
    test = task.data.test
    chosen = np.zeros(len(test), dtype=np.bool_)
    chosen[np.linspace(0, len(test) - 1, min(examples, len(test))).round().astype(int)] = True
    return replace(task, data=replace(task.data, test=test.part(chosen)))
