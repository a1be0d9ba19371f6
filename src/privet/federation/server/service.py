"""The whole server behind its routes: its models, who may ask, and what phones are answered."""

import asyncio
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, final
from urllib.parse import quote

from privet.federation.secure_sum import Refused as NotInSum
from privet.federation.server.desk import Desk
from privet.federation.server.errors import CONFLICT, NOT_FOUND, Refused
from privet.federation.server.happenings import Happenings
from privet.federation.server.host import Given, ModelHost
from privet.federation.server.identity import Caller, Identity
from privet.federation.server.keys import ServerKeys
from privet.federation.server.limits import Buckets
from privet.federation.server.office import Office
from privet.federation.server.plan import ModelPlan
from privet.federation.server.state import Fate, State
from privet.federation.server.store import Store
from privet.federation.server.uploads import Uploads
from privet.federation.wire import (
    Accepted,
    Denied,
    Outcome,
    Ready,
    Reason,
    Register,
    Registered,
    SumStep,
)
from privet.ledger import Ledger, default_ledger_path

Opens = Callable[[ModelPlan], ModelHost]

DEVICE_RATE: Final = 20.0
ADDRESS_RATE: Final = 200.0
TOLD_RATE: Final = 5.0
HOUSEKEEPING_SECONDS: Final = 300.0
UPDATES: Final = "updates/"
ASK_AGAIN: Final = 3600.0
THREADS: Final = 32  # that wait for the database while the event loop goes on
MOST_TICKETS: Final = 100_000  # of which something is known without asking the state

LOG: Final = logging.getLogger("privet.server")


