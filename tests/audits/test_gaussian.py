"""The audit that assumes mu-GDP: known answers, false alarms, power, and where it would mislead."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.audits import gaussian
from privet.audits.gaussian import GDP, gaussian_epsilon, mu_lower, mu_of
from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian, Laplace

sys.path.insert(0, str(Path(__file__).parent))
from estimating import DELTA, MOST, false_alarms, mu_for, worlds

FIXED = settings(derandomize=True, deadline=None, max_examples=40)
STRATEGIES = ("split", "bonferroni")


@given(st.floats(0.05, 6.0), st.floats(1e-6, 1 - 1e-6))
@FIXED
def test_a_point_of_the_curve_gives_back_mu(mu, alpha):
    assert mu_of(alpha, stats.norm.cdf(stats.norm.isf(alpha) - mu)) == pytest.approx(mu, abs=1e-6)


@given(st.floats(0.05, 6.0), st.sampled_from([1e-3, 1e-5, 1e-8]))
@FIXED
def test_epsilon_is_not_rounded_up(mu, delta):
    """The profile at the stated epsilon is still above delta, but hardly."""
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon == 0.0 or Gaussian(mu).delta(epsilon) >= delta
    assert epsilon >= Gaussian(mu).epsilon(delta) * (1 - 1e-8)


def test_no_separation_gives_zero():
    bound = gaussian(*worlds(1, 1000, 0.0), delta=DELTA)
    assert bound.epsilon == 0.0
    assert GDP in bound.assumptions


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("epsilon", [1, 4, 8])
def test_false_alarms(strategy, epsilon):
    mu = mu_for(epsilon)

    def estimate(seed):
        return gaussian(*worlds(seed, 2000, mu), delta=DELTA, strategy=strategy).epsilon

    assert false_alarms(estimate, epsilon) <= MOST


def test_bounds_are_not_idle():
    """A hundred seeds at mu = 1: the bound is right, and most are within a tenth of the truth."""
    found = np.array([mu_lower(*worlds(seed, 20_000, 1.0)) for seed in range(100)])
    assert 0.9 < np.median(found) < 1.0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("epsilon", "share"), [(1, 0.78), (4, 0.90), (8, 0.93)])
def test_power_of_twenty_thousand_runs(strategy, epsilon, share):
    """The mean of twenty seeds; see the table in docs/methods/audits.md."""
    mu = mu_for(epsilon)
    found = [
        gaussian(*worlds(seed, 20_000, mu), delta=DELTA, strategy=strategy).epsilon
        for seed in range(20)
    ]
    assert share * epsilon <= np.mean(found)


def test_the_default_reaches_four_fifths():
    found = [gaussian(*worlds(seed, 20_000, mu_for(1)), delta=DELTA).epsilon for seed in range(40)]
    assert np.mean(found) >= 0.8


def test_the_assumption_matters():
    """Laplace noise is not Gaussian: its pure epsilon is 1, and the conversion says more than 1."""
    rng = np.random.default_rng(0)
    without, with_ = rng.laplace(size=200_000), rng.laplace(size=200_000) + 1.0
    assert Laplace(1.0).epsilon(DELTA) <= 1.0
    assert gaussian(without, with_, delta=DELTA).epsilon > 1.5


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sizes", [(4000, 500), (500, 4000)], ids=["fewer with", "fewer without"])
def test_worlds_of_unequal_size(strategy, sizes):
    """As few false alarms as stated, and a bound near mu = 2, whichever world is larger."""

    def estimate(seed):
        rng = np.random.default_rng(seed)
        pair = rng.standard_normal(sizes[0]), rng.standard_normal(sizes[1]) + 2.0
        return mu_lower(*pair, strategy=strategy)

    assert false_alarms(estimate, 2.0) <= MOST
    assert np.mean([estimate(seed) for seed in range(20)]) > 1.7


def test_point_estimates_are_caught():
    mu = mu_for(4)

    def estimate(seed):
        without, with_ = worlds(seed, 2000, mu)
        alpha, beta = np.mean(without >= mu / 2), np.mean(with_ < mu / 2)
        return gaussian_epsilon(float(mu_of(alpha, beta)), DELTA)

    assert false_alarms(estimate, 4.0) > MOST


@pytest.mark.parametrize("options", [{"delta": 0.0}, {"delta": DELTA, "strategy": "all"}])
def test_nonsense_is_refused(options):
    with pytest.raises(InputError):
        gaussian([0.0, 1.0], [1.0, 2.0], **options)


def test_the_bound_grows_with_the_confidence_given_up():
    without, with_ = worlds(0, 5000, 1.0)
    bounds = [mu_lower(without, with_, confidence=c) for c in (0.999, 0.95, 0.6)]
    assert bounds == sorted(bounds)
    assert math.isfinite(bounds[-1])
