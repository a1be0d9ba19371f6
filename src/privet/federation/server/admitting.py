"""Who may train now: tickets, quotas, cohorts that form, and when to ask again.

Answers come from memory; only a new ticket is written down. It need not survive a power cut: a
phone whose ticket nobody knows asks for another.
"""

import math
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from privet.federation.coordinator import Answer
from privet.federation.server.served import ServedModel
from privet.federation.server.state import Fate, State, Ticket
from privet.federation.server.store import upload_key
from privet.federation.server.updates import most_bytes
from privet.federation.wire import Reason

SOON: Final = 1.0
A_DAY: Final = 86_400.0
FORGOTTEN: Final = 3.0  # waits for a cohort that were not renewed, in times of asking again
ENOUGH: Final = 0.5  # of a new ticket's time that must be left of an old one to be shown again
GRACE: Final = 0.5  # of a round's time, after which a smaller cohort begins


@final
@dataclass(frozen=True, kw_only=True)
class Given:
    """A ticket: train from `base_version`, put the update at `key` of the store."""

    ticket: str
    round: int
    base_version: int
    key: str
    seconds_left: float
    most_bytes: int


@final
@dataclass(frozen=True, kw_only=True)
class NotNow:
    """Why there is none, and when to ask again."""

    reason: Reason
    retry_after: float