@final
class Service:
    """Everything that is asked for over HTTP; belongs to the event loop once it is started.

    Args:
        name: of the server.
        keys: its own.
        state, store: its memory and its artefacts.
        opens: makes the host of a model; closed by the service.
        device_rate, address_rate: most requests a second; 0: no limit.
    """

    def __init__(
        self,
        name: str,
        *,
        keys: ServerKeys,
        state: State,
        store: Store,
        opens: Opens,
        device_rate: float = DEVICE_RATE,
        address_rate: float = ADDRESS_RATE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.keys, self._state, self._store, self._opens = (
            name,
            keys,
            state,
            store,
            opens,
        )
        self.identity = Identity(state, keys, clock)
        self.uploads = Uploads(store)
        self.happenings = Happenings()
        self.device_limit, self.address_limit = Buckets(device_rate), Buckets(address_rate)
        self.desks: dict[str, Desk] = {}
        self.refusals: Counter[str] = Counter()
        self._told = Buckets(TOLD_RATE)
        self._models: OrderedDict[str, str] = OrderedDict()  # by ticket
        self._decided: OrderedDict[str, str] = OrderedDict()  # the same of those that are
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._planning = asyncio.Lock()
        self.office = Office(self, state)
        self.started = clock()
        self.failure: Exception | None = None  # why it could not start

    async def start(self) -> None:
        """Go on with every model that has a plan."""
        try:
            await self._start()
        except Exception as error:
            self.failure = error
            raise

    async def _start(self) -> None:
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="asked")
        asyncio.get_running_loop().set_default_executor(threads)
        for model in self._state.models():
            newest = self._state.plans(model)[-1]
            plan = ModelPlan.from_json(json.loads(newest.text))
            self._serve(await asyncio.to_thread(self._opens, plan))
        self._tasks[""] = asyncio.create_task(self._keep_house())
        self.happenings.tell("started", server=self.name, models=sorted(self.desks))

    def end_waiting(self) -> None:
        """Let go of whoever waits for news or watches, so that the server can close."""
        self.happenings.end()
        for desk in self.desks.values():
            desk.wake()

    async def close(self) -> None:
        """Answer what was asked, and let go of all models."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for desk in self.desks.values():
            await asyncio.to_thread(desk.host.close)
        self._state.close()

    # -- phones -----------------------------------------------------------------------------

    async def registered(self, message: Register) -> Registered:
        """A device of an app."""
        registered = await asyncio.to_thread(self.identity.register, message)
        self.happenings.tell(
            "registered", device=registered.device, phone=message.phone, system=message.system
        )
        return registered

    def desks_of(self, caller: Caller) -> list[Desk]:
        """The models that a device's apps have."""
        return [self.desks[name] for name in sorted(caller.models) if name in self.desks]

    def desk_for(self, caller: Caller, model: str) -> Desk:
        """A model that the device has; whether there are others is not its business."""
        if model not in caller.models or model not in self.desks:
            raise Refused(NOT_FOUND, "model-unknown", "the device's apps have no such model")
        return self.desks[model]

    async def ready(self, caller: Caller, model: str, message: Ready) -> Accepted | Denied:
        """A place in this round, or why there is none."""
        self.identity.fresh(message.sent, message.nonce, caller.name)
        if model not in caller.models or model not in self.desks:
            return self._denied(caller, model, Reason.UNSUBSCRIBED, ASK_AGAIN)
        desk = self.desks[model]
        given = await desk.ready(caller.name, message)
        if not isinstance(given, Given):
            return self._denied(caller, model, given.reason, given.retry_after)
        self._note(self._models, given.ticket, model)
        self.happenings.tell("ready", model=model, device=caller.name, round=given.round)
        return self._accepted(desk, given)

    async def commit(self, ticket: str, caller: Caller, sha256: str) -> Outcome:
        """Whether an update counts."""
        model = self._models.get(ticket) or await self._model_of(ticket)
        if model is None or model not in self.desks:
            return Outcome(accepted=False, reason=Reason.UNKNOWN)
        decision = await self.desks[model].commit(ticket, caller.name, sha256)
        if decision.final:
            self._note(self._decided, ticket, model)
        if decision.accepted:
            self.happenings.tell("accepted", model=model, device=caller.name)
        else:
            self.happenings.tell("refused", model=model, device=caller.name, reason=decision.reason)
        return Outcome(accepted=decision.accepted, reason=decision.reason)

    def require_undecided(self, ticket: str) -> None:
        """Refuse an upload that could not count any more; what is forgotten here is tidied up."""
        if ticket in self._decided:
            raise Refused(CONFLICT, "decided", "it is decided whether this update counts")

    async def sum_step(self, ticket: str, caller: Caller) -> SumStep:
        """Where a secure sum stands, to a device with a ticket."""
        sums = (await self._desk_of(ticket, caller)).sums()
        return await asyncio.to_thread(sums.step, caller.name, ticket)

    async def said_in_sum(
        self, ticket: str, caller: Caller, stage: str, body: AsyncIterator[bytes]
    ) -> None:
        """What a device says in a secure sum."""
        desk = await self._desk_of(ticket, caller)
        content = await desk.read(caller.name, body)
        try:
            await asyncio.to_thread(desk.sums().say, caller.name, ticket, stage, content)
        except NotInSum as no:
            raise Refused(CONFLICT, "not-in-sum", str(no)) from None
        desk.look()

    async def _desk_of(self, ticket: str, caller: Caller) -> Desk:
        model = self._models.get(ticket) or await self._model_of(ticket)
        return self.desk_for(caller, model or "")

    def turned_away(self, error: str, status: int) -> None:
        """A request was not granted; counted, and told unless there are very many."""
        self.refusals[error] += 1
        if not self._told.wait(error):
            self.happenings.tell("turned-away", error=error, status=status)

    def _denied(self, caller: Caller, model: str, reason: Reason, retry: float) -> Denied:
        self.happenings.tell("denied", model=model, device=caller.name, reason=reason)
        return Denied(reason=reason, retry_after=retry)

    def _accepted(self, desk: Desk, given: Given) -> Accepted:
        model, version, seconds = desk.name, given.base_version, given.seconds_left
        put_url = self._store.upload_url(given.key, seconds=seconds)
        weights = desk.host.weights_key(version)
        return Accepted(
            ticket=given.ticket,
            round=given.round,
            base_version=version,
            get_url=self._store.download_url(weights, seconds=seconds)
            or f"/v1/models/{quote(model)}/versions/{version}",
            put_url=put_url
            or self.keys.upload_url(given.key, seconds=seconds, most_bytes=given.most_bytes),
            resumable=put_url is None,
            seconds_left=seconds,
            most_bytes=given.most_bytes,
            work=desk.host.plan.work(),
            longest=desk.host.plan.longest_summed if desk.host.plan.secure_sum else None,
        )

    @staticmethod
    def _note(tickets: OrderedDict[str, str], ticket: str, model: str) -> None:
        tickets[ticket] = model
        if len(tickets) > MOST_TICKETS:
            tickets.popitem(last=False)

    async def _model_of(self, ticket: str) -> str | None:
        found = await asyncio.to_thread(self._state.ticket, ticket)
        return None if found is None else found.model

    # -- models -----------------------------------------------------------------------------

    async def plan(self, plan: ModelPlan) -> bool:
        """Serve a new model, or one that there is by a new revision; whether it is new."""
        async with self._planning:
            desk = self.desks.get(plan.name)
            if desk is not None:
                await desk.change(desk.host.revise, plan)
            else:
                self._serve(await asyncio.to_thread(self._opens, plan))
        return desk is None

    def _serve(self, host: ModelHost) -> None:
        desk = Desk(host, self._store, self.keys, self.happenings)
        if host.plan.secure_sum:
            desk.open_sums(self._state)
        self.desks[desk.name] = desk
        self._tasks[desk.name] = asyncio.create_task(desk.tick_for_ever())

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            try:
                await asyncio.to_thread(self.tidy)
            except Exception:
                LOG.exception("a fault in housekeeping")

    def tidy(self) -> None:
        """Forget nonces that are too old to matter, and uploads that nothing waits for any more.

        A phone may put an update again after it was decided, as long as its URL holds.
        """
        self.identity.forget_nonces()
        for key in self._store.list(UPDATES):
            ticket = self._state.ticket(key.rpartition("/")[2])
            if ticket is None or ticket.fate is not Fate.OUT:
                self._store.delete(key)


def opener(
    *, name: str, state: State, store: Store, secrets: Path, clock: Callable[[], float] = time.time
) -> Opens:
    """How models are opened: with the operator's ledger, which knows of those without privacy, too.

    Else a cap on the server's devices would not hold for all models together.
    """

    def opened(plan: ModelPlan) -> ModelHost:
        ledger = Ledger(default_ledger_path())
        return ModelHost.open(
            plan, state=state, store=store, secrets=secrets, ledger=ledger, server=name, clock=clock
        )

    return opened
