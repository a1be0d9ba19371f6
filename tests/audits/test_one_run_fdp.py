"""One run against a curve: the recursion is optimal, no mechanism exceeds it, and its power."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linprog

from privet.audits import one_run, one_run_gaussian, refuted
from privet.audits.gaussian import GDP, gaussian_epsilon
from privet.audits.one_run import Guesses, guess
from privet.audits.one_run_fdp import mu_lower, refutes
from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian, Laplace, poisson_subsampled, self_compose

sys.path.insert(0, str(Path(__file__).parent))
from estimating import DELTA, MOST, canaries, false_alarms, most_correct, mu_for

FIXED = settings(derandomize=True, deadline=None, max_examples=40)


def shifted_by(lines):
    """Least probability under a neighbour, by the supporting lines (eps, delta) alone."""

    def shifted(r):
        rising = max(math.exp(-e) * (r - d) for e, d in lines)
        return max(0.0, rising, max(1 - d - math.exp(e) * (1 - r) for e, d in lines))

    return shifted


def largest_tail(shifted, m, r, v):
    """The least level at which so many correct guesses are refuted."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if refutes(shifted, Guesses(m, r, v), middle) else (middle, high)
    return high


def largest_tail_by_programme(lines, m, r, v):
    """Maximise P[v or more] over all laws of the number of correct guesses; a linear programme."""
    k = np.arange(r + 1)
    rows, limits = [], []
    for i in range(1, r + 1):
        right, wrong = np.where(k >= i, k, 0) / m, np.where(k >= i - 1, r - k, 0) / m
        for (
            e,
            d,
        ) in lines:  # wrong >= e^-eps (right - delta), wrong >= 1 - delta - e^eps (1 - right)
            rows += [math.exp(-e) * right - wrong, math.exp(e) * right - wrong]
            limits += [math.exp(-e) * d, math.exp(e) - 1 + d]
    found = linprog(
        -(k >= v).astype(float), np.array(rows), limits, np.ones((1, r + 1)), [1.0], method="highs"
    )
    return -found.fun


def largest_tail_by_all_sets(lines, m, r, v):
    """The same with sum_w max(0, w p_w - e^eps (r - w + 1) p_(w-1)) <= m delta for every line."""
    size = r + 1 + len(lines) * r
    gain, whole = np.zeros(size), np.zeros((1, size))
    gain[v : r + 1], whole[0, : r + 1] = -1.0, 1.0
    rows, limits = [], []
    for j, (e, d) in enumerate(lines):
        start = r + 1 + j * r
        budget = np.zeros(size)
        budget[start : start + r] = 1.0 / m
        rows, limits = [*rows, budget], [*limits, d]
        for w in range(1, r + 1):
            row = np.zeros(size)
            row[w], row[w - 1], row[start + w - 1] = w, -math.exp(e) * (r - w + 1), -1.0
            rows, limits = [*rows, row], [*limits, 0.0]
    found = linprog(gain, np.array(rows), limits, whole, [1.0], method="highs")
    return -found.fun


def lines_of(curve, epsilons=(0.0, 0.3, 1.0, 2.0, 3.0)):
    return [(e, curve.delta(e)) for e in epsilons]


