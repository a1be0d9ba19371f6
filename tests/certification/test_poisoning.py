"""Certificates against poisoned records: closed forms, oracles and a simulated mechanism."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.certification.poisoning import (
    accuracy_after_poisoning,
    after_changes,
    certified_records,
    mean_lower,
    runs_for_mean,
)
from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian, Laplace, Stated, TradeOff, compose

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
PROBABILITIES = st.floats(0.0, 1.0)


class Plain(TradeOff):
    """A curve without its name, so that steps are taken one by one."""

    def __init__(self, inner: TradeOff) -> None:
        self.inner = inner

    def delta(self, epsilon: float) -> float:
        return self.inner.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        return self.inner.epsilon(delta)

    def beta(self, alpha: float) -> float:
        return self.inner.beta(alpha)

    def pld(self, interval: float = 1e-4):
        return self.inner.pld(interval)


@FIXED
@given(st.floats(0.05, 1.5), st.integers(1, 8), PROBABILITIES)
def test_k_steps_of_a_gaussian_are_one_of_k_mu(mu, k, p):
    """Dong, Roth and Su: exact. Catches one step too many or few, and 1 - f composed wrongly."""
    exact = float(stats.norm.cdf(stats.norm.ppf(p) - k * mu))
    for curve in (Gaussian(mu), Plain(Gaussian(mu))):
        found = after_changes(curve, k, p)
        assert exact - 1e-9 <= found <= exact + 1e-15


@FIXED
@given(st.floats(0.05, 1.5), st.integers(1, 8), PROBABILITIES)
def test_k_steps_of_laplace_are_one_of_k_shifts(shift, k, p):
    exact = Laplace(k * shift).shifted(p)
    assert exact - 1e-9 <= after_changes(Laplace(shift), k, p) <= exact + 1e-13


@FIXED
@given(st.floats(0.05, 1.0), st.floats(0.0, 0.01), st.integers(1, 5), PROBABILITIES)
def test_a_statement_is_no_worse_than_the_textbooks_group_privacy(epsilon, delta, k, p):
    """(k eps, delta (e^(k eps) - 1) / (e^eps - 1)): what iterating the definition gives."""
    total = delta * math.expm1(k * epsilon) / math.expm1(epsilon)
    found = after_changes(Stated(epsilon, delta), k, p)
    lost = 1 - p
    above = 1 - (math.exp(k * epsilon) * lost + total)
    below = math.exp(-k * epsilon) * (p - total)
    assert found >= max(0.0, above, below) - 1e-9
    # And exact along its first line, as long as that line is the higher one at every step.
    if math.exp((k - 1) * epsilon) * lost + total < (1 - delta) / (1 + math.exp(epsilon)):
        assert found == pytest.approx(above, abs=1e-9)


@pytest.fixture(params=["gaussian", "laplace", "stated", "mixed"])
def curve(request) -> TradeOff:
    return {
        "gaussian": Gaussian(0.3),
        "laplace": Laplace(0.2),
        "stated": Stated(0.2, 1e-4),
        "mixed": compose([Laplace(0.1), Gaussian(0.2)]),
    }[request.param]


def test_more_records_and_less_accuracy_are_never_better(curve):
    grid = [
        [accuracy_after_poisoning(curve, k, a) for a in np.linspace(0, 1, 21)] for k in range(6)
    ]
    table = np.array(grid)
    assert np.all(np.diff(table, axis=0) <= 1e-12)
    assert np.all(np.diff(table, axis=1) >= -1e-12)
    np.testing.assert_allclose(table[0], np.linspace(0, 1, 21))
    assert table.min() >= 0.0


def test_the_bound_of_a_mean_is_the_weakest_of_its_parts(curve):
    """Two inputs, always and never right, have mean 1/2; part by part one keeps nearly all."""
    parts = (after_changes(curve, 2, 0.99) + after_changes(curve, 2, 0.01)) / 2
    assert accuracy_after_poisoning(curve, 2, 0.5) <= parts + 1e-12


def test_certified_records_is_the_last_with_a_majority(curve):
    for p in (0.5, 0.51, 0.7, 0.95, 0.999):
        k = certified_records(curve, p)
        assert k == 0 or after_changes(curve, k, p) > 0.5
        assert after_changes(curve, k + 1, p) <= 0.5


@FIXED
@given(st.floats(0.01, 1.0), st.floats(0.5, 0.99999))
def test_certified_records_of_a_gaussian(mu, p):
    steps = float(stats.norm.ppf(p)) / mu
    k = certified_records(Gaussian(mu), p)
    if abs(steps - round(steps)) > 1e-6:
        assert k == max(0, math.floor(steps))
        assert certified_records(Plain(Gaussian(mu)), p) == k


def test_certified_records_at_the_ends():
    assert certified_records(Gaussian(0.1), 0.5) == 0
    assert certified_records(Gaussian(0.1), 0.3) == 0
    assert certified_records(Gaussian(1e-9), 0.9, most=50) == 50
    assert certified_records(Stated(0.0), 0.9, most=50) == 50  # independent of the data
    assert certified_records(Stated(0.0, 0.1), 0.9) == 3  # 0.1 + 4 * 0.1 is one half


def test_a_tiny_chance_of_failure_is_not_rounded_away():
    """1 - beta(1e-30) is 0 in doubles: sure to stay right would be a false promise."""
    assert after_changes(Plain(Gaussian(8.0)), 3, 1.0) < 1.0
    assert after_changes(Plain(Gaussian(1.0)), 1, 1 - 1e-15) <= float(stats.norm.cdf(7.95 - 1.0))


def test_a_gaussian_mechanism_keeps_at_least_what_is_certified_and_no_more():
    """Mean of bounded records plus noise, then a threshold: the attack that is worst for it.

    200,000 trainings; standard error 0.0012, tolerance 5 of them. The certificate is exact here,
    so a mu that is off by a tenth fails on one side or the other.
    """
    sigma, n = 4.0, 200_000
    rng = np.random.default_rng(0)
    clean = np.r_[np.ones(20), np.zeros(20)]  # records in [0, 1]; add/remove sensitivity 1

    def accuracy(records: np.ndarray) -> float:
        models = records.sum() + rng.normal(0, sigma, n)
        return float(np.mean(models > 15.0))  # right above the threshold, on a test set of one

    before = accuracy(clean)
    for k in (1, 4, 8):
        certified = accuracy_after_poisoning(Gaussian(1 / sigma), k, before)
        assert accuracy(clean[k:]) == pytest.approx(certified, abs=0.009)  # k ones removed
        assert accuracy(np.r_[clean, np.ones(k)]) >= certified
    k = certified_records(Gaussian(1 / sigma), before)
    assert k in (4, 5)  # the threshold is 5 records away; at 5 the majority is a coin
    assert accuracy(clean[4:]) > 0.5 > accuracy(clean[6:])


@FIXED
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.floats(1e-6, 0.5))
def test_mean_lower_is_below_the_mean_and_stronger_than_hoeffding(values, alpha):
    mean = float(np.mean(values))
    found = mean_lower(values, alpha)
    assert 0 <= found <= mean + 1e-12
    assert found >= mean - math.sqrt(math.log(1 / alpha) / (2 * len(values))) - 1e-6


def test_mean_lower_covers_as_often_as_it_says():
    """Coins are the worst law; exact coverage by summing the binomial law, no simulation."""
    for n in (1, 3, 10):
        for mean in (0.05, 0.3, 0.8, 0.97):
            miss = sum(
                stats.binom.pmf(k, n, mean)
                for k in range(n + 1)
                if mean_lower([1.0] * k + [0.0] * (n - k), 0.1) > mean
            )
            assert miss <= 0.1
    assert mean_lower([1.0] * 10, 0.1) == pytest.approx(0.1 ** (1 / 10), rel=1e-6)
    assert mean_lower([0.95], 0.05) == pytest.approx(
        0.0347, abs=1e-4
    )  # 0.95 log(0.95/m) + ... = log 20


def test_senseless_arguments_are_refused():
    with pytest.raises(InputError, match="probability"):
        after_changes(Gaussian(1.0), 1, 1.5)
    with pytest.raises(InputError, match="records"):
        after_changes(Gaussian(1.0), -1, 0.5)
    with pytest.raises(InputError, match="statement"):
        Stated(-1.0, 0.0)
    with pytest.raises(InputError, match="results"):
        mean_lower([], 0.05)
    with pytest.raises(InputError, match="alpha"):
        mean_lower([0.5], 0.0)


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize(("mean", "wanted"), [(0.9, 0.45), (0.9, 0.85), (0.3, 0.1), (1.0, 0.9)])
def test_the_number_of_runs_is_the_least_that_reaches_the_bound(mean, wanted, alpha):
    n = runs_for_mean(mean, wanted, alpha)
    assert mean_lower([mean] * n, alpha) >= wanted
    assert mean_lower([mean] * (n - 1), alpha) < wanted
    if mean == 1.0:  # mean_lower is alpha^(1/n)
        assert n == math.ceil(math.log(alpha) / math.log(wanted))


def test_a_bound_above_the_mean_takes_no_number_of_runs():
    for wanted in (0.9, 0.95, 0.0, math.nan):
        with pytest.raises(InputError, match="bad bound"):
            runs_for_mean(0.9, wanted, 0.001)
