"""The auditor's side: statistics, learned on runs of their own, and what refutes a claim."""

import math

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from privet.audits.evidence import Evidence
from privet.audits.mechanism import (
    LEARNING_SHARE,
    Stated,
    Subject,
    along,
    audit_mechanism,
    learned,
    refutes,
    sampled_shift,
    scores_of,
)
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.tradeoff import Gaussian


def gaussian_subject(shift, spread=None, **changes):
    """N(0, 1) in each coordinate; with the record N(shift, spread^2)."""
    shift = np.asarray(shift, dtype=float)
    spread = np.ones_like(shift) if spread is None else np.asarray(spread, dtype=float)

    def sample(included, runs, seed):
        z = np.random.default_rng(seed).standard_normal((runs, len(shift)))
        return shift + spread * z if included else z

    facts = {"name": "made-up", "claim": Stated(1.0, 1e-5), "pair": "made up", "sample": sample}
    return Subject(**(facts | changes))


@given(st.floats(0.01, 5.0), st.floats(1e-8, 0.3), st.floats(0.0, 6.0))
@settings(max_examples=60, deadline=None)
def test_a_bare_claim_has_the_profile_of_dp_accounting(epsilon, delta, at):
    claim = Stated(epsilon, delta)
    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    oracle = pld.from_privacy_parameters(parameters, value_discretization_interval=1e-4)
    # Pessimistic on its grid: at most a grid step above.
    low, high = (oracle.get_delta_for_epsilon(at + d) for d in (2e-4, 0.0))
    assert low - 1e-9 <= claim.delta(at) <= high + 1e-9


@given(st.floats(0.01, 5.0), st.floats(1e-8, 0.3), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_a_bare_claim_agrees_with_itself(epsilon, delta, alpha):
    claim = Stated(epsilon, delta)
    # f is the upper envelope of the lines of all (epsilon', delta(epsilon')).
    grid = np.linspace(0.0, epsilon, 400)
    deltas = np.array([claim.delta(e) for e in grid])
    rising = 1 - deltas - np.exp(grid) * alpha
    falling = np.exp(-grid) * (1 - deltas - alpha)
    assert claim.beta(alpha) == pytest.approx(max(0.0, rising.max(), falling.max()), abs=1e-12)
    assert claim.epsilon(claim.delta(epsilon / 2)) == pytest.approx(epsilon / 2, abs=1e-6)
    assert claim.epsilon(delta / 2) == math.inf
    assert claim.delta(epsilon + 1) == delta


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


def test_means_are_weighed_by_their_variance():
    """The best direction sees sqrt(sum shift^2 / variance); the plain difference of means less."""
    shift, spread = np.array([1.0, 1.0, 0.0]), np.array([1.0, 5.0, 1.0])

    def sample(included, runs, seed):
        z = np.random.default_rng(seed).standard_normal((runs, 3)) * spread
        return z + shift if included else z

    scores = scores_of(gaussian_subject(shift, sample=sample), 100_000, seed=0, statistic="means")
    seen = (scores.with_.mean() - scores.without.mean()) / scores.without.std()
    assert seen == pytest.approx(math.hypot(1.0, 1 / 5), abs=0.015)  # 2/sqrt(26) = 0.39 if plain


def test_spreads_see_what_means_do_not():
    subject = gaussian_subject([0.0] * 20, spread=[1.5] * 20)
    blind = audit_mechanism(subject, runs=20_000, statistic="means")
    seeing = audit_mechanism(subject, runs=20_000, statistic="spreads")
    # One direction is wider with the record, too; all twenty together are much more so.
    assert seeing.epsilon > blind.epsilon + 2.0


def test_what_is_learned_is_not_tested_on_the_same_runs():
    """200 coordinates of noise, the same in both worlds: nothing may be found.

    At 95 % more than 9 alarms in 60 trials have probability below 0.001. Learning on the tested
    runs finds a direction that separates them each time: the planted mistake.
    """
    assert binom.sf(9, 60, 0.05) < 0.001
    subject = gaussian_subject([0.0] * 200)
    honest, planted = 0, 0
    for seed in range(60):
        scores = scores_of(subject, 500, seed, statistic="means")
        assert len(scores.without) == 500 - int(LEARNING_SHARE * 500)
        honest += scores.with_.mean() - scores.without.mean() > 1.645 * _error(scores)
        rows = [np.random.default_rng([seed, i]).standard_normal((500, 200)) for i in (0, 1)]
        score = learned("means", *rows)
        gap = score(rows[1]).mean() - score(rows[0]).mean()
        planted += gap > 1.645 * math.sqrt(2 / 500) * score(rows[0]).std()
    assert honest <= 9
    assert planted == 60


def _error(scores):
    return math.sqrt(scores.without.var() / len(scores.without) + scores.with_.var() / 400)


def test_a_constant_coordinate_that_differs_is_found():
    def sample(included, runs, seed):
        noise = np.random.default_rng(seed).standard_normal((runs, 1))
        return np.hstack([noise, np.full((runs, 1), 0.25 if included else 0.0)])

    evidence = audit_mechanism(gaussian_subject([0.0], sample=sample), runs=5000)
    assert evidence.epsilon > 5.0  # every run is told apart; the number of runs limits the bound


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_the_score_of_a_sampled_shift_is_the_log_ratio_of_densities(rate):
    rows = np.random.default_rng(0).standard_normal((5, 6))
    score = sampled_shift([0.6, 0.8], steps=3, rate=rate, shift=0.7, noise=1.3, base=-0.2)
    by_hand = []
    for row in rows:
        total = 0.0
        for step in range(3):
            x = 0.6 * row[2 * step] + 0.8 * row[2 * step + 1]
            without, moved = norm.pdf(x, -0.2, 1.3), norm.pdf(x, 0.5, 1.3)
            total += math.log(((1 - rate) * without + rate * moved) / without)
        by_hand.append(total)
    np.testing.assert_allclose(score(rows), by_hand, rtol=1e-12)


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
