"""Clients at work: what they started from, and what came of it.

Training happens when the first update of a version is needed, for all clients at once that are at
work on this version and will be in time, as far as their changes fit in memory, and for those that
are sure to set to work on it. What a change is depends on the version, the client and its turn
alone, so it does not matter when it is computed, and with whom.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Protocol, final

import numpy as np
from torch import Tensor

from privet.federation.local_work import Lesson, Teacher

MOST_BYTES: Final = 2**30  # of changes that are trained at once and wait to be counted
BYTES: Final = 4  # of a weight


class Engine(Protocol):
    """What trains clients: `OneByOne`, `Together`, or one that does nothing."""

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Delta of each lesson, one a row."""


@final
@dataclass(kw_only=True)
class Job:
    """A client at work: on which version, for which time, on how many records, until when."""

    client: int
    version: int
    turn: int
    records: int
    arrives: float

    @property
    def lesson(self) -> "LessonOf":
        """What its change depends on."""
        return self.client, self.version, self.turn


LessonOf = tuple[int, int, int]


class Trained(NamedTuple):
    """What came of a client's work; `total`: the sum of its numbers, None: nobody added them up."""

    change: Tensor
    total: Tensor | None


@final
class AtWork:
    """All of them, by client and, until they are trained, by version.

    Args:
        engine: trains.
        teacher: draws what each client does.
        clients: how many there are.
    """

    def __init__(self, engine: Engine, teacher: Teacher, clients: int) -> None:
        self.engine, self.teacher = engine, teacher
        self.busy = np.zeros(clients, dtype=bool)
        self._jobs: dict[int, Job] = {}
        self._untrained: defaultdict[int, dict[int, Job]] = defaultdict(dict)
        self._versions: dict[int, Tensor] = {}
        self._changes: dict[LessonOf, Trained] = {}

    def __contains__(self, client: int) -> bool:
        return client in self._jobs

    def begin(self, job: Job, weights: Tensor) -> None:
        """A client sets to work on these weights, which its version has."""
        if job.lesson not in self._changes:
            self._versions.setdefault(job.version, weights)
        self._enter(job)

    def end(self, client: int) -> Job:
        """It has done what it was to do; `change_of` says what came of it, or `forget` it."""
        self.busy[client] = False
        return self._jobs.pop(client)

    def forget(self, job: Job) -> None:
        """Nobody wants to know what came of it."""
        self._changes.pop(job.lesson, None)
        self._trained([job])

    def forget_others(self) -> None:
        """Changes of clients that were expected and did not come."""
        kept = {job.lesson for job in self._jobs.values()}
        self._changes = {lesson: c for lesson, c in self._changes.items() if lesson in kept}

    def change_of(
        self, job: Job, *, before: float, expected: Callable[[], list[Job]] = list
    ) -> Trained:
        """What came of it.

        Others that arrive before this moment are trained with it, and those that are `expected`.
        """
        if job.lesson not in self._changes:
            self._train(job, before, expected())
        return self._changes.pop(job.lesson)

    def _enter(self, job: Job) -> None:
        self._jobs[job.client], self.busy[job.client] = job, True
        if job.lesson not in self._changes:
            self._untrained[job.version][job.client] = job

    def _train(self, first: Job, before: float, expected: Sequence[Job]) -> None:
        """In the order of their names; if there are too many for memory, those who come first."""
        weights = self._versions[first.version]
        waiting = self._untrained[first.version].values()
        jobs = [job for job in waiting if job.arrives < before and job is not first]
        there = {job.client for job in waiting}
        jobs += [
            job
            for job in expected
            if job.arrives < before
            and job.client not in there
            and job.client != first.client
            and job.lesson not in self._changes
        ]
        most = max(1, MOST_BYTES // (BYTES * weights.numel()))
        if len(jobs) >= most:
            jobs = heapq.nsmallest(most - 1, jobs, key=lambda job: (job.arrives, job.client))
        jobs = sorted([first, *jobs], key=lambda job: job.client)
        lessons = [self.teacher.lesson(job.client, job.turn) for job in jobs]
        changes = self.engine.changes(weights, lessons)
        # Nobody looks at these sums yet: a GPU that is at work on them need not be waited for.
        self._changes |= {
            job.lesson: Trained(change=change, total=total)
            for job, change, total in zip(jobs, changes, changes.sum(1), strict=True)
        }
        self._trained(jobs)

    def _trained(self, jobs: Sequence[Job]) -> None:
        """These need not be any more; a version goes with the last that would train on it."""
        version = jobs[0].version
        for job in jobs:
            self._untrained[version].pop(job.client, None)
        if not self._untrained[version]:
            del self._untrained[version]
            self._versions.pop(version, None)

    def state(self) -> dict[str, Any]:
        """All of it."""
        return {
            "jobs": [asdict(job) for job in self._jobs.values()],
            "versions": {str(v): w.clone() for v, w in self._versions.items()},
            "changes": [(list(of), kept.change.clone()) for of, kept in self._changes.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another process stopped."""
        self.busy[:] = False
        self._jobs.clear()
        self._untrained.clear()
        self._versions = {int(v): w for v, w in state["versions"].items()}
        self._changes = {
            (client, version, turn): Trained(change=change, total=None)
            for (client, version, turn), change in state["changes"]
        }
        for job in state["jobs"]:
            self._enter(Job(**job))
