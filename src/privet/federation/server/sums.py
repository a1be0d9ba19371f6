"""A model's secure sums: one for each round, from the devices that have trained.

    JOINING   devices whose update is ready say so; the roster is fixed when all that were asked
              have, or when a part of the round's time is over; it is never below the quorum
     |        `secure_sum.server`: keys, shares, inputs, agreement, unmasking; each stage ends when
     |        all have answered, or when its time is over
    OVER      the sum is in the journal, or given up; every ticket is decided

At the end of each stage the state is written to the store, so that a killed server goes on where
the stage began: phones are asked again and say the same again. Nothing in it is secret: it is what
the server was told, and the masked sum.

The roster's keys are those that devices registered with. Guarantee A of `secure_sum` is what phones
get; B would need keys that phones have from elsewhere.
"""

import base64
import json
import math
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, final

from privet.errors import InputError
from privet.federation.pacing import Cohort
from privet.federation.secure_sum import GivenUp, SecureServer, Stage, Terms, codec, messages
from privet.federation.secure_sum.server import ORDER
from privet.federation.secure_sum.terms import LEAST_THRESHOLD
from privet.federation.server.host import ModelHost, RoundNow
from privet.federation.server.journal import Kind
from privet.federation.server.state import Fate, State, Ticket
from privet.federation.server.store import Missing, Store
from privet.federation.wire import Outcome, Reason, SumStep

JOINING: Final = "joining"
OVER: Final = "over"
JOINING_SHARE: Final = 0.6  # of a round's time, after which the roster is fixed without the others
LONGEST_STAGE: Final = 60.0
ASK_AGAIN: Final = 0.25
SAID_IN: Final[dict[str, type[messages.FromClient]]] = {
    Stage.KEYS: messages.Advertise,
    Stage.SHARES: messages.Shares,
    Stage.INPUTS: messages.Masked,
    Stage.AGREEMENT: messages.Agree,
    Stage.UNMASKING: messages.Unmask,
}


@dataclass(kw_only=True)
class _Room:
    """What a round's sum has come to; `stage_ends` by the model's clock."""

    round: int
    joined: dict[str, str] = field(default_factory=dict)  # tickets by device
    server: SecureServer | None = None
    stage_ends: float = math.inf
    over: bool = False


