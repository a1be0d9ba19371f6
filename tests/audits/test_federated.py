"""Canary clients: the proof of participation is not contradicted, and the audit comes near it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, kstest

from privet.audits.federated import FEDERATED, Canaries
from privet.audits.federated_mutants import FEDERATED_MUTANTS
from privet.audits.mechanism import Subject, audit_mechanism, refutes

TRIALS, ALARMS = 40, 8  # at 95 %: more than 8 alarms in 40 have probability below 0.001


def test_the_stated_error_of_this_file() -> None:
    assert binom.sf(ALARMS, TRIALS, 0.05) < 0.001


def _made(name: str) -> Subject:
    return {**FEDERATED, **FEDERATED_MUTANTS}[name].make()


@pytest.mark.parametrize("name", FEDERATED)
def test_the_proved_epsilon_is_rarely_contradicted(name: str) -> None:
    subject = _made(name)
    assert subject.epsilon == pytest.approx(1.0, abs=1e-3)
    accused = sum(
        refutes(audit_mechanism(subject, runs=2000, confidence=0.95, seed=seed), subject)
        for seed in range(TRIALS)
    )
    assert accused <= ALARMS


@pytest.mark.parametrize(
    ("name", "estimator", "least"),
    [
        ("federation-capped", "two-worlds", 0.5),
        ("federation-capped", "gaussian", 0.85),
        ("federation-banded", "two-worlds", 0.5),
        ("federation-banded", "gaussian", 0.85),
        ("federation-sampled", "two-worlds", 0.35),
    ],
)
def test_the_audit_comes_near_the_proof(name: str, estimator: str, least: float) -> None:
    """Proved is 1; a canary that the coordinator lost on the way would show 0."""
    evidence = audit_mechanism(_made(name), estimator=estimator, confidence=0.999, seed=3)
    assert least <= evidence.epsilon <= 1.0


@pytest.mark.parametrize("name", FEDERATED_MUTANTS)
def test_a_broken_federation_is_caught(name: str) -> None:
    """At 99.9 %; of a sound one, one in a thousand would be accused."""
    subject = _made(name)
    evidence = audit_mechanism(subject, confidence=0.999, seed=1)
    assert refutes(evidence, subject)
    assert subject.flaw


@pytest.mark.parametrize("name", FEDERATED)
def test_runs_side_by_side_are_what_single_runs_are(name: str) -> None:
    """400 coordinators of one run each, with the noise that is released in earnest."""
    subject = _made(name)
    run, statistic = subject.sample, subject.statistic
    assert isinstance(run, Canaries)
    assert statistic is not None
    for included in (False, True):
        single = np.concatenate([run(included, 1, 1000 + seed) for seed in range(400)])
        together = run(included, 20_000, 7)
        assert kstest(statistic(single), statistic(together)).pvalue > 1e-3
        spread = together.reshape(len(together), -1, 2)[..., 1].std(0)
        assert (
            np.abs(spread - single.reshape(400, -1, 2)[..., 1].std(0)).max() < 0.25 * spread.max()
        )


def test_a_canary_takes_part_as_its_cap_and_its_coins_let_it() -> None:
    """Without noise worth the name: what is seen along the canary's direction, step by step."""
    silent = {}
    for name in FEDERATED:
        run = _made(name).sample
        assert isinstance(run, Canaries)
        quiet = replace(run, privacy=replace(run.privacy, multiplier=1e-9))
        silent[name] = quiet(True, 2000, 0).reshape(2000, -1, 2).round(6)
    np.testing.assert_array_equal(silent["federation-capped"][0, :, 0], [1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(silent["federation-banded"][0, :, 0], [1, 0, 1, 0, 1, 0])
    coins = silent["federation-sampled"]
    assert set(np.unique(coins)) == {0.0, 1.0}
    # 6,000 coins at one half of the canary, and as many of the other: five deviations are 0.033.
    assert np.abs(coins.reshape(-1, 2).mean(0) - 0.5).max() < 0.033
    assert abs(np.corrcoef(coins.reshape(-1, 2).T)[0, 1]) < 0.06
