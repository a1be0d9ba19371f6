"""One model on one phone: the machine of `stages`, one short action after the other.

Whatever an action changes is on disk before it is over, in an order in which a kill at any point
loses nothing but the time: an update is stored before it is sent, its commit is noted before it is
asked for, the answer is written down before the round is forgotten. A commit that may have reached
the server is asked for again even after the deadline, so the phone learns what became of it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, final

from privet.federation import wire
from privet.federation.phone.at_hand import ModelAtHand
from privet.federation.phone.conditions import Conditions
from privet.federation.phone.line import Declined, Unreachable, wait_of
from privet.federation.phone.records import Records
from privet.federation.phone.sending import chunk_of, send_anew, send_some
from privet.federation.phone.shared import Shared
from privet.federation.phone.stages import IN_A_ROUND, Stage
from privet.federation.phone.standing import Ticket
from privet.federation.phone.storage import append, digest_of_file, save_tensors
from privet.federation.phone.summing import Summing
from privet.federation.phone.training import Course, Lessons
from privet.federation.secure_sum import Refused

LOOK_AGAIN: Final = 60.0  # seconds of its clock until a phone looks at itself again, at the latest
REST_AFTER_NO: Final = 60.0  # seconds of the wall after a request that the server declines
MOST_REPAIRS: Final = 3  # of an update that does not arrive as it was sent
UPDATE: Final = "update.safetensors"
SUM: Final = "sum.json"
TOLD: Final = "told.jsonl"


@final
class ModelOnPhone(ModelAtHand):
    """One model.

    Args:
        offer: what the server says it is.
        folder: its own.
        records: what it trains on.
        shared: with the phone's other models.
    """

    def __init__(self, offer: wire.Offer, folder: Path, records: Records, shared: Shared) -> None:
        super().__init__(offer, folder, records, shared)
        self.uses = 0
        self._lessons = Lessons(network=self.network, records=records, seed=shared.seed)
        self._course: Course | None = None
        self._began = 0.0
        self._stranded = False  # its trace has ended where it may not work
        self._act: Mapping[Stage, Callable[[float, Conditions], float]] = {
            Stage.IDLE: self._idle,
            Stage.REQUESTING: self._requesting,
            Stage.BACKOFF: self._backoff,
            Stage.ACCEPTED: self._accepted,
            Stage.QUEUED: self._queued,
            Stage.DOWNLOADING: self._downloading,
            Stage.TRAINING: self._training,
            Stage.PAUSED: self._paused,
            Stage.STORED: self._stored,
            Stage.UPLOADING: self._uploading,
            Stage.DISCARD: self._discard,
        }

    @property
    def over(self) -> bool:
        """Whether training is over, or the phone will never be able to train again."""
        return self._stranded or (self.standing.over and self.standing.stage is Stage.IDLE)

    def act(self, now: float) -> float:
        """One action; when to be called again."""
        try:
            if self._too_late(now):
                self._to(Stage.DISCARD)
                return now
            conditions = self.shared.surroundings.at(now)
            return self._act[self.standing.stage](now, conditions)
        except Unreachable as error:
            return self._later(now, str(error), error.retry_after)
        except Declined as error:
            return self._declined(now, error)

    # Every stage's action: what it does, and when it is to be looked at again.

    def _idle(self, now: float, conditions: Conditions) -> float:
        if self.standing.over:
            return float("inf")
        if now < self.standing.until:
            return self.standing.until
        asked_for = self.offer.work.least_records
        if not self.shared.policies.ready(
            conditions, records=self.records.count(), asked_for=asked_for
        ):
            return self._look_again(now)
        self._to(Stage.REQUESTING)
        return now

    def _requesting(self, now: float, conditions: Conditions) -> float:
        if not self._may_work(conditions):
            return self._look_again(now)
        answer = self.shared.server.ready(self.name)
        if isinstance(answer, wire.Accepted):
            self._to(
                Stage.ACCEPTED,
                ticket=Ticket.given(answer, now=now, deadline=self._ends(answer, now)),
            )
            return now
        over = answer.reason is wire.Reason.STOPPED
        if over:
            self._try_last_version()
        until = now + self.shared.clock.of_wall(answer.retry_after)
        self._to(Stage.BACKOFF, until=until, over=over)
        self._say("denied", reason=answer.reason.value)
        return now if over else until

    def _backoff(self, now: float, conditions: Conditions) -> float:
        del conditions
        if now < self.standing.until and not self.standing.over:
            return self.standing.until
        self._to(Stage.IDLE)
        return now

    def _accepted(self, now: float, conditions: Conditions) -> float:
        held = self.standing.held
        expected = max(self.standing.took, self._expected(held, conditions))
        left = held.deadline - now
        if self.shared.policies.starts(seconds_left=left, expected=expected):
            self._to(Stage.QUEUED)
            return now
        self._end("too slow", until=held.deadline)
        return held.deadline

    def _queued(self, now: float, conditions: Conditions) -> float:
        """The hub calls this when it is this model's turn."""
        if not self._may_work(conditions):
            return self._look_again(now)
        self._to(Stage.DOWNLOADING)
        return now

    def _downloading(self, now: float, conditions: Conditions) -> float:
        if not self.shared.policies.downloads(conditions):
            return self._look_again(now)
        version = self.standing.held.base_version
        self.fetch(version)
        self._try(version)
        self._began = now
        self._to(Stage.TRAINING)
        return now + self.shared.surroundings.seconds_down(4 * self.size)

    def _training(self, now: float, conditions: Conditions) -> float:
        if not self.shared.policies.goes_on(conditions):
            self._to(Stage.PAUSED)
            return self._look_again(now)
        course = self._course or self._begun(now)
        took = course.slice(self.shared.surroundings, conditions.mode)
        if course.done:
            self._store(course, now + took)
        return now + took

    def _paused(self, now: float, conditions: Conditions) -> float:
        if not self.shared.policies.goes_on(conditions):
            return self._look_again(now)
        self._to(Stage.TRAINING)
        return now

    def _stored(self, now: float, conditions: Conditions) -> float:
        if not self.shared.policies.uploads(conditions):
            return self._look_again(now)
        self._to(Stage.UPLOADING)
        return now

    def _uploading(self, now: float, conditions: Conditions) -> float:
        if not self.shared.policies.uploads(conditions):
            return self._look_again(now)
        held, server = self.standing.held, self.shared.server
        if held.longest is not None:
            return self._in_a_sum(now, held)
        if not self.standing.sent:
            around = self.shared.surroundings
            sent = send_some(server, held, self.folder / UPDATE, chunk=chunk_of(around))
            if sent is not None:
                return now + around.seconds_up(sent)
            self._keep(sent=True)
        outcome = server.commit(held.ticket, self.standing.sha256)
        if outcome.reason is wire.Reason.CLOSED:
            return self._later(now, "the model is not trained now", REST_AFTER_NO)
        if outcome.reason is wire.Reason.BROKEN and self.standing.tries < MOST_REPAIRS:
            self._keep(sent=False, tries=self.standing.tries + 1)
            send_anew(server, held, self.folder / UPDATE)
            return now
        self._note(held, outcome)
        self._end("accepted" if outcome.accepted else f"refused: {_why(outcome)}")
        return now

    def _in_a_sum(self, now: float, held: Ticket) -> float:
        """Its part in a secure sum takes the place of an upload."""
        summing = self._summing(held)
        try:
            heard = summing.step()
        except Refused as no:
            self._say("refused", why=str(no))
            self._end("left the sum", until=held.deadline)
            return now
        if summing.masked and not self.standing.sent:
            self._keep(sent=True)
        if isinstance(heard, float):
            return now + self.shared.clock.of_wall(heard)
        self._note(held, heard)
        self._end("accepted" if heard.accepted else f"refused: {_why(heard)}")
        return now

    def _summing(self, held: Ticket) -> Summing:
        return Summing(
            self.shared.server,
            held,
            model=self.name,
            size=self.size,
            update=self.folder / UPDATE,
            state=self.folder / SUM,
        )

    def _discard(self, now: float, conditions: Conditions) -> float:
        del conditions
        self._end("late")
        return now

    # What the actions are made of.

    def _may_work(self, conditions: Conditions) -> bool:
        policies = self.shared.policies
        return policies.goes_on(conditions) and policies.downloads(conditions)

    def _ends(self, answer: wire.Accepted, now: float) -> float:
        return now + self.shared.clock.of_wall(answer.seconds_left)

    def _expected(self, held: Ticket, conditions: Conditions) -> float:
        """Seconds to fetch, train and send, as far as the phone knows itself."""
        around, size = self.shared.surroundings, 4 * self.size
        planned = self._lessons.count(wire.Work(**held.work), self.standing.turn)
        training = around.seconds_for(planned, conditions.mode)
        return around.seconds_down(size) + training + around.seconds_up(size)

    def _begun(self, now: float) -> Course:
        held = self.standing.held
        self._began = self._began or now
        self._course = self._lessons.begun(
            wire.Work(**held.work), self.weights(held.base_version), self.standing.turn
        )
        return self._course

    def _store(self, course: Course, done_at: float) -> None:
        path = self.folder / UPDATE
        save_tensors(path, {"change": course.change()})
        self._course = None
        took = max(0.0, done_at - self._began)
        self._began = 0.0
        self._to(Stage.STORED, sha256=digest_of_file(path), took=took)

    def _note(self, held: Ticket, outcome: wire.Outcome) -> None:
        """What the phone was told, for ever; the same line twice is one answer heard twice."""
        facts = {
            "ticket": held.ticket,
            "round": held.round,
            "base_version": held.base_version,
            "turn": self.standing.turn - 1,
            "sha256": self.standing.sha256,
            "accepted": outcome.accepted,
            "reason": None if outcome.reason is None else outcome.reason.value,
        }
        line = json.dumps({"model": self.name} | facts) + "\n"
        append(self.folder / TOLD, line.encode())
        self._say("told", **facts)

    def _too_late(self, now: float) -> bool:
        """A round is over; what the server may have taken is not given up."""
        held = self.standing.ticket
        if held is None or now < held.deadline or self.standing.stage not in IN_A_ROUND:
            return False
        return not (self.standing.sent or self._summing(held).masked)

    def _end(self, fate: str, *, until: float = 0.0) -> None:
        self._course = None
        self._keep_as(self.standing.ended(fate, until=until))
        (self.folder / UPDATE).unlink(missing_ok=True)
        (self.folder / SUM).unlink(missing_ok=True)
        self._say("ended", fate=fate)

    def _later(self, now: float, why: str, retry_after: float) -> float:
        tries = self.standing.tries
        wait = wait_of(tries, retry_after, self.shared.jitter())
        self._keep(tries=tries + 1)
        self._say("later", why=why, seconds=round(wait, 2))
        return now + self.shared.clock.of_wall(wait)

    def _declined(self, now: float, error: Declined) -> float:
        """In a round that is its end; before one, a rest."""
        self._say("declined", why=str(error))
        if self.standing.stage in IN_A_ROUND:
            self._keep(sent=False)
            self._to(Stage.DISCARD)
            self._end(f"declined: {error.error}")
        rest = now + self.shared.clock.of_wall(REST_AFTER_NO)
        self._keep(until=rest)
        return rest

    def _look_again(self, now: float) -> float:
        """When something may have changed; never now, or the phone would not sleep."""
        around = self.shared.surroundings
        change = around.next_change(now)
        self._stranded = change == float("inf") and not self._may_work(around.at(now))
        return max(now + 1e-3, min(change, now + LOOK_AGAIN))


def _why(outcome: wire.Outcome) -> str:
    return "no reason" if outcome.reason is None else outcome.reason.name.lower()
