"""The newest version of a model as a release, with a trust card that `privet verify` accepts.

The unit is a device. What the card cannot know is stated as assumed: that devices are people, that
the server keeps to what it says. The figure is that of the whole plan, also where the model goes on
being trained: what was published until now is a part of what the plan accounts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from privet.engine.assumptions import SERVED
from privet.engine.handover import provenance_of
from privet.federation.card import events_for, facts_of, guarantees, mechanism_of, withheld
from privet.federation.flat import load_flat
from privet.federation.server.fleet_ledger import fleet_of, fleet_snapshot
from privet.federation.server.opening import network_for
from privet.federation.server.plan import ModelPlan
from privet.federation.server.served import ServedModel
from privet.privacy.events import to_json
from privet.privacy.participation import FEDERATION
from privet.release import CUSTOM, Release
from privet.training.recipes import tuning_of
from privet.verification.federation import UNSTATED_START

NO_LEDGER = "none: the records are on the devices, and no ledger knows of them"


def export(
    model: ServedModel, folder: Path, *, server: str, own: Callable[[], nn.Module] | None = None
) -> Path:
    """Save it in a new folder; `own`: makes the network of a plan that names none."""
    return released(model, server=server, own=own).save(folder)


def released(
    model: ServedModel, *, server: str, own: Callable[[], nn.Module] | None = None
) -> Release:
    """The newest version with its card; without an epsilon where the noise is not secret."""
    plan, secret = model.plan, model.keys.randomness.secret
    network = network_for(plan, own)
    load_flat(network, model.coordinator.weights)
    data = data_facts_of(plan, model, server)
    events = events_for((), plan.privacy)
    config = plan.settings.on_card()
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": plan.settings.rule,
        "analysis": "none" if plan.privacy is None else "sound",
        "data": data,
        "privacy": [],
        "withheld": withheld(plan.privacy, secret=secret),
        "tuning": tuning_of(None, data["name"], config).to_json(),
        "mechanism": mechanism_of(plan.settings, plan.privacy, steps_run=_rounds_run(model)),
        FEDERATION: facts_of(plan.settings, model.coordinator) | {SERVED: _served(model, server)},
        "events": [{"label": label, "event": to_json(event)} for label, event in events],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": provenance_of(
            network,
            digest=_digest(model, server, data),
            run_id=model.keys.run_id,
            init_seed=_seed(plan),
            config=config,
        ),
    }
    if plan.privacy is not None and secret:
        proved = guarantees(trust, [event for _, event in events], plan.settings.delta)
        trust["privacy"] = [guarantee.to_json() for guarantee in proved]
    return Release(model=network.eval(), config=_config(data, plan), trust=trust)


def _seed(plan: ModelPlan) -> int | None:
    """Of first weights that it alone makes again."""
    made = plan.release is None and plan.settings.model != CUSTOM
    return plan.settings.init_seed if made else None


def data_facts_of(plan: ModelPlan, model: ServedModel, server: str) -> dict[str, Any]:
    """What is public about the records of all devices: the entry of `trust.json`."""
    return {
        "name": fleet_of(server),
        "unit": model.account.unit,
        "grouped": True,
        "nominal_size": plan.population or max(1, len(model.coordinator.times)),
        "classes": list(plan.classes),
        "bounds": {"low": list(plan.low), "high": list(plan.high)},
        "shape": list(plan.shape),
        "features": [],
        "licence": f"on the {model.account.unit}s",
        "test_is_public": False,
        "learned": [],
    }


def _config(data: dict[str, Any], plan: ModelPlan) -> dict[str, Any]:
    taken = ("shape", "features", "classes", "bounds")
    facts = {name: data[name] for name in taken}
    return {"format": "privet-config/1", "model": plan.settings.model, **facts}


def _rounds_run(model: ServedModel) -> int:
    """Rounds that ended by themselves; one that was rolled back made no sum."""
    return model.coordinator.round - model.coordinator.rolled_back


def _served(model: ServedModel, server: str) -> dict[str, Any]:
    plan, coordinator = model.plan, model.coordinator
    return {
        "server": server,
        "version": coordinator.version,
        "rounds_run": _rounds_run(model),
        "rolled_back": coordinator.rolled_back,
        "finished": coordinator.stopped,
        "secure_sum": plan.secure_sum,
        "start": None if plan.release is None else plan.public_start or UNSTATED_START,
    }


def _digest(model: ServedModel, server: str, data: dict[str, Any]) -> str:
    ledger = model.account.ledger
    if ledger is None:
        return NO_LEDGER
    return ledger.commitment(fleet_snapshot(server), model.keys.run_id, facts=data)
