from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from privet.data.dataset import Bounds, Dataset, Split
from privet.engine.account import RunAccount
from privet.engine.averaging import WeightAverage
from privet.engine.examples import Examples
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.ledger import Ledger
from privet.privacy.clipping import FastClipper, cross_entropy
from privet.privacy.randomness import Randomness

PLAN = {
    "steps": 6,
    "sampling_rate": 0.3,
    "clip_norm": 0.5,
    "noise_multiplier": 1.1,
    "normaliser": 9.0,
    "delta": 1e-5,
}


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.db")
    opened.register("toy", unit="example", snapshot="s", rows=[b"0" * 16])
    yield opened
    opened.close()


@pytest.fixture
def make_plan():
    return lambda **changes: Plan(**(PLAN | changes))


@dataclass
class Maker:
    """Builds trainers on made-up vectors; everything is fixed by its arguments."""

    ledger: Ledger
    records: int = 30

    def split(self, records):
        rng = np.random.default_rng(0)
        x = rng.uniform(0, 1, (200, 5)).astype(np.float32)
        y = rng.integers(0, 3, 200)
        if records > 200:
            x, y = np.tile(x, (10, 1)), np.tile(y, 10)
        return Split(x=x[:records], y=y[:records])

    def data(self, records=None, order=None):
        split = self.split(records or self.records)
        if order is not None:
            split = Split(x=split.x[order], y=split.y[order])
        return Dataset(
            name="toy",
            train=split,
            test=self.split(10),
            bounds=Bounds(low=(0.0,), high=(1.0,)),
            classes=("a", "b", "c"),
            nominal_size=30,
            licence="none",
            source="made up",
            test_is_public=True,
        )

    def model(self, dropout=False):
        torch.manual_seed(11)
        middle = [nn.Dropout(0.5)] if dropout else []
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), *middle, nn.Linear(8, 3))

    def __call__(
        self,
        *,
        records=None,
        order=None,
        seed=7,
        model=None,
        loss=cross_entropy,
        journal=None,
        account=None,
        kind=PrivateTrainer,
        clipper=None,
        optimizer=None,
        randomness=None,
        average=None,
        augmentation=None,
        canaries=None,
        **plan_changes,
    ):
        plan, data = Plan(**(PLAN | plan_changes)), self.data(records, order)
        model = self.model() if model is None else model
        account = account or RunAccount.open(
            self.ledger, "toy", plan, label="test", private=False, journal=journal
        )
        return kind(
            model=model,
            optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            examples=Examples.of(data.train, data.bounds, torch.device("cpu")),
            plan=plan,
            clipper=clipper or FastClipper(model, loss, plan.clip_norm),
            randomness=randomness or Randomness.seeded(seed),
            account=account,
            origin=Origin.of(data),
            average=average and WeightAverage(model, average),
            augmentation=augmentation,
            canaries=canaries,
        )


@pytest.fixture
def make_trainer(ledger):
    return Maker(ledger)


@pytest.fixture
def tools():
    """Weights and gradients of a model as flat vectors, and a whole run."""

    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()

    def update(model):
        return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()

    def run(trainer, until=None):
        for batch in trainer.batches():
            trainer.step(batch)
            if until is not None and trainer.next_step >= until:
                break

    return SimpleNamespace(weights=weights, update=update, run=run)
