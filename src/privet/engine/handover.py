"""From a finished trainer to a release: what is said about it, and on what basis."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, final

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch import nn

from privet.data.dataset import Dataset
from privet.data.identity import set_digest
from privet.engine.arguments import require_dataset, shown
from privet.engine.assumptions import assumptions_of
from privet.engine.fixed_parts import (
    FIELD,
    FixedPart,
    Labelled,
    counted_with,
    reasons_to_withhold,
)
from privet.engine.trainer import PrivateTrainer
from privet.engine.tuned import DECLARED, Tuning
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent, covers, total_accountant, total_epsilon
from privet.privacy.events import LIFELONG, of_several_lifetimes, to_json
from privet.release import CUSTOM, Release

KNOWN_NOISE = "sampling and noise were drawn from a known seed: whoever knows it can undo them"
RESAMPLES: Final = 2000


@final
@dataclass(frozen=True, kw_only=True)
class Lifelong:
    """A run that is one task of a stream: what a unit pays in all of it, and the card's field."""

    counted: tuple[str, DpEvent]
    facts: Mapping[str, Any]


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
    plan accounts. No further step can follow, and no second hand-over: what was stated of the
    weights holds for those of that moment.
    """
    require_dataset(data)
    _require_open(trainer)
    release = state(trainer, data, method=method, model_name=model_name, config=config)
    trainer.account.books.settle()
    return release


def state(
    trainer: PrivateTrainer,
    data: Dataset,
    *,
    method: str,
    model_name: str,
    config: Mapping[str, Any] | None,
    tuning: Tuning = DECLARED,
    model: nn.Module | None = None,
    fixed: Sequence[FixedPart] = (),
    lifetime: Lifelong | None = None,
) -> Release:
    """The release, while the run stays open: a run with a folder is closed once it is saved.

    Where this run is the best of several, `tuning` says so, and the guarantee is that of all.
    `model` is what is released where that is made of the trained model, without the records;
    `fixed` are the parts that this run did not learn; what one cost these records is counted.
    Where the run is one task of a stream, `lifetime` is what a unit pays in all of them.
    """
    trainer.untouched.require()
    trainer.require_unchanged_buffers()
    _require_same_data(trainer, data, tuning)
    own = _events(trainer, data, tuning) if lifetime is None else [lifetime.counted]
    events = counted_with(fixed, own)
    withheld = [
        *([] if trainer.randomness.secret else [KNOWN_NOISE]),
        *reasons_to_withhold(
            fixed,
            [e for _, e in events],
            trainer.plan.delta,
            trainer.plan.sampler.adjacencies[0],
            secret=trainer.randomness.secret,
        ),
    ]
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": method,
        "analysis": "sound",
        "data": data_facts(data),
        "privacy": [],
        "withheld": withheld,
        "tuning": tuning.to_json(),
        "mechanism": _mechanism(trainer),
        "events": [{"label": label, "event": to_json(event)} for label, event in events],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": provenance(
            data,
            trainer.model,
            ledger=trainer.account.books.ledger,
            run_id=trainer.account.books.run_id,
            init_seed=trainer.randomness.init_seed,
            config=config or {},
        ),
    }
    if fixed:
        trust[FIELD] = [part.to_json() for part in fixed]
    if lifetime is not None:
        trust[LIFELONG] = dict(lifetime.facts)
    if not withheld:
        proved = _guarantees(trainer, data, [e for _, e in events], trust)
        trust["privacy"] = [guarantee.to_json() for guarantee in proved]
    release = Release(
        model=trainer.released_model() if model is None else model,
        config=release_config(data, model_name),
        trust=trust,
    )
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def _require_open(trainer: object) -> None:
    if not isinstance(trainer, PrivateTrainer):
        raise InputError(
            "no trainer", got=shown(trainer), expected="what privet.make_private returned"
        )
    run = trainer.account.books.ledger.run(trainer.account.books.run_id)
    if run.status != "open":
        raise InputError(
            "the run was handed over already",
            got=f"run {run.id}, which is {run.status}",
            fix="keep the release of the first hand_over; a new run begins with make_private",
        )


def _require_same_data(trainer: PrivateTrainer, data: Dataset, tuning: Tuning) -> None:
    """A unit restated, a learned fact left out: the epsilon would be that of other data."""
    trained_on = trainer.account.books.ledger.run(trainer.account.books.run_id).dataset
    if trained_on != data.name:
        raise InputError(
            "the trainer was given other data", got=f"'{data.name}'", expected=f"'{trained_on}'"
        )
    trainer.origin.require(data, in_part=tuning.selected is not None)  # the rest scores


def accuracy_figures(release: Release, data: Dataset) -> dict[str, Any]:
    """Accuracy on the test records, with its exact 95 % interval."""
    hits = release.predict(data.test.x) == data.test.y
    return {
        "test_accuracy": float(hits.mean()),
        "test_examples": len(data.test),
        "interval95": _interval(hits, data.test.units),
    }


def _interval(hits: NDArray[np.bool_], units: NDArray[np.int64] | None) -> list[float]:
    """Exact (Clopper and Pearson) where records are independent; by resampling units otherwise."""
    if units is None:
        interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(0.95, method="exact")
        return [float(interval.low), float(interval.high)]
    counts, correct = np.bincount(units), np.bincount(units, weights=hits)
    drawn = np.random.default_rng(0).integers(0, len(counts), (RESAMPLES, len(counts)))
    accuracies = correct[drawn].sum(1) / counts[drawn].sum(1)
    return [float(q) for q in np.quantile(accuracies, [0.025, 0.975])]


def private_figures(release: Release, data: Dataset) -> dict[str, Any]:
    """Figures on private records: for the curator's eyes, never for the release."""
    if not data.labelled:
        return {"train_likelihood": _likelihood(release, data), "train_examples": len(data.train)}
    hits = release.predict(data.train.x) == data.train.y
    figures = {"train_accuracy": float(np.mean(hits)), "train_examples": len(data.train)}
    return figures | ({} if data.test_is_public else accuracy_figures(release, data))


