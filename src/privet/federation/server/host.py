"""One model on the server: thread-safe, one writer, everything that counts in a journal first.

A `ModelHost` owns the one thread that changes the model. Callers of other threads are answered
from memory (`ready`), or get a future (`commit`). A commit is answered once its event is on disk.
After a crash `open` plays the journal again and is where it was, bit for bit. A fault of database
or store does the same without a restart: what it left in doubt is read again from the journal.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, final

import numpy as np

from privet.errors import FaultyEnvironment, InputError
from privet.federation.coordinator import Accept
from privet.federation.server import cards, showing
from privet.federation.server.admitting import Admission, Given, NotNow
from privet.federation.server.journal import Kind
from privet.federation.server.opening import Place, opened
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.federation.server.state import Fate, Lease, State
from privet.federation.server.store import Store
from privet.federation.server.taking import REFUSED_COUNT, Asked, Decision, Taker
from privet.federation.server.updates import packed_sum
from privet.federation.wire import Manifest, Reason
from privet.ledger import Ledger

T = TypeVar("T")
LONGEST_SLEEP = 60.0


@final
@dataclass(frozen=True)
class _Call:
    """Something else that the writer does; `at`: when it was asked, by the wall clock."""

    work: Callable[[ServedModel, float], Any]
    answer: "Future[Any]"
    at: float


@final
@dataclass(frozen=True, kw_only=True)
class RoundNow:
    """Where a round stands; moments are seconds of the model's clock."""

    round: int
    version: int
    now: float
    opened: float
    deadline: float
    asked: frozenset[str] | None


