"""The audit of a private run: no false alarm on the engine, and broken engines are found out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from privet.audits.canary_run import ITSELF, RunAudit
from privet.data.dataset import Bounds, Split
from privet.engine.account import Unpaid
from privet.engine.canaries import DiracCanaries
from privet.engine.examples import Examples
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.privacy.clipping import FastClipper, cross_entropy
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import Randomness
from privet.privacy.sampling import PoissonSampler

PLAN = Plan(
    steps=12,
    sampling_rate=0.5,
    clip_norm=0.5,
    noise_multiplier=2.0,
    normaliser=9.0,
    delta=1e-5,
)
WIDTH = 40


class Nobody:
    """Where a run on made-up records comes from."""


def audited(seed, *, canaries=400, plan=PLAN):
    """One run of the engine on a few made-up records."""
    rng = np.random.default_rng(0)
    records = Split(x=rng.random((20, WIDTH)).astype(np.float32), y=rng.integers(0, WIDTH, 20))
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    put_in = DiracCanaries.drawn(
        plan, canaries, WIDTH * (WIDTH + 1), torch.Generator().manual_seed(seed)
    )
    trainer = PrivateTrainer(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        examples=Examples.of(records, Bounds(low=(0.0,), high=(1.0,)), torch.device("cpu")),
        plan=plan,
        clipper=FastClipper(model, cross_entropy, plan.clip_norm),
        randomness=Randomness.seeded(seed),
        account=Unpaid(),
        origin=Nobody(),
        canaries=put_in,
    )
    for batch in trainer.batches():
        trainer.step(batch)
    return RunAudit.of(put_in, subject=ITSELF)


@pytest.fixture(scope="module")
def many():
    return [audited(seed) for seed in range(200)]


def test_no_false_alarm_on_the_engine(many):
    """At 95 % each bound is above the truth in at most 10 of 200 trials; more than 21 have a
    chance below 0.001. At 99.9 % a refutation is to be expected in 0.2 of 200."""
    truth = PLAN.running_epsilon(PLAN.steps)
    for place in (0, 1):
        above = sum(audit.evidence[place].epsilon > truth for audit in many)
        assert above <= 21
    assert sum(audit.refuted for audit in many) <= 3


def test_the_bound_is_not_empty(many):
    """An audit that finds nothing would pass the test above."""
    truth = PLAN.running_epsilon(PLAN.steps)
    free, gdp = (np.mean([audit.evidence[i].epsilon for audit in many]) for i in (0, 1))
    assert 0.1 * truth < free < gdp < truth


def test_rows_say_what_was_audited(many):
    row, other = many[0].rows()
    assert row["basis"] == other["basis"] == "audited"
    assert (row["subject"], row["canaries"], row["runs"]) == (ITSELF, 400, 1)
    assert (row["adjacency"], row["unit"], row["delta"]) == ("add-remove", "example", 1e-5)
    assert row["refutes"] is False
    assert len(row["assumptions"]) == 1 < len(other["assumptions"])


def quarter_noise(patch):
    add_to = GaussianNoise.add_to

    def weaker(self, total, *, step, stream):
        noisy = add_to(self, total, step=step, stream=stream)
        return total.double() + (noisy - total.double()) / 4

    patch.setattr(GaussianNoise, "add_to", weaker)


def same_noise(patch):
    """Only where the sums are the same; so the sums are hidden from it as well."""
    add_to, first = GaussianNoise.add_to, []

    def reused(self, total, *, step, stream):
        first.append(add_to(self, total, step=0, stream=stream) - total.double())
        return total.double() + first[0]

    patch.setattr(GaussianNoise, "add_to", reused)


def everybody(patch):
    """Every unit in every step, and the plan accounts for half."""
    patch.setattr(
        PoissonSampler, "draw", lambda self, n, *, step, stream: np.arange(n, dtype=np.int64)
    )


@pytest.mark.parametrize(
    ("broken", "changes"),
    [(quarter_noise, {"noise_multiplier": 6.0}), (everybody, {"sampling_rate": 0.1})],
)
def test_broken_engines_are_refuted(monkeypatch, broken, changes):
    plan = replace(PLAN, **changes)
    assert not audited(0, canaries=1500, plan=plan).refuted
    broken(monkeypatch)
    found = audited(0, canaries=1500, plan=plan)
    assert found.refuted
    assert found.rows()[0]["refutes"] is True


def test_reused_noise_is_not_seen_by_canaries(monkeypatch):
    """Said as it is: a sum over the steps sees the same noise many times, and grows slower than
    noise that averages out. Audits of the mechanism find it (`mutants`)."""
    same_noise(monkeypatch)
    assert not audited(0, canaries=1500).refuted
