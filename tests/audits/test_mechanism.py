"""The auditor's side: statistics, learned on runs of their own, and what refutes a claim."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from privet.audits.evidence import Evidence
from privet.audits.mechanism import (
    LEARNING_SHARE,
    audit_mechanism,
    refutes,
    scores_of,
)
from privet.audits.statistics import along, best_learned, learned
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.tradeoff import Gaussian

sys.path.insert(0, str(Path(__file__).parent))
from estimating import gaussian_subject


def test_the_worlds_are_drawn_apart_and_repeatably():
    seeds = []

    def sample(included, runs, seed):
        seeds.append(seed)
        return np.random.default_rng(seed).standard_normal((runs, 1))

    subject = gaussian_subject([0.0], sample=sample, statistic=along([1.0]))
    scores = scores_of(subject, 2000, seed=5)
    again = scores_of(subject, 2000, seed=5)
    assert len(set(seeds)) == 2
    assert abs(np.corrcoef(scores.without, scores.with_)[0, 1]) < 0.1
    np.testing.assert_array_equal(scores.with_, again.with_)


@pytest.mark.parametrize("name", ["means", "covariances", "peaks", "learned"])
def test_what_is_learned_is_not_tested_on_the_same_runs(name):
    """60 coordinates of noise, the same in both worlds: nothing may be found.

    At 95 % more than 9 alarms in 60 trials have probability below 0.001. Learning on the tested
    runs finds a score that separates them each time: the planted mistake.
    """
    assert binom.sf(9, 60, 0.05) < 0.001
    subject = gaussian_subject([0.0] * 60)
    honest, planted = 0, 0
    for seed in range(60):
        scores = scores_of(subject, 500, seed, statistic=name)
        assert len(scores.without) == 500 - int(LEARNING_SHARE * 500)
        honest += _gap(scores.without, scores.with_) > 1.645
        rows = [np.random.default_rng([seed, i]).standard_normal((500, 60)) for i in (0, 1)]
        score = best_learned(*rows, 1e-5)[1] if name == "learned" else learned(name, *rows)
        planted += _gap(*map(score, rows)) > 1.645
    assert honest <= 9
    assert planted == 60


def _gap(without, with_):
    """Between the means, in standard errors."""
    error = math.sqrt(without.var() / len(without) + with_.var() / len(with_))
    return (with_.mean() - without.mean()) / error


def test_what_is_chosen_is_not_chosen_by_the_tested_runs():
    """A sound mechanism of 12 coordinates, every statistic tried: at 95 % it is accused rarely."""
    subject = gaussian_subject([0.1] * 12, claim=Gaussian(0.1 * math.sqrt(12)))
    accused = sum(
        refutes(audit_mechanism(subject, runs=2000, confidence=0.95, seed=seed), subject)
        for seed in range(60)
    )
    assert accused <= 9


def test_the_statistic_that_shows_most_is_chosen_and_named():
    subject = gaussian_subject([0.0] * 20, spread=[1.5] * 20)
    assert scores_of(subject, 20_000, 0).statistic in ("learned spreads", "learned covariances")
    assert scores_of(gaussian_subject([4.0]), 2000, 0, statistic="means").statistic == "means"
    assert "learned" in audit_mechanism(subject, runs=2000).attack


def test_a_constant_coordinate_that_differs_is_found():
    def sample(included, runs, seed):
        noise = np.random.default_rng(seed).standard_normal((runs, 1))
        return np.hstack([noise, np.full((runs, 1), 0.25 if included else 0.0)])

    evidence = audit_mechanism(gaussian_subject([0.0], sample=sample), runs=5000)
    assert evidence.epsilon > 5.0  # every run is told apart; the number of runs limits the bound


def test_evidence_says_what_was_done():
    subject = gaussian_subject([3.0], statistic=along([1.0]), adjacency=Adjacency.ZERO_OUT)
    evidence = audit_mechanism(subject, runs=1000, confidence=0.95)
    assert isinstance(evidence, Evidence)
    assert (evidence.runs, evidence.canaries, evidence.delta) == (2000, 1, 1e-5)
    assert (evidence.adjacency, evidence.subject) == (Adjacency.ZERO_OUT, "made-up")
    assert evidence.confidence == 0.95
    assert "known" in evidence.attack


def test_a_claim_is_refuted_above_its_epsilon_alone():
    far = gaussian_subject([4.0], statistic=along([1.0]))
    evidence = audit_mechanism(far, runs=5000)
    assert refutes(evidence, far)
    honest = gaussian_subject([4.0], statistic=along([1.0]), claim=Gaussian(4.0))
    assert not refutes(evidence, honest)


def test_what_rests_on_a_shape_refutes_nothing():
    far = gaussian_subject([4.0], statistic=along([1.0]))
    assumed = audit_mechanism(far, runs=5000, estimator="gaussian")
    assert assumed.epsilon > 10.0
    assert not refutes(assumed, far)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": 10}, "too few runs"),
        ({"estimator": "guess"}, "unknown estimator"),
        ({"statistic": "guess"}, "unknown statistic"),
        ({"statistic": "known"}, "names no statistic"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        audit_mechanism(gaussian_subject([0.0]), **({"runs": 500} | changes))


def test_outputs_that_cannot_be_scored_are_refused():
    def sample(included, runs, seed):
        return np.full((runs, 1), np.nan)

    with pytest.raises(InputError, match="cannot be scored"):
        scores_of(gaussian_subject([0.0], sample=sample), 500, 0)