@final
class Sums:
    """The secure sums of one model; safe from any thread."""

    def __init__(self, host: ModelHost, state: State, store: Store) -> None:
        self._host, self._state, self._store = host, state, store
        self._key = f"sums/{host.plan.name}"
        self._lock = threading.Lock()
        self._room = _Room(round=host.round_now().round)
        self._restore()

    def step(self, device: str, name: str) -> SumStep:
        """Join, or hear what is to be said next; to ask again changes nothing."""
        with self._lock:
            now = self._tick()
            ticket = self._ticket(device, name)
            if ticket.fate is not Fate.OUT:
                return _over(Outcome(accepted=ticket.fate is Fate.ACCEPTED, reason=ticket.reason))
            if ticket.round != now.round or self._too_late(device):
                self._host.decide([name], Reason.LATE).result()
                return _over(Outcome(accepted=False, reason=Reason.LATE))
            self._room.joined[device] = name
            self._tick()
            return self._said_to(device)

    def say(self, device: str, name: str, stage: str, content: bytes) -> None:
        """What a device says in a stage.

        Raises:
            secure_sum.Refused: it does not fit, or not now.
        """
        with self._lock:
            self._ticket(device, name)
            self._tick()
            server, kind = self._room.server, SAID_IN.get(stage)
            if server is None or kind is None or self._room.over:
                raise _unknown()
            message = codec.from_bytes(kind, content)
            if message.sender != device:
                raise InputError("a message in another device's name")
            server.take(message)
            self._tick()

    def tick(self) -> None:
        """End what is over by the clock."""
        with self._lock:
            self._tick()

    @property
    def most_bytes(self) -> int:
        """How long a message of a device may be."""
        vector = self._host.size * 8
        return 2 * vector + 2**20

    # -- how it goes on ---------------------------------------------------------------------

    def _tick(self) -> RoundNow:
        now = self._host.round_now()
        if now.round != self._room.round:
            self._leave()
            self._room = _Room(round=now.round)
        room = self._room
        if room.server is None and self._roster_is_there(now):
            self._begin(now)
        while (server := room.server) is not None and not room.over:
            waiting = server.stage in ORDER and server.here != server.expected
            if waiting and now.now < room.stage_ends:
                break
            self._close(server, now)
        return now

    def _roster_is_there(self, now: RoundNow) -> bool:
        joined, pacing = set(self._room.joined), self._host.plan.rule.pacing
        least = pacing.least if isinstance(pacing, Cohort) else 0
        if len(joined) < max(LEAST_THRESHOLD, least):
            return False
        all_here = now.asked is not None and joined >= now.asked
        return all_here or now.now >= now.opened + JOINING_SHARE * (now.deadline - now.opened)

    def _begin(self, now: RoundNow) -> None:
        roster = {name: self._device_key(name) for name in self._room.joined}
        plan = self._host.plan
        self._room.server = SecureServer(
            Terms.for_cohort(
                roster,
                model=plan.name,
                round=now.round,
                base_version=now.version,
                size=self._host.size,
                longest=plan.longest_summed,
            )
        )
        self._staged(now)

    def _staged(self, now: RoundNow) -> None:
        """A stage begins: it has its part of the time that is left, and is on disk."""
        room = self._room
        assert room.server is not None
        room.stage_ends = self._end_of_stage(room.server, now)
        record = {
            "round": room.round,
            "joined": room.joined,
            "server": room.server.state().decode(),
        }
        self._store.put(self._key, json.dumps(record).encode())

    @staticmethod
    def _end_of_stage(server: SecureServer, now: RoundNow) -> float:
        stages_left = len(ORDER) - ORDER.index(server.stage)
        return now.now + min(LONGEST_STAGE, (now.deadline - now.now) / (stages_left + 1))

    def _close(self, server: SecureServer, now: RoundNow) -> None:
        try:
            stage = server.close()
        except GivenUp:
            stage = server.stage
        if stage in ORDER:
            self._staged(now)
            return
        reason = Reason.TOO_FEW if stage is Stage.GIVEN_UP else self._handed_over(server)
        self._settle(() if reason is not None else server.result.clients, reason or Reason.LATE)

    def _leave(self) -> None:
        """The round is over: a sum that is not in the journal by now is not counted."""
        room = self._room
        if room.server is not None and not room.over:
            self._settle(self._in_the_journal(room.server.terms.session), Reason.LATE)

    def _settle(self, counted: Collection[str], reason: Reason) -> None:
        """Decide all tickets: those of the sum count, the others do not."""
        joined = self._room.joined
        self._host.decide([t for d, t in joined.items() if d in counted], None).result()
        rest = [t for d, t in joined.items() if d not in counted]
        self._host.decide(rest, reason).result()
        self._store.delete(self._key)
        self._room.over = True

    def _handed_over(self, server: SecureServer) -> Reason | None:
        """Into the journal; why not, if it is refused."""
        found, base = server.result, server.terms.base_version
        session = server.terms.session
        decision = self._host.take_sum(found.total, found.clients, base, session=session).result()
        counts = decision.accepted or self._in_the_journal(session)  # from before a fault
        return None if counts else decision.reason

    # -- what is known ----------------------------------------------------------------------

    def _said_to(self, device: str) -> SumStep:
        server = self._room.server
        if self._room.over:
            ticket = self._ticket(device, self._room.joined[device])
            accepted = ticket.fate is Fate.ACCEPTED
            return _over(Outcome(accepted=accepted, reason=ticket.reason))
        if server is None:
            return SumStep(stage=JOINING, retry_after=ASK_AGAIN)
        question = server.for_client(device)
        return SumStep(
            stage=server.stage,
            answered=device in server.here or device not in server.expected,
            terms=codec.to_bytes(server.terms).decode(),
            question=None if question is None else codec.to_bytes(question).decode(),
            retry_after=ASK_AGAIN,
        )

    def _too_late(self, device: str) -> bool:
        """The roster is fixed, and the device is not in it."""
        server = self._room.server
        return server is not None and device not in server.terms.roster

    def _ticket(self, device: str, name: str) -> Ticket:
        ticket = self._state.ticket(name)
        if ticket is None or (ticket.device, ticket.model) != (device, self._host.plan.name):
            raise _unknown()
        return ticket

    def _device_key(self, name: str) -> bytes:
        device = self._state.device(name)
        if device is None:
            raise InputError("no such device", got=f"'{name}'")
        return base64.b64decode(device.public_key)

    def _restore(self) -> None:
        """Go on with the sum that a killed process left."""
        try:
            record: dict[str, Any] = json.loads(self._store.get(self._key))
        except Missing:
            return
        server = SecureServer.restored(record["server"].encode())
        self._room = _Room(round=record["round"], joined=record["joined"], server=server)
        self._room.stage_ends = self._end_of_stage(server, self._host.round_now())

    def _in_the_journal(self, session: str) -> list[str]:
        """The devices of a sum that counts already; none: it does not."""
        for event in self._state.events(self._host.plan.name):
            if event.kind == Kind.SUM and event.fields.get("session") == session:
                return list(event.fields["devices"])
        return []


def _over(outcome: Outcome) -> SumStep:
    return SumStep(stage=OVER, outcome=outcome, retry_after=0.0)


def _unknown() -> InputError:
    return InputError("no secure sum of this ticket is under way")
