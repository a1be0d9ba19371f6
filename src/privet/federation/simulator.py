"""A federation on one machine, by a virtual clock.

    a heap of events, earliest first:
        round over      the coordinator closes it; all who can are told and may ask
        phone free      it can train from now on; it asks
        upload          an update arrives: taken, or refused and wasted
    between events nothing happens, so no time passes on this machine for phones that sleep

What a phone does with the answer: it works out when it would be done, by its speed and its links.
If its charging ends before, the work is lost at that moment (`lost`); if the round would be over
before, it does not begin (`too slow`), as FLSys' Start-To-Train decides; a share of the others
drops out without a word (`dropped`). Each phone tries once a round.

Training happens when the first update of a version arrives, for all phones at once that are at work
on this version and will arrive before the round's deadline; what a change is depends on the
version, the client and its turn alone, so it does not matter when it is computed, and with whom.

All draws depend on the seed, the client and its turn. `state` is the whole of a simulation:
restored, it goes on to the same end.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, final

import numpy as np
import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.coordinator import Answer, Closed, Coordinator
from privet.federation.local_work import Lesson, Teacher
from privet.federation.pacing import Cohort
from privet.federation.traces import Phone
from privet.federation.update import Update
from privet.privacy.randomness import SecretStream

CLOSE, FREE, UPLOAD = 0, 1, 2  # at one moment: first the deadline, then who comes
DRAW_LATE: Final = 60.0  # seconds over which phones answer a notification


class Engine(Protocol):
    """What trains clients: `OneByOne`, `Together`, or one that does nothing."""

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Delta of each lesson, one a row."""


@final
@dataclass(kw_only=True)
class Job:
    """A phone at work."""

    client: int
    version: int
    turn: int
    arrives: float


@final
@dataclass(frozen=True, kw_only=True)
class Weather:
    """What goes wrong beside the traces.

    Attributes:
        dropout: share of phones that begin and are never heard of again.
        late: seconds over which those who are told of a round ask.
    """

    dropout: float = 0.0
    late: float = DRAW_LATE

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise InputError("bad dropout", got=self.dropout, expected="0 <= share < 1")
        if not self.late >= 0:
            raise InputError("bad delay of an answer", got=self.late, expected=">= 0 seconds")


@final
@dataclass(kw_only=True)
class Tally:
    """What became of the work of clients, in records trained on."""

    jobs: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)

    def add(self, fate: str, records: int) -> None:
        """One more piece of work."""
        self.jobs[fate] += 1
        self.records[fate] += records

    @property
    def wasted(self) -> float:
        """The share of records whose training led nowhere."""
        done = sum(self.records.values())
        return 1.0 - self.records["taken"] / done if done else 0.0


