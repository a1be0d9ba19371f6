"""From a finished trainer to a release: what is said about it, and on what basis."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import dp_accounting as dp
import numpy as np
from scipy.stats import binomtest
from torch import nn

from privet.data.dataset import Dataset
from privet.data.identity import set_digest
from privet.engine.plan import ASSUMPTIONS
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy
from privet.privacy.accounting import DpEvent, total_epsilon
from privet.privacy.events import to_json
from privet.release import CUSTOM, Release

WHEN_REDONE = "when the run was interrupted did not depend on the records"
KNOWN_NOISE = "sampling and noise were drawn from a known seed: whoever knows it can undo them"


def hand_over(
    trainer: PrivateTrainer,
    data: Dataset,
    *,
    method: str = "dpsgd",
    model_name: str = CUSTOM,
    config: Mapping[str, Any] | None = None,
) -> Release:
    """State what is proved about the trainer's model; close the run in the ledger.

    A run that stopped early is covered by its whole plan: what was seen is a part of what the
    plan accounts. No further step can follow.
    """
    release = state(trainer, data, method=method, model_name=model_name, config=config)
    trainer.account.settle()
    return release


def state(
    trainer: PrivateTrainer,
    data: Dataset,
    *,
    method: str,
    model_name: str,
    config: Mapping[str, Any] | None,
) -> Release:
    """The release, while the run stays open: a run with a folder is closed once it is saved."""
    trainer.require_unchanged_buffers()
    _require_same_data(trainer, data)
    events = _events(trainer, data)
    withheld = [] if trainer.randomness.secret else [KNOWN_NOISE]
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": method,
        "analysis": "sound",
        "data": _data_facts(data),
        "privacy": [] if withheld else [g.to_json() for g in _guarantees(trainer, data, events)],
        "withheld": withheld,
        "mechanism": _mechanism(trainer),
        "events": [{"label": label, "event": to_json(event)} for label, event in events],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": _provenance(trainer, data, config or {}),
    }
    release = Release(model=trainer.model, config=_config(data, model_name), trust=trust)
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def _require_same_data(trainer: PrivateTrainer, data: Dataset) -> None:
    trained_on = trainer.account.ledger.run(trainer.account.run_id).dataset
    if trained_on != data.name:
        raise InputError(
            "the trainer was given other data", got=f"'{data.name}'", expected=f"'{trained_on}'"
        )


def accuracy_figures(release: Release, data: Dataset) -> dict[str, Any]:
    """Accuracy on the test records, with its exact 95 % interval."""
    correct = int((release.predict(data.test.x) == data.test.y).sum())
    interval = binomtest(correct, len(data.test)).proportion_ci(0.95, method="exact")
    return {
        "test_accuracy": correct / len(data.test),
        "test_examples": len(data.test),
        "interval95": [float(interval.low), float(interval.high)],
    }


def private_figures(release: Release, data: Dataset) -> dict[str, Any]:
    """Figures on private records: for the curator's eyes, never for the release."""
    hits = release.predict(data.train.x) == data.train.y
    figures = {"train_accuracy": float(np.mean(hits)), "train_examples": len(data.train)}
    return figures | ({} if data.test_is_public else accuracy_figures(release, data))


def _events(trainer: PrivateTrainer, data: Dataset) -> list[tuple[str, DpEvent]]:
    learned = [
        (f"learned: {fact.name}", dp.LaplaceDpEvent(1.0 / fact.epsilon)) for fact in data.learned
    ]
    steps = trainer.plan.steps + trainer.account.redone_steps
    return [*learned, ("train", trainer.plan.event(steps))]


def _guarantees(
    trainer: PrivateTrainer, data: Dataset, events: list[tuple[str, DpEvent]]
) -> list[Privacy]:
    redone = trainer.account.redone_steps > 0
    assumptions = (*ASSUMPTIONS, WHEN_REDONE) if redone else ASSUMPTIONS
    return [
        Privacy(
            epsilon=total_epsilon([e for _, e in events], trainer.plan.delta, adjacency),
            delta=trainer.plan.delta,
            unit=data.unit,
            adjacency=adjacency,
            basis=Basis.PROVED,
            accountant="pld" if len(events) == 1 else "pld, plus pure epsilons of learned facts",
            sampler=trainer.plan.sampler.name,
            assumptions=assumptions,
        )
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    ]


def _mechanism(trainer: PrivateTrainer) -> dict[str, Any]:
    return {
        "sampler": trainer.plan.sampler.name,
        "sampling_rate": trainer.plan.sampling_rate,
        "steps": trainer.plan.steps,
        "steps_run": trainer.next_step,
        "redone_steps": trainer.account.redone_steps,
        "clip_norm": trainer.plan.clip_norm,
        "noise_multiplier": trainer.plan.noise_multiplier,
        "normaliser": trainer.plan.normaliser,
    }


def _data_facts(data: Dataset) -> dict[str, Any]:
    return {
        "name": data.name,
        "unit": data.unit,
        "nominal_size": data.nominal_size,
        "classes": list(data.classes),
        "bounds": {"low": list(data.bounds.low), "high": list(data.bounds.high)},
        "shape": list(data.shape),
        "features": list(data.features),
        "licence": data.licence,
        "test_is_public": data.test_is_public,
        "learned": [{"name": f.name, "epsilon": f.epsilon} for f in data.learned],
    }


def _provenance(
    trainer: PrivateTrainer, data: Dataset, config: Mapping[str, Any]
) -> dict[str, Any]:
    ledger, run_id = trainer.account.ledger, trainer.account.run_id
    return {
        **{name: version(name) for name in ("privet", "torch", "dp-accounting")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "init_seed": trainer.randomness.init_seed,
        "data_digest": ledger.commitment(set_digest(data, ledger.digest_key), run_id),
        "run": run_id,
        "model": _model_summary(trainer.model),
        "config": dict(config),
    }


def _model_summary(model: nn.Module) -> dict[str, Any]:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def _config(data: Dataset, model_name: str) -> dict[str, Any]:
    return {
        "format": "privet-config/1",
        "model": model_name,
        "shape": list(data.shape),
        "features": list(data.features),
        "classes": list(data.classes),
        "bounds": {"low": list(data.bounds.low), "high": list(data.bounds.high)},
    }