@final
class ModelHost:
    """Serves one model. Open one in one process; a second one is refused."""

    def __init__(self, plan: ModelPlan, place: Place, lease: Lease) -> None:
        self._place, self._lease = place, lease
        self._newest = plan
        self._queue: queue.SimpleQueue[Asked | _Call | None] = queue.SimpleQueue()
        self._model: ServedModel | None = None
        self._taker: Taker | None = None
        self._ledger: Ledger | None = None
        self._admission = Admission(place.state)
        self._news = threading.Condition()
        self._published = 0
        self._closed = False
        self._writer = threading.Thread(target=self._write, name=f"model-{plan.name}", daemon=True)

    @classmethod
    def open(
        cls,
        plan: ModelPlan,
        *,
        state: State,
        store: Store,
        secrets: Path,
        ledger: Ledger | None = None,
        server: str = "server",
        clock: Callable[[], float] = time.time,
        accept: Accept | None = None,
    ) -> Self:
        """Begin with a model, or go on where the last process stopped.

        Args:
            plan: of a new model; of a known one its newest revision, or one that may follow it.
            state: the server's memory.
            store: the server's artefacts.
            secrets: a private folder: keys of noise and snapshots. It must outlive the process.
            ledger: where the model is entered and charged; private models need one.
            server: name of the server; the ledger's account is `fleet:<server>`.
            clock: seconds since the epoch.
            accept: whether a new version may be published; it must answer the same each time, and
                under privacy it must not look at private records.
        """
        place = Place(
            state=state,
            store=store,
            secrets=Path(secrets),
            ledger=ledger,
            server=server,
            clock=clock,
            accept=accept,
        )
        host = cls(plan, place, state.lease(plan.name))
        host._writer.start()
        try:
            host._ask(lambda model, at: model.bring_to(at))
            host._ask(lambda model, at: model.begin_round(at))
        except BaseException:
            host.close()
            raise
        return host

    # -- what is known ----------------------------------------------------------------------

    @property
    def plan(self) -> ModelPlan:
        """The plan in force."""
        return self._model.plan if self._model is not None else self._newest

    @property
    def version(self) -> int:
        """The newest published one."""
        return self._published

    @property
    def size(self) -> int:
        """How many numbers the model has, and an update."""
        return self._served().size

    @property
    def stopped(self) -> bool:
        """Whether nothing is trained now: all rounds are over, or `stop` was called."""
        return self._served().over

    def manifest(self, version: int | None = None) -> Manifest:
        """What a version is, unsigned; default: the newest. `InputError` if it is not kept."""
        return self._served().versions.manifest(self.version if version is None else version)

    def weights_key(self, version: int) -> str:
        """Where its weights lie in the store: safetensors {weights: F32[n]}."""
        return self._served().versions.row(version).key

    def wait_for(self, version: int, seconds: float) -> int:
        """The newest version, at once if it is above `version`, else once it is or time is up."""
        with self._news:
            self._news.wait_for(lambda: self._published > version or self._closed, seconds)
        return self._published

    def standing(self) -> dict[str, Any]:
        """For console and terminal; see `showing`."""
        return showing.standing(self._served(), now=self._now(), tickets_out=self._admission.out)

    # -- phones -----------------------------------------------------------------------------

    def ready(self, device: str, *, phone: str, system: str) -> Given | NotNow:
        """A device is ready to train (RTCm): its ticket (AFTm), or why not now (DFTm)."""
        model = self._model
        if model is None:
            return NotNow(reason=Reason.CLOSED, retry_after=1.0)
        answer = self._admission.ready(model, device, phone, system, self._now())
        if self._admission.cohort_is_there(model):
            self._put(self._invite)
        return answer

    def commit(self, ticket: str, device: str, sha256: str) -> "Future[Decision]":
        """The upload lies in the store: count it, once. The answer is durable."""
        answer: Future[Decision] = Future()
        if self._closed:
            raise _gone()
        asked = Asked(ticket=ticket, device=device, sha256=sha256, at=self._now(), answer=answer)
        self._queue.put(asked)
        return answer

    def take_sum(
        self,
        total: "np.ndarray[Any, Any]",
        devices: Sequence[str],
        base_version: int,
        *,
        session: str = "",
    ) -> "Future[Decision]":
        """A sum by secure aggregation, of updates that these devices clipped themselves.

        Where one of them may not take part the whole sum is refused, with that one's reason.
        `session`: by which its line in the journal is found again.
        """
        content = packed_sum(total)

        def taken(_: ServedModel, at: float) -> Decision:
            taker = self._served_taker()
            return taker.take_sum(content, list(devices), base_version, at, session=session)

        return self._put(taken)

    def decide(self, tickets: Sequence[str], reason: Reason | None) -> "Future[None]":
        """What became of tickets whose updates went into a sum; None: they count."""
        fate = Fate.ACCEPTED if reason is None else Fate.REFUSED

        def decided(model: ServedModel, _: float) -> None:
            with self._place.state.transaction():
                for ticket in tickets:
                    self._place.state.decide(ticket, fate, reason)
                if reason is not None and tickets:
                    n = len(tickets)
                    self._place.state.add_count(model.name, REFUSED_COUNT, reason.name, n)
            self._admission.forget(tickets)

        return self._put(decided)

    def round_now(self) -> RoundNow:
        """Where the round stands."""
        model = self._served()
        with model.lock:
            coordinator = model.coordinator
            return RoundNow(
                round=coordinator.round,
                version=coordinator.version,
                now=self._now(),
                opened=coordinator.opened,
                deadline=coordinator.deadline,
                asked=coordinator.asked,
            )

    def report(self, device: str, version: int, tried: int, right: int) -> bool:
        """What a device made of a version on its own records; whether that counts."""
        plan = self.plan
        fits = plan.evaluated > 0 and tried == plan.evaluated and 0 <= right <= tried
        if not fits or not 0 <= version <= self.version:
            return False
        return self._place.state.put_report(plan.name, version, device, tried=tried, right=right)

    def tick(self) -> float:
        """End the round if its time is over; in how many seconds to call again at the latest."""
        return self._ask(self._ticked)

    # -- operators --------------------------------------------------------------------------

    def roll_back(self, to: int) -> int:
        """Publish an earlier version again, as the newest; returns its number."""

        def rolled(model: ServedModel, at: float) -> int:
            model.versions.row(to)
            model.do(Kind.ROLLED_BACK, at, to=to)
            model.begin_round(at)
            return model.coordinator.version

        return self._ask(rolled)

    def revise(self, plan: ModelPlan) -> None:
        """Another revision of the plan, from the next round on."""

        def revised(model: ServedModel, at: float) -> None:
            model.add_plan(plan)
            self._newest = plan
            model.begin_round(at)

        self._ask(revised)

    def stop(self) -> None:
        """Deny and refuse from now on; what counts already stays."""
        self._ask(lambda model, at: None if model.stopped else model.do(Kind.STOPPED, at))

    def resume(self) -> None:
        """Go on; the round begins to last anew."""

        def resumed(model: ServedModel, at: float) -> None:
            if model.stopped:
                model.do(Kind.RESUMED, at)
                model.begin_round(at)

        self._ask(resumed)

    def export(self, folder: str | Path) -> Path:
        """The newest version as a release with its trust card, in a new folder."""

        def exported(model: ServedModel, _: float) -> Path:
            return cards.export(model, Path(folder), server=self._place.server)

        return self._ask(exported)

    def close(self) -> None:
        """Answer what was asked, and let go of the model."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            if self._writer.is_alive():
                self._writer.join()
            self._lease.release()
            with self._news:
                self._news.notify_all()

    # -- the writer -------------------------------------------------------------------------

    def _write(self) -> None:
        waiting: Asked | _Call | None
        held: list[Asked | _Call | None] = []
        while (waiting := held.pop() if held else self._queue.get()) is not None:
            if isinstance(waiting, _Call):
                self._call(waiting)
                continue
            batch = [waiting]
            while len(batch) < self._most_at_once() and not held and not self._queue.empty():
                more = self._queue.get()
                if isinstance(more, Asked):
                    batch.append(more)
                else:
                    held.append(more)
            self._take(batch)
        self._let_go()

    def _most_at_once(self) -> int:
        return self._taker.at_once if self._taker is not None else 1

    def _take(self, batch: Sequence[Asked]) -> None:
        try:
            self._present()
            self._served_taker().take(batch)
        except Exception as error:
            self._doubt()
            for asked in batch:
                if not asked.answer.done():
                    asked.answer.set_exception(error)

    def _call(self, call: _Call) -> None:
        try:
            model = self._present()
            call.answer.set_result(call.work(model, call.at - model.epoch))
        except BaseException as error:
            self._doubt()
            call.answer.set_exception(error)

    def _present(self) -> ServedModel:
        """The model; read from the journal if there is none, or if it was left in doubt."""
        if self._model is None:
            if self._ledger is None and self._place.ledger is not None:
                self._ledger = Ledger(self._place.ledger.path)  # its connection is this thread's
            model = opened(self._newest, self._place.with_ledger(self._ledger), self._told)
            self._taker = Taker(model, self._admission.forget)
            self._admission.begin(model)
            self._newest = model.plans[-1]
            self._published = model.coordinator.version
            self._model = model
        return self._model

    def _doubt(self) -> None:
        if self._model is not None and self._model.in_doubt:
            self._let_go()

    def _let_go(self) -> None:
        if self._taker is not None:
            self._taker.close()
        if self._closed and self._ledger is not None:
            self._ledger.close()
        self._model, self._taker = None, None

    def _told(self) -> None:
        model = self._model
        if model is None:  # while the journal is played again
            return
        with self._news:
            self._published = model.coordinator.version
            self._news.notify_all()

    def _ticked(self, model: ServedModel, at: float) -> float:
        model.bring_to(at)
        if self._admission.cohort_is_due(model, at):
            self._invite(model, at)
        late = self._admission.expired(model, at)
        with self._place.state.transaction():
            for ticket in late:
                self._place.state.decide(ticket.ticket, Fate.REFUSED, Reason.LATE)
                self._place.state.add_count(model.name, REFUSED_COUNT, Reason.LATE.name)
        for ticket in late:
            self._place.store.delete(self._admission.key(ticket))
        if model.over:
            return LONGEST_SLEEP
        return max(0.0, min(self._admission.next_moment(model, at) - at, LONGEST_SLEEP))

    def _invite(self, model: ServedModel, at: float) -> None:
        pacing = model.invites
        if pacing is not None and pacing.size is not None:
            waiting = self._admission.waiting(model, at)
            chosen = random.SystemRandom().sample(waiting, min(pacing.size, len(waiting)))
            if chosen:
                model.do(Kind.INVITED, at, devices=sorted(chosen))

    # -- between the threads ----------------------------------------------------------------

    def _put(self, work: Callable[[ServedModel, float], T]) -> "Future[T]":
        if self._closed:
            raise _gone()
        answer: Future[T] = Future()
        self._queue.put(_Call(work, answer, self._place.clock()))
        return answer

    def _ask(self, work: Callable[[ServedModel, float], T]) -> T:
        return self._put(work).result()

    def _served(self) -> ServedModel:
        model = self._model
        if model is None:
            raise FaultyEnvironment(
                "the model cannot be served now",
                got="a fault of database or store",
                fix="try again",
            )
        return model

    def _served_taker(self) -> Taker:
        assert self._taker is not None
        return self._taker

    def _now(self) -> float:
        """Of the model's clock, which never goes back."""
        model = self._model
        if model is None:
            return 0.0
        return max(model.journal.at, self._place.clock() - model.epoch)


def _gone() -> InputError:
    return InputError("the model is not served any more", fix="open it again")


__all__ = ["Decision", "Given", "ModelHost", "NotNow"]