class TestRecursion:
    @pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
    @pytest.mark.parametrize(("m", "r"), [(10, 10), (40, 12), (30, 30)])
    def test_it_is_the_optimum(self, mu, m, r):
        """Against a linear programme that knows nothing of the order of mass."""
        lines = lines_of(Gaussian(mu))
        for v in (r // 2 + 1, r - 2, r - 1, r):
            exact = largest_tail_by_programme(lines, m, r, v)
            assert largest_tail(shifted_by(lines), m, r, v) == pytest.approx(exact, abs=1e-7)

    @pytest.mark.parametrize(("mu", "v"), [(0.8, 59), (1.2, 60)])
    def test_more_constraints_would_add_little(self, mu, v):
        """The theorem holds for every set of numbers, not only for "i or more": all at once."""
        lines = lines_of(Gaussian(mu), np.linspace(0.0, 6.0, 13))
        exact = largest_tail_by_all_sets(lines, 600, 60, v)
        found = largest_tail(shifted_by(lines), 600, 60, v)
        assert exact - 1e-9 <= found <= 1.2 * exact

    @pytest.mark.parametrize(("m", "r"), [(1, 1), (2, 2), (3, 3), (3, 2)])
    @pytest.mark.parametrize("mu", [0.5, 1.5])
    def test_no_mechanism_exceeds_it(self, m, r, mu):
        """All mechanisms with these lines on up to three coins."""
        lines = lines_of(Gaussian(mu), (0.0, 1.0, 2.0))
        for v in range(1, r + 1):
            bound = largest_tail(shifted_by(lines), m, r, v)
            assert most_correct(m, r, v, lines) <= bound + 1e-7

    def test_one_coin_is_the_definition(self):
        """P[right] = Phi(mu/2) is the best that mu-GDP allows on one coin."""
        best = largest_tail(Gaussian(1.3).shifted, 1, 1, 1)
        assert best == pytest.approx(stats.norm.cdf(0.65), abs=1e-8)

    @given(st.floats(0.1, 3.0), st.floats(0.05, 1.0), st.integers(1, 60), st.data())
    @FIXED
    def test_a_smaller_mu_is_refuted_too(self, mu, less, r, data):
        v = data.draw(st.integers(0, r))
        if refutes(Gaussian(mu).shifted, Guesses(2 * r, r, v), 0.05):
            assert refutes(Gaussian(mu * less).shifted, Guesses(2 * r, r, v), 0.05)

    @pytest.mark.parametrize(
        ("m", "r", "v", "epsilon"),
        [
            (5000, 250, 248, 5.213243153143473),
            (5000, 500, 492, 5.218854960002443),
            (1000, 1000, 760, 1.9153890453164772),
            (100, 20, 20, 3.2393925462725313),
        ],
    )
    def test_equals_jax_privacy(self, m, r, v, epsilon):
        """jax-privacy 2.0.0, _epsilon_one_run_fdp(0, m, r, v, 0.05, 1e-5); its sigma is rounded."""
        found = gaussian_epsilon(mu_lower(Guesses(m, r, v), 0.05), 1e-5)
        assert found == pytest.approx(epsilon, rel=2e-3)


class TestOneRunGaussian:
    @pytest.mark.parametrize("strategy", ["bonferroni", "split"])
    @pytest.mark.parametrize("epsilon", [2, 8])
    def test_false_alarms(self, strategy, epsilon):
        mu = mu_for(epsilon)

        def estimate(seed):
            scores, coins = canaries(seed, 500, mu)
            return one_run_gaussian(scores, coins, delta=DELTA, strategy=strategy).epsilon

        assert false_alarms(estimate, epsilon) <= MOST

    def test_it_says_more_than_a_single_epsilon(self):
        """5,000 canaries, eps = 8: above 4.4 where `one_run` has about 3.4."""
        found = [canaries(seed, 5000, mu_for(8)) for seed in range(10)]
        curves = [one_run_gaussian(*run, delta=DELTA).epsilon for run in found]
        points = [one_run(*run, delta=DELTA).epsilon for run in found]
        assert np.mean(curves) > 4.4
        assert all(c > p for c, p in zip(curves, points, strict=True))

    def test_it_names_its_assumption(self):
        assert GDP in one_run_gaussian(*canaries(0, 50, 1.0), delta=DELTA).assumptions

    def test_no_leak_no_bound(self):
        assert one_run_gaussian(*canaries(4, 2000, 0.0), delta=DELTA).epsilon == 0.0


class TestSharesHaveAPrice:
    """A second share that can show nothing halves the level of the first."""

    @pytest.fixture
    def run(self):
        return canaries(0, 2000, 2.0)

    @pytest.fixture
    def alone(self, run):
        return mu_lower(guess(*run, 0.1, 0.5), 0.05)

    @pytest.fixture
    def beside(self, run):
        return mu_lower(guess(*run, 0.1, 0.5), 0.025)

    def test_of_a_bound(self, run, alone, beside):
        for shares, mu in (((0.1,), alone), ((0.1, 0.001), beside)):
            found = one_run_gaussian(*run, delta=DELTA, shares=shares).epsilon
            assert found == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-5)

    def test_of_a_refutation(self, run, alone, beside):
        between = Gaussian((alone + beside) / 2)
        assert refuted(between, *run, confidence=0.95, shares=(0.1,)) is not None
        assert refuted(between, *run, confidence=0.95, shares=(0.1, 0.001)) is None


class TestRefuted:
    @pytest.mark.parametrize("curve", [Gaussian(1.0), Laplace(1.0)], ids=["gaussian", "laplace"])
    def test_a_true_curve_is_spared(self, curve):
        def alarm(seed):
            rng = np.random.default_rng(seed)
            coins = rng.random(1000) < 0.5
            noise = rng.standard_normal if isinstance(curve, Gaussian) else rng.laplace
            found = refuted(curve, noise(size=1000) + coins, coins, confidence=0.95)
            return float(found is not None)

        assert false_alarms(alarm, 0.5) <= MOST

    def test_a_curve_too_good_is_refuted(self):
        scores, coins = canaries(0, 5000, 2.0)
        found = refuted(Gaussian(0.8), scores, coins)
        assert found is not None
        assert found.correct <= found.made <= found.canaries == 5000
        assert refuted(Gaussian(2.0), scores, coins) is None

    def test_a_numerical_curve_is_tested_as_well(self):
        """Twenty steps on a Poisson sample, claimed; the scores have mu = 2."""
        claimed = self_compose(poisson_subsampled(4.0, 0.1, interval=1e-3), 20)
        assert refuted(claimed, *canaries(1, 5000, 2.0)) is not None
        assert refuted(claimed, *canaries(1, 5000, 0.1)) is None

    def test_scores_that_know_the_coins_refute(self):
        """Scores that are the coins: the assumption fails, and every modest curve with it."""
        _, coins = canaries(0, 2000, 0.0)
        assert refuted(Gaussian(1.0), coins.astype(float), coins) is not None


def test_nonsense_is_refused():
    with pytest.raises(InputError):
        one_run_gaussian([1.0, 2.0], [0, 1], delta=0.0)
    with pytest.raises(InputError):
        refuted(Gaussian(1.0), [1.0, 2.0], [0, 1], confidence=1.0)
