"""Try every kind of candidate on made-up records before anything is charged.

A trial that fails when it meets the data would waste the whole reservation, and the failure would
be an output that nobody accounted for.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from privet.data.dataset import Dataset, Split
from privet.engine.account import Unpaid
from privet.engine.handover import release_config
from privet.engine.plan import Plan
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training.dpsgd import build
from privet.training.settings import Settings
from privet.tuning.search import Search

RECORDS: Final = 8
# What decides whether a model can be trained at all; rates and norms do not.
DECISIVE: Final = ("model", "optimizer", "clipping", "augment", "views")


def rehearse(search: Search, plan: Plan, data: Dataset) -> None:
    """One step, and one prediction, of each kind of candidate; raises what would go wrong."""
    stand_in = made_up(data)
    seen = set()
    for settings in search.candidates():
        kind = tuple(getattr(settings, name) for name in DECISIVE)
        if kind not in seen:
            seen.add(kind)
            _rehearse_one(settings, plan, stand_in)


def made_up(data: Dataset) -> Dataset:
    """Records within the public bounds, of public classes, that have nothing else of the data."""
    rng = np.random.default_rng(0)
    low, high = np.asarray(data.bounds.low), np.asarray(data.bounds.high)
    x = low + (high - low) * rng.uniform(size=(RECORDS, *data.shape))
    units = None if data.train.units is None else np.arange(RECORDS)
    split = Split(x=x, y=np.arange(RECORDS) % len(data.classes), units=units)
    return replace(data, train=split, test=split)


def _rehearse_one(settings: Settings, plan: Plan, data: Dataset) -> None:
    everyone = Plan(
        steps=1,
        sampling_rate=1.0,
        clip_norm=settings.clip_norm,
        noise_multiplier=plan.noise_multiplier,
        normaliser=plan.normaliser,
        delta=plan.delta,
    )
    trainer = build(data, settings, everyone, randomness=Randomness.seeded(0), account=Unpaid())
    for batch in trainer.batches():
        trainer.step(batch)
    assert settings.model is not None
    config = release_config(data, settings.model)
    Release(model=trainer.released_model(), config=config, trust={}).predict(data.train.x)