def _likelihood(release: Release, data: Dataset) -> list[float]:
    """The mean of what a generator says of the records: negative log-likelihoods of its parts."""
    return [float(part) for part in release.scores(data.train.x).double().mean(0)]


def _events(trainer: PrivateTrainer, data: Dataset, tuning: Tuning) -> Labelled:
    learned = [
        (f"learned: {fact.name}", dp.LaplaceDpEvent(1.0 / fact.epsilon)) for fact in data.learned
    ]
    turns = trainer.plan.turns + trainer.account.books.redone_steps
    label = "train" if tuning.selected is None else "tune"
    return [*learned, (label, tuning.event(trainer.plan.event(turns)))]


def _guarantees(
    trainer: PrivateTrainer, data: Dataset, events: list[DpEvent], trust: Mapping[str, Any]
) -> list[Privacy]:
    plan, assumptions = trainer.plan, assumptions_of(trust)
    possible = plan.sampler.adjacencies
    if of_several_lifetimes(trust):  # the costliest was found for these neighbours alone
        possible = tuple(a for a in possible if a is Adjacency.ADD_REMOVE)
    return [
        Privacy(
            epsilon=total_epsilon(events, plan.delta, adjacency),
            delta=plan.delta,
            unit=data.unit,
            adjacency=adjacency,
            basis=Basis.PROVED,
            accountant=total_accountant(events),
            sampler=plan.sampler.name,
            assumptions=assumptions,
        )
        for adjacency in possible
        if all(covers(event, adjacency) for event in events)
    ]


def _mechanism(trainer: PrivateTrainer) -> dict[str, Any]:
    plan = trainer.plan
    return {
        "sampler": plan.sampler.name,
        "sampling_rate": plan.sampling_rate,
        "cycle": plan.cycle,
        "steps": plan.steps,
        "steps_run": trainer.next_step,
        "redone_steps": trainer.account.books.redone_steps,
        "clipping": trainer.geometry.to_json(),
        "clip_norm": plan.clip_norm,
        "precision": trainer.precision,
        "contribution": trainer.contribution,
        "noise": "correlated" if plan.bands else "independent",
        "bands": list(plan.bands),
        "noise_multiplier": plan.noise_multiplier,
        "normaliser": plan.normaliser,
        "torch_draws": trainer.draws_by_torch,
    }


def data_facts(data: Dataset) -> dict[str, Any]:
    """What is public about the data: the entry of `trust.json`."""
    return {
        "name": data.name,
        "unit": data.unit,
        "grouped": data.train.units is not None,
        "nominal_size": data.nominal_size,
        "classes": list(data.classes),
        "bounds": {"low": list(data.bounds.low), "high": list(data.bounds.high)},
        "shape": list(data.shape),
        "features": list(data.features),
        "licence": data.licence,
        "test_is_public": data.test_is_public,
        "learned": [{"name": f.name, "epsilon": f.epsilon} for f in data.learned],
    } | _schema_of(data)


def provenance(
    data: Dataset,
    model: nn.Module,
    *,
    ledger: Ledger,
    run_id: str,
    init_seed: int | None,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Where a release comes from: the entry of `trust.json`."""
    digest = ledger.commitment(set_digest(data, ledger.digest_key), run_id, facts=data_facts(data))
    return provenance_of(model, digest=digest, run_id=run_id, init_seed=init_seed, config=config)


def provenance_of(
    model: nn.Module,
    *,
    digest: str,
    run_id: str,
    init_seed: int | None,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """The same, where `digest` stands for the data."""
    return {
        **{name: version(name) for name in ("privet", "torch", "dp-accounting")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "init_seed": init_seed,
        "data_digest": digest,
        "run": run_id,
        "model": _model_summary(model),
        "config": dict(config),
    }


def _model_summary(model: nn.Module) -> dict[str, Any]:
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def release_config(data: Dataset, model_name: str) -> dict[str, Any]:
    """How to build the model and scale its inputs: `config.json`."""
    return {
        "format": "privet-config/1",
        "model": model_name,
        "shape": list(data.shape),
        "features": list(data.features),
        "classes": list(data.classes),
        "bounds": {"low": list(data.bounds.low), "high": list(data.bounds.high)},
    } | _schema_of(data)


def _schema_of(data: Dataset) -> dict[str, Any]:
    return {} if data.schema is None else {"schema": dict(data.schema)}
