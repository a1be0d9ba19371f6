"""From commits to counted updates: many at once, each of them once.

    check    the bytes against digest, form and bounds; in parallel, nothing is changed
    decide   one after the other, as far as the round takes them
    copy     the accepted bytes, all in one object that no phone can write
    write    events and decisions, in one durable transaction
    apply    the coordinator adds them, and the phones are answered

A crash before `write` leaves nothing but an object that nobody refers to. After it the events are
played again. So an answer that was given is never taken back, and no update is in twice.
"""

import hashlib
import secrets
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, final

from privet.errors import InputError
from privet.federation.coordinator import Answer
from privet.federation.server.journal import Kind
from privet.federation.server.served import ServedModel
from privet.federation.server.state import Event, Fate, Ticket
from privet.federation.server.store import Missing, upload_key
from privet.federation.server.updates import (
    Malformed,
    is_finite,
    most_bytes,
    norm_of,
    unpacked,
    unpacked_sum,
)
from privet.federation.wire import Reason

MOST_AT_ONCE: Final = 64
MOST_BYTES: Final = 32 * 2**20  # of updates in memory
THREADS: Final = 2
UNDECIDED: Final = frozenset({Reason.BROKEN, Reason.CLOSED, Reason.UNKNOWN})
ACCEPTED_COUNT: Final = "accepted"
REFUSED_COUNT: Final = "refused"


@final
@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether an update counts. The same ticket is answered the same again.

    But for `UNDECIDED`: bytes that are not those of the digest may be sent once more, and so may
    those that came while the model was stopped.
    """

    accepted: bool
    reason: Reason | None = None

    @property
    def final(self) -> bool:
        """Whether it is said of the ticket for ever."""
        return self.reason not in UNDECIDED


YES: Final = Decision(accepted=True)


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """A commit that waits; `at`: when it came, by the model's clock."""

    ticket: str
    device: str
    sha256: str
    at: float
    answer: Future[Decision]


@final
@dataclass(frozen=True, kw_only=True)
class Checked:
    """A commit whose bytes were looked at; `reason`: why they cannot count."""

    asked: Asked
    ticket: Ticket | None
    content: bytes = b""
    reason: Reason | None = None
    blank: bool = False
    decision: Decision | None = None
    fresh: bool = False  # whether it was decided just now

    @property
    def counts(self) -> bool:
        """Whether its update is to be added now."""
        return self.fresh and self.decision == YES


