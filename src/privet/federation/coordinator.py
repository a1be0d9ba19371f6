"""One model's rounds: who may train, which updates count, when there is a new version.

The simulator and a server drive the same machine, by its clock (seconds since the start) and by
what clients say. It never waits and never draws a time of its own.

    OPEN     clients ask, and are given the model; uploads are taken
     | the deadline is over, or the pacing is full
     +-- too few updates: the round is given up, its updates stay for the next one, same model
     +-- enough: gathered, hidden where that is asked for, and the model moves
          +-- `accept` says no: the step and its updates are forgotten, same model
          +-- published: the version is one higher
    STOPPED  after as many rounds as were asked for

`roll_back` ends a round, too: earlier weights become the newest version, and what came in is
forgotten. `receive_sum` takes the sum of a whole cohort where secure aggregation hides its parts.

A client counts once in each step, however often it uploads. An update of a version that is older
than the rule allows is refused. Under `UserPrivacy` an update is refused, too, once the client's
participation is used up, and every update is clipped before it is added.

`state` and `restore` are all that a killed server needs: the same calls from then on lead to the
same versions, noise included.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, final

import torch
from torch import Tensor

from privet.engine.account import Account, Unpaid
from privet.engine.fixed_parts import digest_of
from privet.errors import InputError
from privet.federation.allowed import require_allowed
from privet.federation.gathering import Gathering, StreamingMean
from privet.federation.rule import Rule
from privet.federation.update import Update, not_finite
from privet.federation.user_privacy import UserPrivacy, history_from, state_of
from privet.privacy.correlated import History
from privet.privacy.participation import Capped
from privet.privacy.randomness import SecretStream

Accept = Callable[[Tensor], bool]


class Answer(StrEnum):
    """What a client is told."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it is here already; nothing is counted twice
    STALE = "stale"
    SPENT = "spent"  # the client took part as often as it may
    TOO_SOON = "too soon"  # its last step was fewer than `apart` steps ago
    UNASKED = "unasked"
    STOPPED = "stopped"


class Closing(StrEnum):
    """How a round ended."""

    PUBLISHED = "published"
    TOO_FEW = "too few"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled back"


@final
@dataclass(frozen=True, kw_only=True)
class Closed:
    """A round that is over."""

    round: int
    time: float
    how: Closing
    updates: int
    version: int
    mean_staleness: float


FIRST_VERSION: Final = 0


