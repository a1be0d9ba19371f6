"""What a release says that was trained on randomised records."""

from dataclasses import asdict
from typing import Any

import dp_accounting as dp

from privet.data.dataset import Dataset
from privet.engine.assumptions import assumptions_of
from privet.engine.handover import (
    KNOWN_NOISE,
    accuracy_figures,
    data_facts,
    provenance,
    release_config,
)
from privet.engine.plain import PlainTrainer
from privet.engine.tuned import DECLARED
from privet.guarantee import Adjacency, Basis, Privacy
from privet.privacy.accounting import DpEvent, total_accountant, total_epsilon
from privet.privacy.events import to_json
from privet.privacy.local import LOCAL, RecordRandomiser
from privet.release import Release
from privet.training.books import Books
from privet.training.plain import PlainSettings


def stated(
    data: Dataset,
    trainer: PlainTrainer,
    *,
    method: str,
    randomiser: RecordRandomiser,
    settings: PlainSettings,
    books: Books,
    secret: bool,
) -> Release:
    """The release with its card; without an epsilon where the noise is not secret."""
    assert settings.model is not None
    events = _events(data, randomiser)
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": method,
        "analysis": "sound",
        "data": data_facts(data),
        "privacy": [],
        "withheld": [] if secret else [KNOWN_NOISE],
        "tuning": DECLARED.to_json(),
        "mechanism": mechanism_of(randomiser, data.nominal_size) | _training(trainer, settings),
        "events": [{"label": label, "event": to_json(event)} for label, event in events],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": provenance(
            data,
            trainer.whole,
            ledger=books.ledger,
            run_id=books.run_id,
            init_seed=settings.init_seed,
            config=asdict(settings) | {"noise_seed": None},
        ),
    }
    if secret:
        proved = _guarantees(data, [event for _, event in events], assumptions_of(trust))
        trust["privacy"] = [guarantee.to_json() for guarantee in proved]
    model, config = trainer.released_model(), release_config(data, settings.model)
    release = Release(model=model, config=config, trust=trust)
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def mechanism_of(randomiser: RecordRandomiser, places: int) -> dict[str, Any]:
    """What the card says of the randomised records."""
    return {
        "sampler": LOCAL,
        "places": places,
        "dimensions": randomiser.dimensions,
        "record_norm": randomiser.norm,
        "noise": "laplace",
        "noise_scale": randomiser.scale,
        "classes": randomiser.classes,
        "redrawn": randomiser.redrawn,
        "keep_probability": randomiser.keep_probability,
    }


def _training(trainer: PlainTrainer, settings: PlainSettings) -> dict[str, Any]:
    return {
        "steps": trainer.plan.steps,
        "steps_run": trainer.next_step,
        "batch": settings.batch,
        "precision": settings.precision,
    }


def _events(data: Dataset, randomiser: RecordRandomiser) -> list[tuple[str, DpEvent]]:
    learned = [
        (f"learned: {fact.name}", dp.LaplaceDpEvent(1.0 / fact.epsilon)) for fact in data.learned
    ]
    return [*learned, ("randomise", randomiser.event)]


def _guarantees(
    data: Dataset, events: list[DpEvent], assumptions: tuple[str, ...]
) -> list[Privacy]:
    return [
        Privacy(
            epsilon=total_epsilon(events, 0.0, adjacency),
            delta=0.0,
            unit=data.unit,
            adjacency=adjacency,
            basis=Basis.PROVED,
            accountant=total_accountant(events),
            sampler=LOCAL,
            assumptions=assumptions,
        )
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    ]
