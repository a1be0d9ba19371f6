"""What keeps its claim is not accused more often than stated, and the audit comes near it."""

import numpy as np
import pytest
from scipy.stats import binom, kstest

from privet.audits.mechanism import audit_mechanism, refutes
from privet.audits.sound import SOUND

TRIALS, ALARMS = 40, 8  # at 95 %: more than 8 alarms in 40 have probability below 0.001


def test_the_stated_error_of_this_file():
    assert binom.sf(ALARMS, TRIALS, 0.05) < 0.001


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_mechanism_is_rarely_accused(name):
    subject = SOUND[name].make()
    assert subject.epsilon == pytest.approx(1.0, abs=1e-3)
    accused = sum(
        refutes(audit_mechanism(subject, runs=4000, confidence=0.95, seed=seed), subject)
        for seed in range(TRIALS)
    )
    assert accused <= ALARMS


@pytest.mark.parametrize(
    ("name", "estimator", "least"),
    [
        ("gaussian", "two-worlds", 0.5),
        ("gaussian", "gaussian", 0.85),
        ("laplace", "two-worlds", 0.95),
        ("dpsgd-step", "two-worlds", 0.35),
        ("dpsgd-training", "two-worlds", 0.35),
    ],
)
def test_the_audit_comes_near_the_claim(name, estimator, least):
    """Claimed is 1; a score that looks the wrong way would find 0."""
    subject = SOUND[name].make()
    evidence = audit_mechanism(subject, estimator=estimator, seed=3)
    assert least <= evidence.epsilon <= 1.0


def test_the_subjects_are_the_noise_of_privet():
    rows = SOUND["gaussian"].make().sample(True, 20_000, 0)[:, 0]
    z = 1 / SOUND["gaussian"].make().claim.mu
    assert kstest((rows - 1) / z, "norm").pvalue > 1e-3
    laplace = SOUND["laplace"].make().sample(False, 20_000, 0)[:, 0]
    assert kstest(laplace, "laplace").pvalue > 1e-3
    assert np.unique(laplace).size == laplace.size