@final
class Coordinator:
    """The state machine of one model under one rule.

    Args:
        weights: the first version, one flat vector; sums and noise are made where it lies.
        rule: how updates are gathered and when.
        rounds: after so many rounds nobody is asked any more.
        privacy: how updates are clipped and hidden; None: not at all.
        stream: secret, for the noise; needed with `privacy`.
        accept: whether a new version may be published; default: always. Under privacy it must not
            look at private records.
        secure_sum: whether single updates stay hidden from the server.

    `account` is asked for leave before the noise of a step is drawn, and told what came out.
    """

    def __init__(
        self,
        weights: Tensor,
        rule: Rule,
        *,
        rounds: int,
        privacy: UserPrivacy | None = None,
        stream: SecretStream | None = None,
        accept: Accept | None = None,
        secure_sum: bool = False,
    ) -> None:
        if rounds < 1:
            raise InputError("bad number of rounds", got=rounds, expected="at least 1")
        if (privacy is None) != (stream is None):
            raise InputError("noise needs a secret stream", fix="give privacy and stream, or none")
        self.rule, self.rounds, self.privacy, self.stream = rule, rounds, privacy, stream
        self.secure_sum = secure_sum
        self.weights = weights.detach().clone()
        size = self.weights.numel()
        self._gathering = rule.gathering(size)
        require_allowed(rule, self._gathering, privacy, secure_sum=secure_sum, rounds=rounds)
        self._gathering = self._gathered_by(rule)
        self._step = rule.step(size)
        self._accept: Accept = accept or (lambda _: True)
        self.account: Account = Unpaid()
        self._noise = History.empty()
        self.version, self.round, self.opened = FIRST_VERSION, 0, 0.0
        self.sums = 0  # that were made, hidden or not; also those that were not published
        self.rolled_back = 0
        self._oldest = FIRST_VERSION  # that an update may be of; what was rolled back is not
        self._asked: set[str] | None = None
        self._totals: dict[str, Tensor] = {}  # of updates whose sums nobody has looked at yet
        self._counted: dict[str, int] = {}  # clients of this step, and how stale they were
        self.times: dict[str, int] = {}
        self._last: dict[str, int] = {}

    @property
    def stopped(self) -> bool:
        """Whether all rounds are over."""
        return self.round >= self.rounds

    @property
    def deadline(self) -> float:
        """When this round ends at the latest."""
        return self.opened + self.rule.pacing.seconds

    @property
    def count(self) -> int:
        """How many updates are here for the next step."""
        return self._gathering.count

    @property
    def streams(self) -> bool:
        """Whether an update is forgotten once it is added to the others."""
        return self._gathering.streaming

    def invite(self, clients: set[str]) -> None:
        """The clients of this round, where the server chooses them."""
        if not self.rule.pacing.invites:
            raise InputError(f"under '{self.rule.name}' clients choose themselves")
        self._asked = set(clients)

    def ask(self, client: str) -> Answer:
        """Whether a client may train now (RTCm -> AFTm or DFTm)."""
        return self._admitted(client, self.version)

    def may_step(self, client: str) -> Answer:
        """Whether its participation allows one more step now, whatever else stands against it."""
        cap = self.privacy.participation if self.privacy is not None else None
        if isinstance(cap, Capped) and client in self.times:
            if self.times[client] >= cap.times:
                return Answer.SPENT
            if self.sums - self._last[client] < cap.apart:
                return Answer.TOO_SOON
        return Answer.ACCEPTED

    def would_take(self, client: str, base_version: int) -> Answer:
        """What `receive` would answer to an update of this version."""
        return self._admitted(client, base_version)

    def receive(self, update: Update, now: float) -> tuple[Answer, Closed | None]:
        """Take an upload, or refuse it; the round may be full with it. Call `advance` before."""
        if now > self.deadline and not self.stopped:
            raise ValueError("the deadline is over: advance first")
        if self.secure_sum:
            raise InputError("a single update where only sums are taken", got=update.client)
        answer = self._admitted(update.client, update.base_version)
        if answer is not Answer.ACCEPTED:
            return answer, None
        update.require_for(self.weights.numel(), finite=self.privacy is None)
        if self.privacy is None and update.total is not None:
            self._totals[update.client] = update.total
        staleness = self.version - update.base_version
        change = update.change.to(self.weights.device)
        if self.privacy is not None:
            change = self.privacy.clipped(change)
        self._gathering.add(change, self.rule.weight(staleness))
        self._count(update.client, staleness)
        return answer, self._closed_if_full(now)

    def receive_sum(
        self, total: Tensor, clients: Sequence[str], base_version: int, now: float
    ) -> tuple[Answer, Closed | None]:
        """Take the sum of the updates of these clients, who clipped them, or refuse it whole.

        A sum with one client in it that would be refused cannot be used: the answer is that
        client's. Under privacy the proof rests on every client's having clipped its update.
        """
        if now > self.deadline and not self.stopped:
            raise ValueError("the deadline is over: advance first")
        if not self.secure_sum or not isinstance(self._gathering, StreamingMean):
            raise InputError("a sum where single updates are taken", fix="secure_sum=True")
        if not clients or len(set(clients)) != len(clients):
            raise InputError("a sum of no clients, or of one twice", got=len(clients))
        for client in clients:
            if (answer := self._admitted(client, base_version)) is not Answer.ACCEPTED:
                return answer, None
        summed = Update(client="a cohort", base_version=base_version, change=total)
        summed.require_for(self.weights.numel())
        self._gathering.add_sum(total.to(self.weights.device), len(clients))
        for client in clients:
            self._count(client, staleness=0)
        return Answer.ACCEPTED, self._closed_if_full(now)

    def roll_back(self, weights: Tensor, now: float) -> Closed:
        """Make earlier weights the newest version; no update of what lies between counts.

        Whoever took part has done so: caps, noise and charges go on as if nothing had happened. So
        nothing is lost to privacy, as long as what was published alone decides on rolling back.
        """
        if weights.shape != self.weights.shape:
            raise InputError("weights of another model", got=tuple(weights.shape))
        count, stale = self._gathering.count, self._mean_staleness()
        self._gathering.clear()
        self._counted.clear()
        self._totals.clear()
        self._step = self.rule.step(self.weights.numel())  # its memory led to where it went wrong
        self.weights = weights.to(self.weights, copy=True)
        self.version += 1
        self.rolled_back += 1
        self._oldest = self.version
        return self._over(now, Closing.ROLLED_BACK, count, stale)

    def revise(self, rule: Rule, *, rounds: int) -> None:
        """Go on by the same rule with other settings; what was gathered stays."""
        if rule.name != self.rule.name or rounds < 1:
            raise InputError("a revision to another rule", got=f"'{rule.name}', {rounds} rounds")
        gathering = rule.gathering(self.weights.numel())
        require_allowed(rule, gathering, self.privacy, secure_sum=self.secure_sum, rounds=rounds)
        gathering, step = self._gathered_by(rule), rule.step(self.weights.numel())
        gathering.restore(self._gathering.state())
        step.restore(self._step.state())
        self.rule, self.rounds, self._gathering, self._step = rule, rounds, gathering, step

    def reopen(self, now: float) -> None:
        """The round lasts its whole time from now on: nobody could come for a while."""
        self.opened = max(self.opened, now)

    @property
    def asked(self) -> frozenset[str] | None:
        """The clients of this round, where they were chosen; None: nobody was yet."""
        return None if self._asked is None else frozenset(self._asked)

    @property
    def counted(self) -> frozenset[str]:
        """The clients whose updates are here for the next step."""
        return frozenset(self._counted)

    def advance(self, now: float) -> Closed | None:
        """End the round if its time is over."""
        return self._close(self.deadline) if not self.stopped and now >= self.deadline else None

    def _admitted(self, client: str, base_version: int) -> Answer:
        if self.stopped:
            return Answer.STOPPED
        if client in self._counted:
            return Answer.REPEATED
        if self.rule.pacing.invites and client not in (self._asked or ()):
            return Answer.UNASKED
        if not max(self._oldest, self.version - self.rule.stale) <= base_version <= self.version:
            return Answer.STALE
        return self.may_step(client)

    def _gathered_by(self, rule: Rule) -> Gathering:
        """As the rule does it; under privacy the sum, whose divisor comes after the noise."""
        gathering = rule.gathering(self.weights.numel())
        if self.privacy is not None and isinstance(gathering, StreamingMean):
            return StreamingMean(self.weights.numel(), divisor=1.0)
        return gathering

    def _count(self, client: str, staleness: int) -> None:
        self._counted[client] = staleness
        self.times[client] = self.times.get(client, 0) + 1
        self._last[client] = self.sums

    def _closed_if_full(self, now: float) -> Closed | None:
        expected = len(self._asked) if self._asked is not None else 0
        full = self.rule.pacing.full(self._gathering.count, expected)
        return self._close(now) if full else None

    def _mean_staleness(self) -> float:
        return sum(self._counted.values()) / max(1, len(self._counted))

    def _close(self, now: float) -> Closed:
        count, stale = self._gathering.count, self._mean_staleness()
        if not self.rule.pacing.enough(count):
            how = Closing.TOO_FEW  # what is here counts in the next round
        else:
            how = self._stepped()
            self._gathering.clear()
            self._counted.clear()
        return self._over(now, how, count, stale)

    def _over(self, now: float, how: Closing, updates: int, staleness: float) -> Closed:
        self.round, self.opened, self._asked = self.round + 1, now, None
        return Closed(
            round=self.round,
            time=now,
            how=how,
            updates=updates,
            version=self.version,
            mean_staleness=staleness,
        )

    def _require_finite(self) -> None:
        """Of updates that came with their sums, which were not looked at when they came."""
        if self._totals:
            sums = torch.isfinite(torch.stack(list(self._totals.values()))).tolist()
            for client, finite in zip(self._totals, sums, strict=True):
                if not finite:
                    raise not_finite(client)
            self._totals.clear()

    def _stepped(self) -> Closing:
        self._require_finite()
        change = self._gathering.result() if self._gathering.count else self._nothing()
        change = change.to(self.weights.device)  # also where a restart has put it elsewhere
        if self.privacy is not None:
            # The noise of a short sum is made on the processor, wherever the sum was made.
            noisy = self._hidden(change, self.privacy).to(self.weights.device)
            change = noisy / self.privacy.divisor
        self.sums += 1
        before = self._step.state()
        moved = self._step.moved(self.weights, change).to(self.weights.dtype)
        if not self._accept(moved):
            self._step.restore(before)
            return Closing.REJECTED
        self.weights, self.version = moved, self.version + 1
        return Closing.PUBLISHED

    def _hidden(self, total: Tensor, privacy: UserPrivacy) -> Tensor:
        """The sum with its noise, paid for before it exists and noted before it is used."""
        assert self.stream is not None
        self.account.charge(self.sums)
        noisy, self._noise = privacy.hidden(
            total, step=self.sums, stream=self.stream, history=self._noise
        )
        self.account.confirm(self.sums, digest_of({"sum": noisy}))
        return noisy

    def _nothing(self) -> Tensor:
        return torch.zeros(self.weights.numel(), dtype=torch.float64)

    def state(self) -> dict[str, Any]:
        """All that a killed process needs to go on; secret under privacy."""
        self._require_finite()
        return {
            "weights": self.weights.clone(),
            "gathering": self._gathering.state(),
            "step": self._step.state(),
            "noise": state_of(self._noise),
            "numbers": {
                "version": self.version,
                "round": self.round,
                "opened": self.opened,
                "steps": self.sums,
                "rolled_back": self.rolled_back,
                "oldest": self._oldest,
            },
            "asked": None if self._asked is None else sorted(self._asked),
            "counted": dict(self._counted),
            "times": dict(self.times),
            "last": dict(self._last),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another process stopped."""
        self.weights = state["weights"].to(self.weights.device, copy=True)
        self._gathering.restore(state["gathering"])
        self._step.restore(state["step"])
        self._noise = history_from(state["noise"])
        numbers = state["numbers"]
        self.version, self.round = int(numbers["version"]), int(numbers["round"])
        self.opened, self.sums = float(numbers["opened"]), int(numbers["steps"])
        self.rolled_back = int(numbers.get("rolled_back", 0))
        self._oldest = int(numbers.get("oldest", FIRST_VERSION))
        self._asked = None if state["asked"] is None else set(state["asked"])
        self._counted, self.times = dict(state["counted"]), dict(state["times"])
        self._last = dict(state["last"])
        self._totals = {}
