"""The one thread that changes a model, and the queue before it.

Commits that wait are taken together; everything else is done one after the other, in the order in
which it was asked. A fault that leaves memory and journal apart makes the model be read from the
journal again, before anything else is done with it.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar, final

from privet.errors import InputError
from privet.federation.server.opening import Place, opened
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.federation.server.state import Lease
from privet.federation.server.taking import Asked, Decision, Taker
from privet.ledger import Ledger

T = TypeVar("T")


@final
@dataclass(frozen=True)
class _Call:
    """Something else than a commit; `at`: when it was asked, by the wall clock."""

    work: Callable[[ServedModel, float], Any]
    answer: "Future[Any]"
    at: float


@final
class Writer:
    """Owns the model of a host.

    Args:
        plan: the newest that is known.
        place: where the model lives.
        lease: leave to serve it; without it nothing is done.
        begun: told of the model whenever it was read from the journal.
        told: told after a round.
        forget: told which tickets are decided.
    """

    def __init__(
        self,
        plan: ModelPlan,
        place: Place,
        lease: Lease,
        *,
        begun: Callable[[ServedModel], None],
        told: Callable[[ServedModel], None],
        forget: Callable[[Sequence[str]], None],
    ) -> None:
        self.newest = plan
        self.model: ServedModel | None = None
        self._place, self._lease = place, lease
        self._begun, self._told, self._forget = begun, told, forget
        self._taker: Taker | None = None
        self._ledger: Ledger | None = None
        self._epoch = place.clock()
        self._queue: queue.SimpleQueue[Asked | _Call | None] = queue.SimpleQueue()
        self._gate, self.closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._work, name=f"model-{plan.name}", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Of the model's clock, which never goes back."""
        model, now = self.model, self._place.clock() - self._epoch
        return max(0.0, now) if model is None else max(model.journal.at, now)

    def commit(self, ticket: str, device: str, sha256: str) -> "Future[Decision]":
        """Counted as of now, however long it waits."""
        answer: Future[Decision] = Future()
        asked = Asked(ticket=ticket, device=device, sha256=sha256, at=self.now, answer=answer)
        self._enqueue(asked)
        return answer

    def put(self, work: Callable[[ServedModel, float], T]) -> "Future[T]":
        """Do this with the model, at its moment."""
        answer: Future[T] = Future()
        self._enqueue(_Call(work, answer, self._place.clock()))
        return answer

    def ask(self, work: Callable[[ServedModel, float], T]) -> T:
        """Do this, and wait for it."""
        return self.put(work).result()

    @property
    def taker(self) -> Taker:
        """Of the writer's own thread."""
        assert self._taker is not None
        return self._taker

    def close(self) -> None:
        """Answer what was asked, and end."""
        with self._gate:
            first, self.closed = not self.closed, True
        if first:
            self._queue.put(None)
        self._thread.join()

    def _enqueue(self, waiting: Asked | _Call) -> None:
        with self._gate:
            if self.closed:
                raise InputError("the model is not served any more", fix="open it again")
            self._queue.put(waiting)

    # -- in the thread ----------------------------------------------------------------------

    def _work(self) -> None:
        waiting: Asked | _Call | None
        held: list[Asked | _Call | None] = []
        while (waiting := held.pop() if held else self._queue.get()) is not None:
            if isinstance(waiting, _Call):
                self._call(waiting)
                continue
            batch, most = [waiting], self._taker.at_once if self._taker is not None else 1
            while len(batch) < most and not held and not self._queue.empty():
                more = self._queue.get()
                if isinstance(more, Asked):
                    batch.append(more)
                else:
                    held.append(more)
            self._take(batch)
        self._let_go()
        if self._ledger is not None:
            self._ledger.close()

    def _take(self, batch: Sequence[Asked]) -> None:
        try:
            self._present()
            self.taker.take(batch)
        except BaseException as error:
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
        self._lease.require()
        if self.model is None:
            if self._ledger is None and self._place.ledger is not None:
                self._ledger = Ledger(self._place.ledger.path)  # its connection is this thread's
            model = opened(self.newest, self._place.with_ledger(self._ledger), self._after_a_round)
            self._taker = Taker(model, self._forget)
            self.newest, self._epoch = model.plans[-1], model.epoch
            self._begun(model)
            self.model = model
        return self.model

    def _after_a_round(self) -> None:
        if self.model is not None:  # else the journal is being played again
            self._told(self.model)

    def _doubt(self) -> None:
        if self.model is not None and self.model.in_doubt:
            self._let_go()

    def _let_go(self) -> None:
        if self._taker is not None:
            self._taker.close()
        self.model, self._taker = None, None
