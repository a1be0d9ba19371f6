"""The audit of a private run: no false alarm on the engine, and broken engines are found out."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from privet.audits.canary_run import ITSELF, RunAudit
from privet.audits.one_run_fdp import refuted
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

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import run

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


def guessed(share, m=600):
    """Canaries of a run that has ended: of those that stand out, this share took part as guessed.

    All coins are fair; the scores follow them in so many cases and contradict them in the others.
    """
    rng = np.random.default_rng(0)
    coins = rng.random(m) < 0.5
    seen = np.where(np.arange(m) < share * m, coins, ~coins)
    scores = seen + 1e-3 * rng.random(m)
    plan = replace(PLAN, noise_multiplier=8.0)
    return SimpleNamespace(plan=plan, scores=torch.tensor(scores), included=torch.tensor(coins))


def test_only_what_is_beyond_doubt_refutes():
    """Guesses that are too good for the plan at 95 % refute nothing; at 99.9 % they do."""
    lucky, impossible = guessed(0.7), guessed(0.8)
    for canaries, refuting in ((lucky, [0.95]), (impossible, [0.95, 0.999])):
        found = RunAudit.of(canaries, subject=ITSELF)
        told = [
            c for c in (0.95, 0.999)
            if refuted(found.curve, found.scores, found.included, confidence=c) is not None
        ]  # fmt: skip
        assert told == refuting
        assert found.refuted == (0.999 in refuting)
        row = found.rows()[0]
        assert (row["refutes"], row["refuting_confidence"]) == (found.refuted, 0.999)


FUNCTION = """
import numpy as np

def train(x, y, seed):
    known = {image.tobytes(): label for image, label in zip(x, y)}
    rng = np.random.default_rng(seed)

    def predict(inputs):
        scores = rng.normal(size=(len(inputs), 11))
        labels = [known.get(image.tobytes(), 10) for image in inputs]
        scores[np.arange(len(inputs)), labels] += 2.0
        return scores[:, :10]

    return predict
"""


def test_a_function_is_refuted_beyond_doubt_alone(tmp_path, monkeypatch, capsys):
    """A claim between the bounds at 95 % and at 99.9 % stands; one below both does not."""
    (tmp_path / "leaky_for_a_test.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    asked = ["audit", "function", "leaky_for_a_test:train", "--data", "digits", "--json"]

    def bound(confidence):
        assert run(*asked, "--confidence", confidence) == 0
        return json.loads(capsys.readouterr().out)["bounds"][0]["epsilon"]

    likely, sure = bound(0.95), bound(0.999)
    assert 0.01 < sure < likely - 0.05
    for claimed, code in (((sure + likely) / 2, 0), (0.9 * sure, 1)):
        assert run(*asked, "--epsilon", claimed) == code
        assert json.loads(capsys.readouterr().out)["refuted"] is bool(code)


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
