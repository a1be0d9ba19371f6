"""SecureSGD's public update does not keep its claim; with each record clipped it would."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privet.audits.mechanism import audit_mechanism, refutes, scores_of
from privet.audits.papers.securesgd import SecureSGD, bias, claimed_steps, weights
from privet.privacy import moments
from privet.privacy.tradeoff import Gaussian

RUNS = 20_000


class ClippedEach(SecureSGD):
    """What the text says. All others have no gradient on W, so the mean times B is the record's."""

    def clipped(self, mean):
        return super().clipped(mean * self.batch) / self.batch


def test_the_arithmetic():
    setting = SecureSGD()
    assert setting.steps == 440
    assert setting.rate == 0.0025
    assert setting.true_multiplier == 0.016  # accounted: 4
    shift = 1 / (4 / 125 * math.sqrt(440))
    assert shift == pytest.approx(1.49, abs=0.005)
    assert Gaussian(shift).epsilon(1e-5) == pytest.approx(7.0, abs=0.05)


def test_the_claimed_steps_are_those_of_the_moments_accountant():
    setting, steps = SecureSGD(), claimed_steps()
    assert steps == 102_878
    says = [
        moments.epsilon(noise_multiplier=4.0, rate=setting.rate, steps=n, delta=1e-5)
        for n in (steps, steps + 1)
    ]
    assert says[0] <= 1.0 < says[1]


def test_one_epoch_refutes_the_claim_for_the_whole_run():
    subject = weights()
    scores = scores_of(subject, RUNS, 0)
    spread = 0.1 * 0.001 * 4 / 125 * math.sqrt(440 * 2)
    assert scores.without.std() == pytest.approx(spread, rel=0.03)
    assert scores.without.mean() == pytest.approx(0.0, abs=0.04 * spread)
    # Moved by the learning rate times C along (-1, 1) / sqrt(2): every gradient is cut to C.
    assert scores.with_.mean() == pytest.approx(0.1 * 0.001 * math.sqrt(2), rel=0.03)
    evidence = audit_mechanism(subject, runs=RUNS)
    assert refutes(evidence, subject)
    assert 2.0 < evidence.epsilon < 7.0


def test_the_bias_tells_every_run_apart():
    subject = bias()
    evidence = audit_mechanism(subject, runs=RUNS)
    assert refutes(evidence, subject)
    assert evidence.epsilon > 6.0


def test_with_each_record_clipped_the_same_audit_finds_nothing():
    subject = replace(weights(), sample=ClippedEach())
    assert not refutes(audit_mechanism(subject, runs=RUNS), subject)


def test_one_record_may_turn_a_clipped_mean_round():
    """Why the sensitivity is 2 C: the others' mean is on one side, and on the other with it."""
    setting = SecureSGD()
    others, record = np.array([[-0.01, 0.0]]), np.array([[0.02, 0.0]])
    moved = setting.clipped(others + record) - setting.clipped(others)
    assert np.linalg.norm(moved) == pytest.approx(2 * setting.clip_norm)
