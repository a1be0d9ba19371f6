"""One model on the server: thread-safe, one writer, everything that counts in a journal first.

A `ModelHost` owns the one thread that changes the model. Callers of other threads are answered
from memory (`ready`), or get a future (`commit`). A commit is answered once its event is on disk.
After a crash `open` plays the journal again and is where it was, bit for bit. A fault of database
or store does the same without a restart: what it left in doubt is read again from the journal.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from privet.errors import FaultyEnvironment
from privet.federation.coordinator import Accept
from privet.federation.server import cards, showing
from privet.federation.server.admitting import Admission, Given, NotNow
from privet.federation.server.journal import Kind
from privet.federation.server.opening import Place
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.federation.server.state import Fate, Lease, State, Ticket
from privet.federation.server.store import Store
from privet.federation.server.taking import REFUSED_COUNT, Decision
from privet.federation.server.updates import packed_sum
from privet.federation.server.writer import Writer
from privet.federation.wire import Manifest, Reason
from privet.ledger import Ledger

LONGEST_SLEEP: Final = 60.0


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
        self._admission = Admission(place.state)
        self._news = threading.Condition()
        self._published = 0
        self._writer = Writer(
            plan,
            place,
            lease,
            begun=self._begun,
            told=self._told,
            forget=self._admission.forget,
        )

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
        try:
            host._writer.ask(lambda model, at: model.bring_to(at))
            host._writer.ask(lambda model, at: model.begin_round(at))
        except BaseException:
            host.close()
            raise
        return host

    # -- what is known ----------------------------------------------------------------------

    @property
    def plan(self) -> ModelPlan:
        """The plan in force."""
        model = self._writer.model
        return model.plan if model is not None else self._writer.newest

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
            self._news.wait_for(lambda: self._published > version or self._writer.closed, seconds)
        return self._published

    def standing(self) -> dict[str, Any]:
        """For console and terminal; see `showing`."""
        return showing.standing(
            self._served(), now=self._writer.now, tickets_out=self._admission.out
        )

    # -- phones -----------------------------------------------------------------------------

    def ready(self, device: str, *, phone: str, system: str) -> Given | NotNow:
        """A device is ready to train (RTCm): its ticket (AFTm), or why not now (DFTm)."""
        model = self._writer.model
        if model is None:
            return NotNow(reason=Reason.CLOSED, retry_after=1.0)
        answer = self._admission.ready(model, device, phone, system, self._writer.now)
        if self._admission.cohort_is_there(model):
            self._writer.put(self._invite)
        return answer

    def commit(self, ticket: str, device: str, sha256: str) -> "Future[Decision]":
        """The upload lies in the store: count it, once. The answer is durable."""
        return self._writer.commit(ticket, device, sha256)

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
            taker = self._writer.taker
            return taker.take_sum(content, list(devices), base_version, at, session=session)

        return self._writer.put(taken)

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

        return self._writer.put(decided)

    def round_now(self) -> RoundNow:
        """Where the round stands."""
        model = self._served()
        with model.lock:
            coordinator = model.coordinator
            return RoundNow(
                round=coordinator.round,
                version=coordinator.version,
                now=self._writer.now,
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
        return self._writer.ask(self._ticked)

    # -- operators --------------------------------------------------------------------------

    def roll_back(self, to: int) -> int:
        """Publish an earlier version again, as the newest; returns its number."""

        def rolled(model: ServedModel, at: float) -> int:
            model.versions.weights(to)  # what cannot be read must not get into the journal
            model.do(Kind.ROLLED_BACK, at, to=to)
            model.begin_round(at)
            return model.coordinator.version

        return self._writer.ask(rolled)

    def revise(self, plan: ModelPlan) -> None:
        """Another revision of the plan, from the next round on."""

        def revised(model: ServedModel, at: float) -> None:
            model.add_plan(plan)
            self._writer.newest = plan
            model.begin_round(at)

        self._writer.ask(revised)

    def stop(self) -> None:
        """Deny and refuse from now on; what counts already stays."""
        self._writer.ask(lambda model, at: None if model.stopped else model.do(Kind.STOPPED, at))

    def resume(self) -> None:
        """Go on; the round begins to last anew."""

        def resumed(model: ServedModel, at: float) -> None:
            if model.stopped:
                model.do(Kind.RESUMED, at)
                model.begin_round(at)

        self._writer.ask(resumed)

    def export(self, folder: str | Path) -> Path:
        """The newest version as a release with its trust card, in a new folder."""

        def exported(model: ServedModel, _: float) -> Path:
            return cards.export(model, Path(folder), server=self._place.server)

        return self._writer.ask(exported)

    def close(self) -> None:
        """Answer what was asked, and let go of the model."""
        if not self._writer.closed:
            self._writer.close()
            self._lease.release()
            with self._news:
                self._news.notify_all()

    # -- in the writer's thread -------------------------------------------------------------

    def _begun(self, model: ServedModel) -> None:
        self._admission.begin(model)
        self._published = model.coordinator.version

    def _told(self, model: ServedModel) -> None:
        with self._news:
            self._published = model.coordinator.version
            self._news.notify_all()

    def _ticked(self, model: ServedModel, at: float) -> float:
        model.bring_to(at)
        if self._admission.cohort_is_due(model, at):
            self._invite(model, at)
        self._end_tickets(model, self._admission.expired(model, at))
        if model.over:
            return LONGEST_SLEEP
        return max(0.0, min(self._admission.next_moment(model, at) - at, LONGEST_SLEEP))

    def _end_tickets(self, model: ServedModel, late: Sequence[Ticket]) -> None:
        if late:
            with self._place.state.transaction():
                for ticket in late:
                    self._place.state.decide(ticket.ticket, Fate.REFUSED, Reason.LATE)
                n = len(late)
                self._place.state.add_count(model.name, REFUSED_COUNT, Reason.LATE.name, n)
        for ticket in late:
            self._place.store.delete(self._admission.key(ticket))

    def _invite(self, model: ServedModel, at: float) -> None:
        pacing = model.invites
        if pacing is not None and pacing.size is not None:
            waiting = self._admission.waiting(model, at)
            chosen = random.SystemRandom().sample(waiting, min(pacing.size, len(waiting)))
            if chosen:
                model.do(Kind.INVITED, at, devices=sorted(chosen))

    def _served(self) -> ServedModel:
        model = self._writer.model
        if model is None:
            raise FaultyEnvironment(
                "the model cannot be served now",
                got="a fault of database or store",
                fix="try again",
            )
        return model


__all__ = ["Decision", "Given", "ModelHost", "NotNow"]