@final
class Admission:
    """The tickets that are out, and the devices that wait for a cohort."""

    def __init__(self, state: State) -> None:
        self._state, self._lock = state, threading.Lock()
        self._out: dict[str, Ticket] = {}
        self._of_device: dict[str, Ticket] = {}
        self._waiting: dict[str, float] = {}

    def begin(self, model: ServedModel) -> None:
        """Go on with the tickets that are out."""
        with self._lock:
            self._out = {t.ticket: t for t in self._state.tickets_out(model.name)}
            self._of_device = {t.device: t for t in self._out.values()}

    @property
    def out(self) -> int:
        """How many tickets nothing was decided of."""
        return len(self._out)

    def ready(
        self, model: ServedModel, device: str, phone: str, system: str, now: float
    ) -> Given | NotNow:
        """A ticket, the same for the whole round, or why there is none."""
        with model.lock, self._lock:
            refusal = self._refusal(model, device, phone, system, now)
            if refusal is not None:
                return refusal
            wanted = self._wanted(model, device, now)
            known = self._of_device.get(device)
            if known is not None and _same(known, wanted, now):
                return _given(model, known, now)
        ticket = self._state.give_ticket(wanted)
        if ticket.fate is not Fate.OUT:
            seconds = _to_the_end(model, now)
            return NotNow(reason=ticket.reason or Reason.REPEATED, retry_after=seconds)
        with self._lock:
            self._out[ticket.ticket] = self._of_device[device] = ticket
        return _given(model, ticket, now)

    def forget(self, tickets: Sequence[str]) -> None:
        """They are decided."""
        with self._lock:
            for name in tickets:
                ticket = self._out.pop(name, None)
                if ticket is not None and self._of_device.get(ticket.device) == ticket:
                    del self._of_device[ticket.device]

    def expired(self, model: ServedModel, now: float) -> list[Ticket]:
        """Tickets whose time is over; they are out no more."""
        with self._lock:
            late = [ticket for ticket in self._out.values() if ticket.until <= now]
        self.forget([ticket.ticket for ticket in late])
        return late

    @staticmethod
    def key(ticket: Ticket) -> str:
        """Where its upload lies."""
        return upload_key(ticket.model, ticket.round, ticket.ticket)

    # -- cohorts ----------------------------------------------------------------------------

    def waiting(self, model: ServedModel, now: float) -> list[str]:
        """Devices that asked a short while ago; they do not wait any more, but are chosen from."""
        oldest = now - FORGOTTEN * model.plan.phones.retry_seconds
        with self._lock:
            fresh = sorted(name for name, asked in self._waiting.items() if asked >= oldest)
            self._waiting.clear()
        return fresh

    def cohort_is_there(self, model: ServedModel) -> bool:
        """Whether as many wait as a cohort has."""
        pacing = model.invites
        return pacing is not None and pacing.size is not None and len(self._waiting) >= pacing.size

    def cohort_is_due(self, model: ServedModel, now: float) -> bool:
        """Whether a smaller cohort begins, as no more came."""
        pacing = model.invites
        if pacing is None or pacing.size is None or not self._waiting:
            return False
        return now >= model.coordinator.opened + GRACE * pacing.seconds

    def next_moment(self, model: ServedModel, now: float) -> float:
        """When something is due by the clock, seen from now."""
        moments = [model.coordinator.deadline]
        pacing = model.invites
        if pacing is not None and pacing.size is not None:
            moments.append(model.coordinator.opened + GRACE * pacing.seconds)
        with self._lock:
            moments += [ticket.until + SOON for ticket in self._out.values()]
        return min((moment for moment in moments if moment > now), default=math.inf)

    # -- refusals ---------------------------------------------------------------------------

    def _refusal(
        self, model: ServedModel, device: str, phone: str, system: str, now: float
    ) -> NotNow | None:
        policy, coordinator = model.plan.phones, model.coordinator
        if not policy.fits(phone, system):
            return NotNow(reason=Reason.UNFIT, retry_after=A_DAY)
        if coordinator.stopped:
            return NotNow(reason=Reason.STOPPED, retry_after=A_DAY)
        if model.stopped:
            return NotNow(reason=Reason.CLOSED, retry_after=policy.retry_seconds)
        if not model.settled or now >= coordinator.deadline:
            return NotNow(reason=Reason.CLOSED, retry_after=SOON)
        answer = coordinator.ask(device)
        if answer is not Answer.ACCEPTED:
            self._wait(model, device, answer, now)
            return NotNow(reason=Reason[answer.name], retry_after=_retry(model, answer, now))
        known = self._of_device.get(device)
        has_one = known is not None and known.round == coordinator.round
        if policy.quota is not None and not has_one:
            out = sum(1 for ticket in self._out.values() if ticket.until > now)
            if out >= policy.quota:
                return NotNow(reason=Reason.QUOTA, retry_after=policy.retry_seconds)
        return None

    def _wait(self, model: ServedModel, device: str, answer: Answer, now: float) -> None:
        """For the next cohort; who took part as often as it may does not wait for any."""
        may = model.coordinator.may_step(device) is Answer.ACCEPTED
        if answer is Answer.UNASKED and may:
            self._waiting[device] = now

    def _wanted(self, model: ServedModel, device: str, now: float) -> Ticket:
        coordinator = model.coordinator
        until = now + model.plan.phones.ticket_seconds
        if not coordinator.rule.stale:
            until = min(until, coordinator.deadline)
        return Ticket(
            ticket=secrets.token_urlsafe(24),
            model=model.name,
            device=device,
            round=coordinator.round,
            base_version=coordinator.version,
            until=until,
        )


def _same(known: Ticket, wanted: Ticket, now: float) -> bool:
    """Whether nothing new is to be written: the same round, and as much time, or enough of it."""
    if (known.round, known.base_version) != (wanted.round, wanted.base_version):
        return False
    return known.until >= wanted.until or known.until - now > ENOUGH * (wanted.until - now)


def _given(model: ServedModel, ticket: Ticket, now: float) -> Given:
    return Given(
        ticket=ticket.ticket,
        round=ticket.round,
        base_version=ticket.base_version,
        key=Admission.key(ticket),
        seconds_left=max(0.0, ticket.until - now),
        most_bytes=most_bytes(model.size),
    )


def _retry(model: ServedModel, answer: Answer, now: float) -> float:
    """When the answer may be another one; nothing in it depends on anybody's records."""
    if answer is Answer.SPENT:
        return A_DAY
    asks_again = model.plan.phones.retry_seconds
    waits = answer is Answer.UNASKED and model.coordinator.asked is None
    return min(asks_again, A_DAY) if waits else _to_the_end(model, now)


def _to_the_end(model: ServedModel, now: float) -> float:
    left = model.coordinator.deadline - now
    return max(SOON, left) if math.isfinite(left) else model.plan.phones.retry_seconds
