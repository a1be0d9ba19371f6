"""TransDenoiser's noise rule does not keep its claim; with noise in full it would."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from privet.audits.mechanism import audit_mechanism, refutes, scores_of
from privet.audits.papers.transdenoiser import EPSILON, TransDenoiser, claimed, updates
from privet.audits.registry import find_subject
from privet.guarantee import Adjacency
from privet.privacy import moments
from privet.training.published.transformation import Transformation, squared_errors

RUNS = 2_000


class InFull(TransDenoiser):
    """What is left of the paper: xi_up, whatever the records are."""

    def explicit_noise(self, factors):
        return np.full(factors.shape, self.xi_up)


class Scalar(nn.Module):
    """g(z) = theta z."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(theta, dtype=torch.float64))

    def forward(self, z):
        return self.theta * z


def test_the_claim_is_the_accountants():
    subject, setting = updates(), TransDenoiser()
    assert (subject.epsilon, subject.delta) == (pytest.approx(1.0), 1e-5)
    assert subject.adjacency is Adjacency.ADD_REMOVE
    assert setting.rate == 0.0008
    assert claimed() == pytest.approx(0.936, abs=1e-3)
    assert claimed() <= EPSILON
    # What a set of one record, used in each of 20,000 steps, would be told.
    alone = moments.epsilon(noise_multiplier=2.0, rate=1.0, steps=20_000, delta=1e-5)
    assert alone > 5_000


@pytest.mark.parametrize(("theta", "record"), [(0.0, 1.0), (1.0, 0.9), (0.3, 0.5)])
def test_the_closed_forms_are_those_of_the_trainer(theta, record):
    """Gradients by autograd, A by the transformation that trains."""
    setting, denoiser = TransDenoiser(theta=theta, record=record), Scalar(theta)
    gradients, factors = setting.gradients(50, np.random.default_rng(0))
    b = setting.sigma * np.random.default_rng(0).standard_normal(50)
    for k in range(50):
        x = torch.tensor([[record]], dtype=torch.float64)
        loss = squared_errors(denoiser(x + b[k]), x).sum()
        (slope,) = torch.autograd.grad(loss, denoiser.theta)
        a = 1 / max(1.0, abs(float(slope)))
        assert factors[k] == pytest.approx(a)
        assert gradients[k] == pytest.approx(a * float(slope))
    part = Transformation.of(denoiser, (denoiser.theta,))
    m = part.covariance(x, torch.tensor([0.5], dtype=torch.float64), batch=32)
    credit = math.sqrt(200_000 * float(m)) * 0.25
    expected = 0.0 if credit >= 2 else math.sqrt(4 - credit**2)
    assert setting.explicit_noise(np.array([0.5])) == pytest.approx(expected)


def test_the_scalar_example():
    """One record in every step: no noise is added, and the data decide what there is."""
    for record, deviation in ((1.0, 0.449), (0.9, 0.415)):
        alone = TransDenoiser(
            theta=1.0, record=record, batch=1, images=1, steps=20_000, seen=20_000
        )
        found = alone.updates(True, 10, np.random.default_rng(1))
        assert float(found.std(axis=1).mean()) == pytest.approx(deviation, abs=0.002)
        assert float(found.std(axis=1).max() - found.std(axis=1).min()) < 0.02
        _, factors = alone.gradients(1000, np.random.default_rng(2))
        assert float(alone.explicit_noise(factors).max()) == 0.0
    # 70.7 is credited where 0.45 is.
    assert math.sqrt(20_000 * 4) * 0.25 == pytest.approx(70.7, abs=0.02)


def test_an_update_with_the_record_has_no_noise():
    setting = TransDenoiser(images=32)
    found = setting.updates(True, 5, np.random.default_rng(0))
    exact = np.isclose(found, -1.0, rtol=0, atol=1e-12)
    # All steps have it here; the gradient is -2 (1 + b), clipped unless b < -1/2, 2.3 %.
    assert float(exact.mean()) == pytest.approx(0.977, abs=0.004)
    without = setting.updates(False, 5, np.random.default_rng(0))
    assert float(without.std()) == pytest.approx(2.0, abs=0.04)
    assert not np.isclose(without, -1.0, rtol=0, atol=1e-12).any()


def test_the_first_steps_refute_the_claim_for_the_whole_run():
    subject = find_subject("transdenoiser")
    scores = scores_of(subject, RUNS, 0)
    # Missed only where the record is in none of 10,000 samples: exp(-0.977 * 8).
    missed = float((scores.with_ < -1e-12).mean())
    assert missed == pytest.approx(math.exp(-7.8), abs=0.002)
    assert float(scores.without.max()) < -1e-12
    evidence = audit_mechanism(subject, runs=RUNS)
    assert refutes(evidence, subject)
    assert evidence.epsilon > 4.0


def test_with_noise_in_full_the_same_audit_finds_nothing():
    subject = replace(updates(), sample=InFull())
    evidence = audit_mechanism(subject, runs=RUNS)
    assert not refutes(evidence, subject)
    assert evidence.epsilon < claimed()
    # Nor does one that learns what to look for.
    learned = audit_mechanism(replace(subject, statistic=None), runs=RUNS)
    assert not refutes(learned, subject)
