"""A federation on one machine, by a virtual clock.

    a heap of events, earliest first:
        round over      the coordinator closes it; all who can are told and may ask
        phone free      it can train from now on; it asks
        upload          an update arrives: taken, or refused and wasted
    between events nothing happens, so no time passes on this machine for phones that sleep

What a phone does with the answer: it works out when it would be done, by its speed and its links.
If its charging ends before, the work is lost at that moment (`lost`); if the round would be over
before, it does not begin (`too slow`), as FLSys' Start-To-Train decides; a share of the others
drops out without a word (`dropped`). Each phone tries once a round. Where participation is capped
and rounds have a deadline, phones spread their steps: each has a first round of its own, by a
public draw, and then rests for as many rounds as its cap asks for if it is to last to the end.

Cost: of an event, the logarithm of how many are pending; of a round, a few vector operations over
all phones; never a walk over all who are at work.

All draws depend on the seed, the client's key and its turn. `state` is the whole of a simulation:
restored, it goes on to the same end.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.errors import InputError
from privet.federation.at_work import AtWork, Engine, Job
from privet.federation.availability import Availability
from privet.federation.coordinator import Answer, Closed, Coordinator
from privet.federation.draws import Kind, drawn_from, share_of_each
from privet.federation.local_work import Lesson, Teacher
from privet.federation.pacing import Cohort, Deadline
from privet.federation.traces import Phone
from privet.federation.update import Update
from privet.privacy.participation import Capped, Sampled
from privet.privacy.randomness import SecretStream

CLOSE, FREE, UPLOAD = 0, 1, 2  # at one moment: first the deadline, then who comes
DRAW_LATE: Final = 60.0  # seconds over which phones answer a notification
BULK: Final = 8  # a heap of so many times what comes is added to, a smaller one is made anew


Clients = NDArray[np.int64]


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
        _require_secret_coins(coordinator, sampling)
        self.coordinator, self.phones, self.seed = coordinator, phones, seed
        self.sampling = sampling
        self.work = AtWork(engine, teacher, len(phones))
        self.weather = weather or Weather()
        self.now = 0.0
        self.tally = Tally()
        self._names = [str(client) for client in range(len(phones))]
        self._there = Availability(phones)
        self._size = 4 * coordinator.weights.numel()
        self._heap: list[tuple[float, int, int, int]] = []
        self._order = 0
        self._turns = [0] * len(phones)
        self._tried = [-1] * len(phones)  # in which round each set to work last
        self._stride = _stride_of(coordinator)
        self._rests = self._first_turns()  # until which round each keeps its cap for later
        self._instant = [phone == Phone() for phone in phones]  # always there, and takes no time
        self._expected: list[Job] = []
        self._begun = False
        self._first_stretch = 0  # the place of stretches among events of the same moment

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
            self._first_stretch = self._order + 1
            self._order += len(self._there)
        closed = self._next()
        while closed is None:
            closed = self._next()
        self._open()
        return closed

    def _next(self) -> Closed | None:
        """The next event; a round that ends with it."""
        self.now, kind, client = self._event()
        if kind == CLOSE:
            # Of a round that ended before its time the deadline has no meaning any more.
            return self.coordinator.advance(self.now) if client == self.coordinator.round else None
        if kind == FREE:
            self._ask(client)
            return None
        return self._upload(client)

    def _event(self) -> tuple[float, int, int]:
        """When, what and whose: the first of what is pending and of the stretches that begin."""
        begins = self._there.peek()
        if begins is not None:
            start, number = begins
            if not self._heap or (start, FREE, self._first_stretch + number) < self._heap[0][:3]:
                return start, FREE, self._there.take()
        if not self._heap:
            raise InputError(
                "no phone will ever answer again, and rounds are left",
                got=f"round {self.coordinator.round} of {self.coordinator.rounds}",
                fix="longer traces, more clients, or a deadline",
            )
        time, kind, _, client = heapq.heappop(self._heap)
        return time, kind, client

    def _open(self) -> None:
        """A round begins: its deadline, who is invited, and the word to all who can."""
        coordinator = self.coordinator
        if coordinator.stopped:
            return
        if np.isfinite(coordinator.deadline):
            self._push(coordinator.deadline, CLOSE, coordinator.round)
        told = self._told()
        keys = self.work.teacher.keys[told]
        shares = share_of_each(self.seed, Kind.DELAY, keys, coordinator.round)
        asking = self.now + shares * self.weather.late
        self._expect(told, asking)
        self._push_all(asking, told)

    def _expect(self, told: Clients, asking: NDArray[np.float64]) -> None:
        """Who is sure to train on this version: phones that take no time, and will be let in."""
        self.work.forget_others()
        number, version = self.coordinator.round, self.coordinator.version
        self._expected = [
            Job(client=client, version=version, turn=self._turns[client], records=0, arrives=time)
            for client, time in zip(told.tolist(), asking.tolist(), strict=True)
            if self._instant[client]
            and not self.coordinator.rule.stale
            and self._rests[client] <= number
            and self.coordinator.ask(self._names[client]) is Answer.ACCEPTED
            and not self._drops_out(client, self._turns[client])
        ]

    def _still_expected(self) -> list[Job]:
        """Those that have not set to work yet."""
        return [job for job in self._expected if self._turns[job.client] == job.turn]

    def _told(self) -> Clients:
        """The clients that learn of the round: all that are free, or those who are invited."""
        pacing, free = self.coordinator.rule.pacing, self._all_free()
        if not isinstance(pacing, Cohort):
            return np.flatnonzero(free)
        chosen = self._sampled(pacing, free)
        self.coordinator.invite({self._names[client] for client in chosen})
        return chosen[free[chosen]]

    def _sampled(self, pacing: Cohort, free: NDArray[np.bool_]) -> Clients:
        number, n = self.coordinator.round, len(self.phones)
        if pacing.rate is not None and self.sampling is not None:
            coins = self.sampling.uniform(n, purpose="cohort", step=number)
            return np.flatnonzero(coins < pacing.rate)
        draw = drawn_from(self.seed, Kind.COHORT, number)
        if pacing.rate is not None:
            return np.flatnonzero(draw.random(n) < pacing.rate)
        assert pacing.size is not None
        # A server that waits for a cohort asks those who are there, as far as there are so many.
        chosen = draw.permutation(np.flatnonzero(free))[: pacing.size]
        if len(chosen) < pacing.size:
            away = draw.permutation(np.flatnonzero(~free))
            chosen = np.concatenate([chosen, away[: pacing.size - len(chosen)]])
        return np.sort(chosen)

    def _all_free(self) -> NDArray[np.bool_]:
        self._there.pass_to(self.now)
        return np.asarray((self._there.until > self.now) & ~self.work.busy)

    def _free(self, client: int) -> bool:
        return client not in self.work and self._until(client) > self.now

    def _until(self, client: int) -> float:
        """When the stretch ends in which the phone is now; the past if it is in none."""
        self._there.pass_to(self.now)
        return float(self._there.until[client])

    def _ask(self, client: int) -> None:
        now = self.coordinator.round
        if not self._free(client) or self._tried[client] == now or self._rests[client] > now:
            return
        if self.coordinator.ask(self._names[client]) is not Answer.ACCEPTED:
            return
        self._begin(client)

    def _begin(self, client: int) -> None:
        """The phone sets to work, if it can be done in time."""
        turn = self._turns[client]
        records = self.work.teacher.records(client, turn)
        self._tried[client] = self.coordinator.round
        done = self.now + self.phones[client].seconds(records, self._size)
        if done >= self.coordinator.deadline and not self.coordinator.rule.stale:
            self.tally.add("too slow", 0)
            return
        self._turns[client] += 1
        if done > self._until(client):
            self.tally.add("lost", records)
            return
        if self._drops_out(client, turn):
            self.tally.add("dropped", records)
            return
        version, weights = self.coordinator.version, self.coordinator.weights
        job = Job(client=client, version=version, turn=turn, records=records, arrives=done)
        self.work.begin(job, weights)
        self._push(done, UPLOAD, client)

    def _first_turns(self) -> list[int]:
        """Each phone's by a draw of its own."""
        if self._stride == 1:
            return [0] * len(self.phones)
        keys = self.work.teacher.keys.tolist()
        draws = (drawn_from(self.seed, Kind.TURN, key) for key in keys)
        return [int(draw.integers(self._stride)) for draw in draws]

    def _drops_out(self, client: int, turn: int) -> bool:
        share = self.weather.dropout
        key = int(self.work.teacher.keys[client])
        return share > 0 and drawn_from(self.seed, Kind.DROPOUT, key, turn).random() < share

    def _upload(self, client: int) -> Closed | None:
        job = self.work.end(client)
        answer = self.coordinator.would_take(self._names[client], job.version)
        if answer is not Answer.ACCEPTED:
            self.work.forget(job)
            self.tally.add(answer.value, job.records)
            self._ask(client)
            return None
        end = self.coordinator.deadline if not self.coordinator.rule.stale else np.inf
        done = self.work.change_of(job, before=end, expected=self._still_expected)
        update = Update(
            client=self._names[client],
            base_version=job.version,
            change=done.change,
            total=done.total,
        )
        self._rests[client] = self.coordinator.round + self._stride
        answer, closed = self.coordinator.receive(update, self.now)
        assert answer is Answer.ACCEPTED
        self.tally.add("taken", job.records)
        return closed

    def _push(self, time: float, kind: int, client: int) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, kind, self._order, client))

    def _push_all(self, times: NDArray[np.float64], clients: Clients) -> None:
        """Phones that will be free, in the order in which they stand here."""
        orders = range(self._order + 1, self._order + 1 + len(clients))
        self._order += len(clients)
        events = zip(times.tolist(), repeat(FREE), orders, clients.tolist(), strict=False)
        if len(clients) * BULK < len(self._heap):
            for event in events:
                heapq.heappush(self._heap, event)
        else:
            self._heap.extend(events)
            heapq.heapify(self._heap)

    def state(self) -> dict[str, Any]:
        """All of it, between two events."""
        return {
            "coordinator": self.coordinator.state(),
            "begun": self._begun,
            "now": self.now,
            "heap": list(self._heap),
            "order": self._order,
            "first_stretch": self._first_stretch,
            "stretches_told": self._there.told,
            "turns": list(self._turns),
            "tried": list(self._tried),
            "rests": list(self._rests),
            "expected": [asdict(job) for job in self._expected],
            "work": self.work.state(),
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
        self._rests = list(state["rests"])
        self._first_stretch = int(state["first_stretch"])
        self._there = Availability(self.phones)
        self._there.told = int(state["stretches_told"])
        self._expected = [Job(**job) for job in state["expected"]]
        self.work.restore(state["work"])
        self.tally = Tally(
            jobs=Counter(state["jobs_by_fate"]), records=Counter(state["records_by_fate"])
        )


def _stride_of(coordinator: Coordinator) -> int:
    """Rounds from one update of a phone to its next, where a cap is to last for all rounds.

    Without it all phones that are free would spend their caps at once, and be gone.
    """
    cap = None if coordinator.privacy is None else coordinator.privacy.participation
    if not isinstance(cap, Capped) or not isinstance(coordinator.rule.pacing, Deadline):
        return 1
    return max(1, cap.apart, coordinator.rounds // cap.times)


def _require_secret_coins(coordinator: Coordinator, sampling: SecretStream | None) -> None:
    privacy = coordinator.privacy
    if privacy is not None and isinstance(privacy.participation, Sampled) and sampling is None:
        raise InputError(
            "sampling is accounted, and everybody can draw the coins again",
            got="a public seed",
            fix="give a secret stream to sample from",
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
