"""What the models of a server cost its devices, in the ledger.

One account for the whole fleet, `fleet:<server>`, whose unit is a device: a cap on it holds for all
models together. Each model is one run: reserved before its first round, charged before the noise of
a sum is drawn. Beside the charges stands how often each device was in each run, under keyed
digests; from that follows what a single device has spent, for the curator's eyes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, final

import dp_accounting as dp

from privet.engine.account import Account, RunAccount, Unpaid
from privet.errors import CheckFailed, InputError
from privet.federation.charging import StepAccount
from privet.federation.coordinator import Coordinator
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.plan import ModelPlan
from privet.ledger import Ledger, RunRecord
from privet.privacy.accounting import DpEvent, epsilon_of
from privet.privacy.participation import adjacencies

FLEET: Final = "fleet:"
DEVICE: Final = "device"


def fleet_of(server: str) -> str:
    """The ledger's name of a server's devices."""
    return f"{FLEET}{server}"


def fleet_snapshot(server: str) -> str:
    """What stands for the records of all devices, which nobody has in one place."""
    return f"{fleet_of(server)}: the records on its devices"


@final
class FleetAccount:
    """One model's run in the ledger."""

    def __init__(self, ledger: Ledger | None, plan: ModelPlan, keys: ModelKeys) -> None:
        self.ledger, self.run_id, self._plan = ledger, keys.run_id, plan
        self._steps = keys.steps

    @classmethod
    def open(
        cls, ledger: Ledger | None, *, server: str, plan: ModelPlan, keys: ModelKeys, begun: bool
    ) -> Self:
        """Reserve the whole plan, once; refused by the ledger if a cap does not fit it.

        A private model that has begun goes on with the ledger that knows of it, and no other: its
        caps would not hold there, and what was spent would be forgotten here.
        """
        account = cls(ledger, plan, keys)
        if ledger is None:
            if plan.privacy is not None:
                raise InputError("a private model needs a ledger", got=f"'{plan.name}' without one")
            return account
        event, turns = _turns(plan, secret=keys.randomness.secret)
        if not ledger.knows(keys.run_id):
            if begun and plan.privacy is not None:
                raise InputError(
                    f"the ledger does not know of '{plan.name}', which has begun",
                    got=f"no run {keys.run_id} in {ledger.path}",
                    expected="the ledger that it began with",
                    fix="set PRIVET_HOME to that one's folder, or restore it",
                )
            account._reserve(ledger, server, event, turns)
        run = ledger.run(keys.run_id)
        planned = (fleet_of(server), event, turns)
        if (run.dataset, run.step_event, run.planned) != planned:
            raise CheckFailed(f"run {run.id} of '{plan.name}' is not in the ledger as what it is")
        return account

    def _reserve(self, ledger: Ledger, server: str, event: DpEvent, turns: int) -> None:
        plan, name = self._plan, fleet_of(server)
        by_clock = plan.rule.pacing.by_clock or plan.privacy is None
        snapshot = fleet_snapshot(server)
        ledger.register(name, unit=DEVICE, grouped=True, snapshot=snapshot, rows=())
        ledger.reserve(
            name,
            label=plan.name,
            step_event=event,
            steps=turns,
            run_id=self.run_id,
            adjacency=adjacencies(by_clock=by_clock)[0],
        )
        if plan.privacy is None:
            ledger.charge(self.run_id, 0)

    def of_steps(self) -> Account:
        """What the coordinator asks for leave before each sum."""
        privacy = self._plan.privacy
        if self.ledger is None or privacy is None:
            return Unpaid()
        books = RunAccount(self.ledger, self.run_id, self._steps, durable=True)
        return StepAccount(books, privacy.participation)

    def require_noted(self, coordinator: Coordinator) -> None:
        """Refuse to go on where it could not be told whether a sum comes out as before."""
        if isinstance(coordinator.account, StepAccount):
            coordinator.account.books.require_noted(coordinator.sums)

    def require_newest(self, times: Mapping[str, int]) -> None:
        """Refuse a private model that is older than what was published of it.

        After an old backup its caps would begin again where they were, and let devices take part
        more often than is accounted.
        """
        if self.ledger is None or self._plan.privacy is None:
            return
        known = {self.ledger.unit_digest(name): n for name, n in times.items()}
        noted = self.ledger.participations(self.run_id)
        behind = sum(n > known.get(unit, 0) for unit, n in noted.items())
        if behind:
            raise InputError(
                f"'{self._plan.name}' is older than what was published of it",
                got=f"{behind} devices took part more often than its journal says",
                expected="the state, the store and the secrets that published it",
                fix="restore the newest ones, or give the model another name and a budget of its"
                " own",
            )

    def catch_up(self, coordinator: Coordinator) -> None:
        """Tell the ledger once more what was spent: it may be of an old backup."""
        self.note(dict(coordinator.times))
        if self.ledger is None or self.ledger.run(self.run_id).status != "open":
            return
        if coordinator.sums:
            coordinator.account.charge(coordinator.sums - 1)

    def note(self, times: dict[str, int]) -> None:
        """How often devices were in the run; to say it again changes nothing."""
        if self.ledger is not None and times:
            self.ledger.note_participations(self.run_id, times)

    def settle(self) -> None:
        """Training is over: what was never charged is given back."""
        if self.ledger is not None and self.ledger.run(self.run_id).status == "open":
            self.ledger.settle(self.run_id)


@final
@dataclass(frozen=True, kw_only=True)
class Odometer:
    """What one device has spent: by model, and in all."""

    by_model: dict[str, float]
    in_all: float


def spent_by_device(ledger: Ledger, server: str, device: str, *, delta: float) -> Odometer:
    """Epsilon of a device so far, zero-out neighbours; see `UserPrivacy.odometer`.

    For the curator alone: that a device took part less often than it may is a fact about it, and of
    one that goes by what it sees only the cap is proved.
    """
    unit, events = ledger.unit_digest(device), dict[str, list[DpEvent]]()
    if fleet_of(server) in ledger.names():
        for run in ledger.account(fleet_of(server)).runs:
            times = ledger.participations(run.id).get(unit, 0)
            events.setdefault(run.label, []).extend(_spent_in(run, times))
    by_model = {model: _epsilon(parts, delta) for model, parts in events.items()}
    return Odometer(
        by_model=by_model, in_all=_epsilon([e for parts in events.values() for e in parts], delta)
    )


def _turns(plan: ModelPlan, *, secret: bool) -> tuple[DpEvent, int]:
    """What is reserved: one turn, and how many; without proof one access without privacy."""
    if plan.privacy is None:
        return dp.NonPrivateDpEvent(), 1
    part = plan.privacy.participation
    turn = part.turn_event(plan.privacy.multiplier)
    return (turn if secret else dp.NonPrivateDpEvent()), part.turns


def _spent_in(run: RunRecord, times: int) -> list[DpEvent]:
    """Where the server throws the coins, every device spends alike, asked or not."""
    turns = run.charged if isinstance(run.step_event, dp.PoissonSampledDpEvent) else times
    return [dp.SelfComposedDpEvent(run.step_event, turns)] if turns else []


def _epsilon(events: list[DpEvent], delta: float) -> float:
    if not events:
        return 0.0
    if any(event.event == dp.NonPrivateDpEvent() for event in events):
        return math.inf
    return epsilon_of(dp.ComposedDpEvent(events), delta)