@final
class Simulator:
    """Drives a coordinator with phones.

    Args:
        coordinator: the rounds.
        engine: trains.
        teacher: draws what each client does.
        phones: one for each client.
        seed: of what phones do; sampling by the server is drawn from `sampling`.
        weather: what goes wrong.
        sampling: secret stream of the server that samples under privacy; else None.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        engine: Engine,
        teacher: Teacher,
        phones: Sequence[Phone],
        *,
        seed: int,
        weather: Weather | None = None,
        sampling: SecretStream | None = None,
    ) -> None:
        self.coordinator, self.engine, self.teacher = coordinator, engine, teacher
        self.phones, self.seed, self.sampling = phones, seed, sampling
        self.weather = weather or Weather()
        self.now = 0.0
        self.tally = Tally()
        self._names = [str(client) for client in range(len(phones))]
        self._starts = [[start for start, _ in phone.stretches] for phone in phones]
        self._size = 4 * coordinator.weights.numel()
        self._heap: list[tuple[float, int, int, int]] = []
        self._order = 0
        self._turns = [0] * len(phones)
        self._tried = [-1] * len(phones)  # in which round each set to work last
        self._jobs: dict[int, Job] = {}
        self._versions: dict[int, Tensor] = {}
        self._changes: dict[int, Tensor] = {}
        self._begun = False

    def run(self, watch: Callable[[Closed], None] | None = None) -> None:
        """Until the last round is over; `watch` is told of each."""
        while not self.coordinator.stopped:
            closed = self.next_round()
            if watch is not None:
                watch(closed)

    def next_round(self) -> Closed:
        """Until the round that is open is over."""
        if not self._begun:
            self._begun = True
            self._open()
            for client, phone in enumerate(self.phones):
                for start, _ in phone.stretches:
                    self._push(start, FREE, client)
        closed = self._next()
        while closed is None:
            closed = self._next()
        self._open()
        return closed

    def _next(self) -> Closed | None:
        """The next event; a round that ends with it."""
        if not self._heap:
            raise InputError(
                "no phone will ever answer again, and rounds are left",
                got=f"round {self.coordinator.round} of {self.coordinator.rounds}",
                fix="longer traces, more clients, or a deadline",
            )
        self.now, kind, _, client = heapq.heappop(self._heap)
        if kind == CLOSE:
            # Of a round that ended before its time the deadline has no meaning any more.
            return self.coordinator.advance(self.now) if client == self.coordinator.round else None
        if kind == FREE:
            self._ask(client)
            return None
        return self._upload(client)

    def _open(self) -> None:
        """A round begins: its deadline, who is invited, and the word to all who can."""
        coordinator = self.coordinator
        if coordinator.stopped:
            return
        self._forget_versions()
        if np.isfinite(coordinator.deadline):
            self._push(coordinator.deadline, CLOSE, coordinator.round)
        told = self._told()
        draw = np.random.default_rng((self.seed, 1, coordinator.round))
        delays = draw.random(len(self.phones)) * self.weather.late
        for client in told:
            self._push(self.now + float(delays[client]), FREE, client)

    def _told(self) -> list[int]:
        """The clients that learn of the round: all that are free, or those who are invited."""
        pacing = self.coordinator.rule.pacing
        if not isinstance(pacing, Cohort):
            return [client for client in range(len(self.phones)) if self._free(client)]
        chosen = self._sampled(pacing)
        self.coordinator.invite({self._names[client] for client in chosen})
        return [client for client in chosen if self._free(client)]

    def _sampled(self, pacing: Cohort) -> list[int]:
        number, n = self.coordinator.round, len(self.phones)
        if pacing.rate is not None and self.sampling is not None:
            coins = self.sampling.uniform(n, purpose="cohort", step=number)
            return [int(client) for client in np.flatnonzero(coins < pacing.rate)]
        draw = np.random.default_rng((self.seed, 2, number))
        if pacing.rate is not None:
            return [int(client) for client in np.flatnonzero(draw.random(n) < pacing.rate)]
        assert pacing.size is not None
        # A server that waits for a cohort asks those who are there, as far as there are so many.
        there = [client for client in range(n) if self._free(client)]
        away = [client for client in range(n) if not self._free(client)]
        order = [*draw.permutation(there), *draw.permutation(away)]
        return sorted(int(client) for client in order[: pacing.size])

    def _free(self, client: int) -> bool:
        return client not in self._jobs and self._until(client) > self.now

    def _until(self, client: int) -> float:
        """When the stretch ends in which the phone is now; the past if it is in none."""
        place = bisect_right(self._starts[client], self.now) - 1
        return self.phones[client].stretches[place][1] if place >= 0 else -np.inf

    def _ask(self, client: int) -> None:
        if not self._free(client) or self._tried[client] == self.coordinator.round:
            return
        if self.coordinator.ask(self._names[client]) is not Answer.ACCEPTED:
            return
        self._begin(client)

    def _begin(self, client: int) -> None:
        """The phone sets to work, if it can be done in time."""
        turn, work = self._turns[client], self.teacher.work
        self._tried[client] = self.coordinator.round
        records = work.epochs * self.teacher.records(client)
        done = self.now + self.phones[client].seconds(records, self._size)
        if done >= self.coordinator.deadline and not self.coordinator.rule.stale:
            self.tally.add("too slow", 0)
            return
        self._turns[client] += 1
        version = self.coordinator.version
        if done > self._until(client):
            self.tally.add("lost", records)
            return
        if np.random.default_rng((self.seed, 3, client, turn)).random() < self.weather.dropout:
            self.tally.add("dropped", records)
            return
        self._jobs[client] = Job(client=client, version=version, turn=turn, arrives=done)
        self._versions.setdefault(version, self.coordinator.weights)
        self._push(done, UPLOAD, client)

    def _upload(self, client: int) -> Closed | None:
        job = self._jobs.pop(client)
        records = self.teacher.work.epochs * self.teacher.records(client)
        answer = self.coordinator.would_take(self._names[client], job.version)
        if answer is not Answer.ACCEPTED:
            self._changes.pop(client, None)
            self.tally.add(answer.value, records)
            self._ask(client)
            return None
        update = Update(
            client=self._names[client], base_version=job.version, change=self._change_of(job)
        )
        answer, closed = self.coordinator.receive(update, self.now)
        assert answer is Answer.ACCEPTED
        self.tally.add("taken", records)
        if closed is None:
            self._ask(client)  # under a buffer it may begin again at once
        return closed

    def _change_of(self, job: Job) -> Tensor:
        if job.client not in self._changes:
            self._train(job)
        return self._changes.pop(job.client)

    def _train(self, first: Job) -> None:
        """All who are at work on this version and will be in time, in the order of their names."""
        end = self.coordinator.deadline if not self.coordinator.rule.stale else np.inf
        others = [
            job
            for job in self._jobs.values()
            if job.version == first.version
            and job.arrives < end
            and job.client not in self._changes
        ]
        jobs = sorted([first, *others], key=lambda job: job.client)
        lessons = [self.teacher.lesson(job.client, job.turn) for job in jobs]
        changes = self.engine.changes(self._versions[first.version], lessons).cpu()
        self._changes |= {job.client: change for job, change in zip(jobs, changes, strict=True)}

    def _forget_versions(self) -> None:
        needed = {job.version for job in self._jobs.values()}
        self._versions = {v: w for v, w in self._versions.items() if v in needed}

    def _push(self, time: float, kind: int, client: int) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, kind, self._order, client))

    def state(self) -> dict[str, Any]:
        """All of it, between two events."""
        return {
            "coordinator": self.coordinator.state(),
            "begun": self._begun,
            "now": self.now,
            "heap": list(self._heap),
            "order": self._order,
            "turns": list(self._turns),
            "tried": list(self._tried),
            "jobs": [asdict(job) for job in self._jobs.values()],
            "versions": {str(v): w.clone() for v, w in self._versions.items()},
            "changes": {str(client): c.clone() for client, c in self._changes.items()},
            "jobs_by_fate": dict(self.tally.jobs),
            "records_by_fate": dict(self.tally.records),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another process stopped."""
        self.coordinator.restore(state["coordinator"])
        self.now, self._order = float(state["now"]), int(state["order"])
        self._begun = bool(state["begun"])
        self._heap = [tuple(event) for event in state["heap"]]
        heapq.heapify(self._heap)
        self._turns, self._tried = list(state["turns"]), list(state["tried"])
        self._jobs = {job["client"]: Job(**job) for job in state["jobs"]}
        self._versions = {int(v): w for v, w in state["versions"].items()}
        self._changes = {int(client): c for client, c in state["changes"].items()}
        self.tally = Tally(
            jobs=Counter(state["jobs_by_fate"]), records=Counter(state["records_by_fate"])
        )


@final
class Idle:
    """An engine that does nothing, for measuring what the rest costs."""

    def __init__(self, size: int) -> None:
        self.size = size

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        """Zero for everyone."""
        del weights
        return torch.zeros(1, self.size).expand(len(lessons), -1)