@final
class Taker:
    """Takes the updates of one model; belongs to its writer.

    Args:
        model: that is trained.
        forget: told which tickets are decided.
    """

    def __init__(self, model: ServedModel, forget: Callable[[Sequence[str]], None]) -> None:
        self._model, self._forget = model, forget
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"check-{model.name}")
        self._most = most_bytes(model.size)
        self._told: dict[str, Decision] = {}  # of this batch: a ticket may be in it twice

    @property
    def at_once(self) -> int:
        """How many commits are taken together, so that memory stays bounded."""
        return max(1, min(MOST_AT_ONCE, MOST_BYTES // self._most))

    def take(self, batch: Sequence[Asked]) -> None:
        """Decide on all of them, and answer."""
        if len(batch) == 1:
            rest = deque([self._checked(batch[0])])
        else:
            rest = deque(self._pool.map(self._checked, batch))
        self._told.clear()
        while rest:
            group = self._group(rest)
            self._write(group)
            self._answer(group)
        self._model.lighten()

    def take_sum(
        self,
        content: bytes,
        devices: Sequence[str],
        base_version: int,
        at: float,
        *,
        session: str = "",
    ) -> Decision:
        """Decide on a sum of several devices' updates, as one; `session`: by which it is found."""
        model = self._model
        if not is_finite(unpacked_sum(content, model.size)):
            raise InputError("a sum that is not a number somewhere", got="NaN or infinity")
        model.bring_to(at)
        if model.stopped:
            return Decision(accepted=False, reason=Reason.CLOSED)
        for device in devices:
            answer = model.coordinator.would_take(device, base_version)
            if answer is not Answer.ACCEPTED:
                return Decision(accepted=False, reason=Reason[answer.name])
        key = _segment(model)
        model.store.put(key, content)
        closed = model.do(
            Kind.SUM,
            at,
            content=content,
            devices=list(devices),
            base=base_version,
            session=session,
            object=key,
            start=0,
            length=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        model.state.add_count(model.name, ACCEPTED_COUNT, n=len(devices))
        if closed is not None:
            model.begin_round(model.journal.at)
        return YES

    def close(self) -> None:
        """No more."""
        self._pool.shutdown()

    # -- check ------------------------------------------------------------------------------

    def _checked(self, asked: Asked) -> Checked:
        ticket = self._model.state.ticket(asked.ticket)
        foreign = ticket is None or (ticket.device, ticket.model) != (
            asked.device,
            self._model.name,
        )
        if ticket is None or foreign:
            return Checked(asked=asked, ticket=None, reason=Reason.UNKNOWN)
        if ticket.fate is not Fate.OUT:
            return Checked(asked=asked, ticket=ticket, decision=_decision_of(ticket))
        return self._looked_at(asked, ticket)

    def _looked_at(self, asked: Asked, ticket: Ticket) -> Checked:
        model = self._model
        key = upload_key(model.name, ticket.round, ticket.ticket)
        found = Checked(asked=asked, ticket=ticket)
        size = model.store.size(key)
        if size is None:
            return replace(found, reason=Reason.BROKEN)
        if size > self._most:
            return replace(found, reason=Reason.MALFORMED)
        try:
            content = model.store.get(key, length=size)  # it may have grown since
        except Missing:
            return replace(found, reason=Reason.BROKEN)
        if hashlib.sha256(content).hexdigest() != asked.sha256:
            return replace(found, reason=Reason.BROKEN)
        reason, blank = self._judged(content)
        return replace(found, content=content, reason=reason, blank=blank)

    def _judged(self, content: bytes) -> tuple[Reason | None, bool]:
        """Whether it may count, and whether it counts as zero.

        Under privacy nothing is refused that depends on records: what is not finite counts as zero.
        """
        try:
            change = unpacked(content, self._model.size)
        except Malformed:
            return Reason.MALFORMED, False
        private = self._model.plan.privacy is not None
        if not is_finite(change):
            return (None, True) if private else (Reason.MALFORMED, False)
        longest = self._model.plan.phones.longest
        too_long = longest is not None and norm_of(change) > longest
        return (Reason.TOO_LONG if too_long else None), False

    # -- decide -----------------------------------------------------------------------------

    def _group(self, rest: deque[Checked]) -> list[Checked]:
        """The next ones, up to the update with which the round is full, or to its deadline."""
        model, coordinator = self._model, self._model.coordinator
        group: list[Checked] = []
        devices: set[str] = set()
        asked = coordinator.asked
        while rest:
            at = max(rest[0].asked.at, model.journal.at)
            if at >= coordinator.deadline and not model.over:
                if group:
                    break
                model.bring_to(at)
                asked = coordinator.asked
            found = self._decided(rest.popleft(), at, devices)
            group.append(found)
            if found.counts:
                devices.add(found.asked.device)
                arrived = coordinator.count + len(devices)
                if coordinator.rule.pacing.full(arrived, len(asked or ())):
                    break
        return group

    def _decided(self, found: Checked, at: float, devices: set[str]) -> Checked:
        if found.decision is not None:
            return found
        ticket = found.asked.ticket
        if ticket in self._told:
            return replace(found, decision=self._told[ticket])
        reason = self._against(found, at, devices)
        decision = YES if reason is None else Decision(accepted=False, reason=reason)
        if decision.final:
            self._told[ticket] = decision
        return replace(found, decision=decision, fresh=True)

    def _against(self, found: Checked, at: float, devices: set[str]) -> Reason | None:
        if found.ticket is None:
            return Reason.UNKNOWN
        if self._model.stopped:
            return Reason.CLOSED
        if self._model.coordinator.secure_sum:
            return Reason.SUMMED
        if at >= found.ticket.until:
            return Reason.LATE
        if found.ticket.device in devices:
            return Reason.REPEATED
        answer = self._model.coordinator.would_take(found.ticket.device, found.ticket.base_version)
        return found.reason if answer is Answer.ACCEPTED else Reason[answer.name]

    # -- copy, write, apply -----------------------------------------------------------------

    def _write(self, group: Sequence[Checked]) -> None:
        model = self._model
        accepted = [found for found in group if found.counts]
        events = self._copied(accepted) if accepted else []
        model.in_doubt = True
        with model.state.transaction(durable=bool(events)):
            model.journal.write(*events)
            self._note([found for found in group if found.fresh])
        closed = None
        for event, found in zip(events, accepted, strict=True):
            closed = model.apply(event, found.content)
        model.in_doubt = False
        if closed is not None:
            model.begin_round(model.journal.at)

    def _copied(self, accepted: Sequence[Checked]) -> list[Event]:
        journal, start, events = self._model.journal, 0, []
        key = _segment(self._model)
        self._model.store.put(key, [found.content for found in accepted])
        latest = journal.at
        for ahead, found in enumerate(accepted):
            assert found.ticket is not None
            latest = max(latest, found.asked.at)
            fields = {
                "ticket": found.ticket.ticket,
                "device": found.ticket.device,
                "base": found.ticket.base_version,
                "object": key,
                "start": start,
                "length": len(found.content),
                "sha256": found.asked.sha256,
            } | ({"blank": True} if found.blank else {})
            events.append(journal.event(Kind.UPDATE, latest, ahead=ahead, **fields))
            start += len(found.content)
        return events

    def _note(self, fresh: Sequence[Checked]) -> None:
        """Decisions, and how many there were of each kind."""
        state, name, counts = self._model.state, self._model.name, Counter[tuple[str, str]]()
        for found in fresh:
            assert found.decision is not None
            if found.decision.reason is None:
                state.decide(found.asked.ticket, Fate.ACCEPTED)
                counts[(ACCEPTED_COUNT, "")] += 1
                continue
            counts[(REFUSED_COUNT, found.decision.reason.name)] += 1
            if found.decision.final:
                state.decide(found.asked.ticket, Fate.REFUSED, found.decision.reason)
        for (what, reason), n in counts.items():
            state.add_count(name, what, reason, n)

    def _answer(self, group: Sequence[Checked]) -> None:
        for found in group:
            assert found.decision is not None
            found.asked.answer.set_result(found.decision)
        over = [f.ticket for f in group if f.ticket and f.decision and f.decision.final]
        self._forget([ticket.ticket for ticket in over])
        for ticket in over:
            key = upload_key(self._model.name, ticket.round, ticket.ticket)
            self._model.store.delete(key)


def _segment(model: ServedModel) -> str:
    """Where the bytes of the next events lie; no place is ever written twice."""
    return f"taken/{model.name}/{model.journal.next_seq:012d}-{secrets.token_hex(4)}"


def _decision_of(ticket: Ticket) -> Decision:
    if ticket.fate is Fate.ACCEPTED:
        return YES
    return Decision(accepted=False, reason=ticket.reason)
