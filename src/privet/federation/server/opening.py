"""A model in its first life, or in a later one: from a plan, or from snapshot and journal."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final

import torch
from torch import Tensor

from privet.errors import InputError
from privet.federation.coordinator import FIRST_VERSION, Accept, Coordinator
from privet.federation.flat import flat
from privet.federation.server.fleet_ledger import FleetAccount
from privet.federation.server.journal import Journal, Kind
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.federation.server.state import PlanRow, SnapshotRow, State
from privet.federation.server.store import Store
from privet.ledger import Ledger
from privet.models import create
from privet.release import Release


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a model lives; see `ModelHost.open`."""

    state: State
    store: Store
    secrets: Path
    ledger: Ledger | None
    server: str
    clock: Callable[[], float]
    accept: Accept | None = None

    def with_ledger(self, ledger: Ledger | None) -> Self:
        """The same with a ledger of the writer's own."""
        return replace(self, ledger=ledger)


def opened(plan: ModelPlan, place: Place, told: Callable[[], None]) -> ServedModel:
    """The model where it was, or new; a plan that differs is its next revision."""
    first = place.state.events(plan.name, most=1)
    if not first:
        return _begun(plan, place, told)
    Journal(place.state, plan.name).reopen()
    rows = place.state.plans(plan.name)
    plans = [ModelPlan.from_json(json.loads(row.text)) for row in rows]
    model = _made(plans, place, begun=True, epoch=first[0].fields["epoch"], told=told)
    snapshot = place.state.snapshot(plan.name)
    assert snapshot is not None, "a model is entered with its first snapshot"
    model.next_plan_from = rows[-1].from_round
    model.recover(snapshot)
    model.add_plan(plan)
    return model


def first_weights(plan: ModelPlan) -> Tensor:
    """Of a release, or drawn from the plan's seed."""
    assert plan.settings.model is not None
    if plan.release is None:
        seed = plan.settings.init_seed
        return flat(create(plan.settings.model, plan.shape, len(plan.classes), init_seed=seed))
    release = Release.load(plan.release)
    known = {
        "network": (release.config["model"], plan.settings.model),
        "shape": (tuple(release.config["shape"]), plan.shape),
        "classes": (tuple(release.config["classes"]), plan.classes),
    }
    for what, (there, here) in known.items():
        if there != here:
            raise InputError(f"the release has another {what}", got=there, expected=str(here))
    return flat(release.model)


def _begun(plan: ModelPlan, place: Place, told: Callable[[], None]) -> ServedModel:
    """Everything is on disk before the first line of the journal says that there is a model."""
    model = _made([plan], place, begun=False, epoch=place.clock(), told=told)
    model.account.require_newest(model.coordinator.times)  # else its state was lost
    version = model.versions.put(
        FIRST_VERSION, model.coordinator.weights, plan=plan.digest, at=model.journal.at
    )
    event = model.journal.event(Kind.OPENED, 0.0, epoch=model.epoch, plan=plan.digest)
    model.journal.passed(event)
    snapshot: SnapshotRow = model.written_snapshot()
    row = PlanRow(model=plan.name, revision=0, digest=plan.digest, text=plan.text)
    with place.state.transaction(durable=True):
        place.state.add_plan(row)
        model.journal.write(event)
        place.state.put_version(version)
        place.state.put_snapshot(snapshot)
    model.forget_behind(snapshot)
    return model


def _made(
    plans: list[ModelPlan],
    place: Place,
    *,
    begun: bool,
    epoch: float,
    told: Callable[[], None],
) -> ServedModel:
    plan = plans[0]
    plan.require_runnable()
    keys = ModelKeys.of(plan, place.secrets, begun=begun)
    account = FleetAccount.open(
        place.ledger, server=place.server, plan=plan, keys=keys, begun=begun
    )
    coordinator = Coordinator(
        first_weights(plan) if not begun else torch.zeros(_size(plan)),
        plan.rule,
        rounds=plan.settings.rounds,
        privacy=plan.privacy,
        stream=None if plan.privacy is None else keys.randomness.noise,
        accept=place.accept or _all_finite,
        secure_sum=plan.secure_sum,
    )
    coordinator.account = account.of_steps()
    return ServedModel(
        plans,
        coordinator,
        state=place.state,
        store=place.store,
        keys=keys,
        account=account,
        epoch=epoch,
        told=told,
    )


def _size(plan: ModelPlan) -> int:
    """Of the vector that travels; the weights themselves are in the snapshot."""
    assert plan.settings.model is not None
    return flat(create(plan.settings.model, plan.shape, len(plan.classes))).numel()


def _all_finite(weights: Tensor) -> bool:
    """The least that a version must be; under privacy it is made of what is published anyway."""
    return bool(torch.isfinite(weights).all())
