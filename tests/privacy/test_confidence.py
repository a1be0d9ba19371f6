"""Bounds against scipy, exact enumeration and simulation at all times."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privet.errors import InputError
from privet.privacy.confidence import (
    SHAPE,
    Schedule,
    exceeds,
    log_e_value,
    lower_bound,
    lower_sequence,
    upper_bound,
)

FIXED = settings(derandomize=True, deadline=None, max_examples=60)


def least_crossing(draws, p0, alpha):
    """The least number of hits that crosses, for each number of draws; draws + 1 if none does."""
    low, high = np.zeros(len(draws), dtype=int), draws + 1
    while np.any(low < high):
        middle = (low + high) // 2
        crossed = exceeds(np.minimum(middle, draws), draws, p0, alpha) & (middle <= draws)
        low, high = (
            np.where(crossed | (low >= high), low, middle + 1),
            np.where(crossed, middle, high),
        )
    return high


def test_least_crossing_is_one():
    """The helper above, and that more hits never say less."""
    draws = np.array([1, 7, 50, 200])
    for n, least in zip(draws, least_crossing(draws, 0.8, 0.05), strict=True):
        crossed = exceeds(np.arange(n + 1), n, 0.8, 0.05)
        assert crossed.tolist() == (np.arange(n + 1) >= least).tolist()


@st.composite
def counts(draw, most=5000):
    n = draw(st.integers(1, most))
    return draw(st.integers(0, n)), n


class TestClopperPearson:
    @given(kn=counts(), alpha=st.sampled_from([0.001, 0.01, 0.05]))
    @FIXED
    def test_equals_scipys_interval(self, kn, alpha):
        k, n = kn
        lower = stats.binomtest(k, n, alternative="greater").proportion_ci(1 - alpha, "exact").low
        upper = stats.binomtest(k, n, alternative="less").proportion_ci(1 - alpha, "exact").high
        assert lower_bound(k, n, alpha) == pytest.approx(lower, rel=1e-9)
        assert upper_bound(k, n, alpha) == pytest.approx(upper, rel=1e-9)

    def test_edges(self):
        assert lower_bound(0, 10, 0.05) == 0.0
        assert upper_bound(10, 10, 0.05) == 1.0
        assert lower_bound(100_000, 100_000, 0.001) == pytest.approx(0.001 ** (1 / 100_000))
        assert upper_bound(0, 50, 0.05) == pytest.approx(1 - 0.05 ** (1 / 50))

    @given(kn=counts(100_000), alpha=st.sampled_from([1e-6, 0.001, 0.05]))
    @FIXED
    def test_is_rounded_to_the_safe_side(self, kn, alpha):
        k, n = kn
        bound = float(lower_bound(k, n, alpha))
        assert bound == 0.0 if k == 0 else stats.binom.sf(k - 1, n, bound) <= alpha * (1 + 1e-9)

    def test_many_at_once(self):
        together = lower_bound(np.array([3, 0, 10]), np.array([10, 5, 10]), 0.01)
        alone = [float(lower_bound(k, n, 0.01)) for k, n in ((3, 10), (0, 5), (10, 10))]
        assert together.tolist() == alone

    def test_impossible_counts_are_refused(self):
        with pytest.raises(InputError):
            lower_bound(11, 10, 0.05)


class TestEProcess:
    @given(kn=counts(60), p0=st.floats(0.05, 0.95))
    @FIXED
    def test_closed_form_is_the_mixture(self, kn, p0):
        k, n = kn

        def ratio(u):  # 1 - q = u (1 - p0), u from Beta(SHAPE, 1): substitute v = u^SHAPE
            miss = u ** (1 / SHAPE)
            q = 1 - miss * (1 - p0)
            return (q / p0) ** k * miss ** (n - k)

        mixture = integrate.quad(ratio, 0, 1, epsabs=0, limit=500)[0]
        assert math.exp(log_e_value(k, n, p0)) == pytest.approx(mixture, rel=1e-6)

    @pytest.mark.parametrize("p0", [0.5, 0.9, 0.977])
    @pytest.mark.parametrize("part", [1.0, 0.99, 0.5, 0.0])
    def test_is_a_supermartingale_under_the_null(self, p0, part):
        """The exact conditional mean after every history of up to 12 draws, for p <= p0."""
        p = part * p0
        for n in range(12):
            for k in range(n + 1):
                now = math.exp(log_e_value(k, n, p0))
                hit, miss = (math.exp(log_e_value(k + h, n + 1, p0)) for h in (1, 0))
                following = p * hit + (1 - p) * miss
                assert following <= now * (1 + 1e-12)
                if part == 1.0:
                    assert following == pytest.approx(now)

    def test_expectation_over_all_sequences_is_at_most_one(self):
        for p, p0 in ((0.5, 0.5), (0.6, 0.7), (0.7, 0.7)):
            total = sum(
                p ** sum(s) * (1 - p) ** (10 - sum(s)) * math.exp(log_e_value(sum(s), 10, p0))
                for s in itertools.product((0, 1), repeat=10)
            )
            assert total <= 1 + 1e-12

    def test_it_would_catch_a_mixture_that_is_not_cut_off(self):
        """With q below p0 the factor's mean exceeds 1 for p < p0: the check above is not idle."""
        p, p0, q = 0.3, 0.5, 0.4
        assert p * q / p0 + (1 - p) * (1 - q) / (1 - p0) > 1

    @pytest.mark.parametrize(("k", "n"), [(620, 1000), (99_900, 100_000), (9_780_000, 10**7)])
    def test_is_exact_for_large_counts(self, k, n):
        """In 60 digits; what the beta functions may err is below the reserve of 1e-6."""
        with mpmath.workdps(60):
            p0, s = mpmath.mpf("0.977") if k / n > 0.97 else mpmath.mpf("0.6"), mpmath.mpf(SHAPE)
            a, b = mpmath.mpf(k + 1), n - k + s
            tail = 1 - mpmath.betainc(a, b, 0, p0, regularized=True) if n <= 10**5 else None
            if tail is None:  # 6 standard errors above p0: the tail is 1 but for 1e-9
                assert stats.norm.sf((0.978 - 0.977) / math.sqrt(0.977 * 0.023 / n)) < 1e-9
                tail = mpmath.mpf(1)
            log_beta = mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)
            odds = k * mpmath.log(p0) + b * mpmath.log(1 - p0)
            exact = mpmath.log(s) + log_beta + mpmath.log(tail) - odds
        assert float(log_e_value(k, n, float(p0))) == pytest.approx(float(exact), abs=5e-7)

    def test_stays_finite_for_large_counts(self):
        values = log_e_value(np.array([0, 50_000, 10**6]), 10**6, 0.977)
        assert values[0] == values[1] == -np.inf
        assert values[2] == pytest.approx(-(10**6) * math.log(0.977), rel=1e-3)

    def test_the_level_holds_at_all_times(self):
        """20,000 coins at the edge of the null, watched at each of 400 draws, level 0.05.

        Expected crossings at most 1,000; more than 1,140 has probability below 1e-5.
        """
        rng = np.random.default_rng(3)
        for p in (0.5, 0.95):
            hits = rng.binomial(1, p, size=(20_000, 400)).cumsum(1)
            crossed = (hits >= least_crossing(np.arange(1, 401), p, 0.05)).any(1)
            assert 200 < crossed.sum() <= 1140  # and it has power to be wrong

    def test_fixed_n_bounds_at_all_times_would_be_caught(self):
        rng = np.random.default_rng(3)
        hits = rng.binomial(1, 0.5, size=(5_000, 400)).cumsum(1)
        wrong = (lower_bound(hits, np.arange(1, 401), 0.05) > 0.5).any(1)
        assert wrong.sum() > 5_000 * 0.05 * 2


class TestLowerSequence:
    @given(kn=counts(20_000), alpha=st.sampled_from([0.001, 0.05, 0.3]))
    @FIXED
    def test_is_the_only_place_where_the_e_process_crosses(self, kn, alpha):
        """All below is rejected, nothing above is: the proof's claim of monotony, on a grid."""
        k, n = kn
        bound = float(lower_sequence(k, n, alpha))
        grid = np.concatenate([np.linspace(1e-4, 1 - 1e-4, 400), 1 - np.logspace(-8, -4, 50)])
        rejected = log_e_value(k, n, grid) >= -math.log(alpha)
        assert np.all(rejected[grid < bound * (1 - 1e-9)])
        assert not np.any(rejected[grid > bound * (1 + 1e-6)])

    def test_all_times_together(self):
        """10,000 runs of up to 100,000 draws at alpha 0.001, looked at 160 times: at most 21 wrong.

        21 or fewer of 10,000 at rate 0.001 has probability 0.9993.
        """
        rng = np.random.default_rng(11)
        looks = np.unique(np.rint(np.geomspace(5, 100_000, 160)).astype(int))
        steps = np.diff(looks, prepend=0)
        for p in (0.62, 0.9987):
            hits = rng.binomial(steps, p, size=(10_000, len(looks))).cumsum(1)
            # The bound exceeds p at a look if and only if the e-process at p has crossed.
            assert (hits >= least_crossing(looks, p, 0.001)).any(1).sum() <= 21
        some = hits[:300, ::10], looks[::10]
        below = lower_sequence(*some, 0.001) > p
        assert np.array_equal(below, exceeds(*some, p, 0.001))

    @pytest.mark.parametrize(
        ("n", "frequency", "most"),
        [(100, 0.6, 1.4), (1000, 0.99, 1.45), (10_000, 0.6, 1.6), (100_000, 0.6, 1.7)]
        + [(n, 1.0, 1.1) for n in (100, 1000, 10_000, 100_000)],
    )
    def test_price_of_looking_at_all_times(self, n, frequency, most):
        """The gap to the frequency, relative to Clopper-Pearson's."""
        k = round(n * frequency)
        gap = frequency - float(lower_sequence(k, n, 0.001))
        fixed = frequency - float(lower_bound(k, n, 0.001))
        assert fixed < gap <= most * fixed

    def test_nothing_seen_nothing_said(self):
        assert lower_sequence(np.array([0, 0]), np.array([0, 50]), 0.001).tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("alpha", [0.0, 0.5, -1.0, math.nan])
    def test_a_level_outside_of_the_proof_is_refused(self, alpha):
        with pytest.raises(InputError):
            lower_sequence(3, 10, alpha)
        with pytest.raises(InputError):
            exceeds(3, 10, 0.5, alpha)

    def test_certainty_is_never_established(self):
        assert not exceeds(np.array([10**6]), np.array([10**6]), 1.0, 0.05).any()


class TestSchedule:
    def test_looks_and_parts(self):
        plan = Schedule(100_000, 0.001)
        assert plan.looks[-1] == 100_000
        assert 1000 <= plan.looks[0] < 1500
        assert np.allclose(plan.looks[1:] / plan.looks[:-1], math.sqrt(2), rtol=1e-3)
        assert 0.999 * 0.001 < plan.parts.sum() <= 0.001
        assert plan.parts[-1] == pytest.approx(0.0004, rel=0.01)

    def test_few_draws_have_one_look(self):
        plan = Schedule(500, 0.05)
        assert plan.looks.tolist() == [500]
        assert float(plan.lower(np.array(490), np.array(500))) == pytest.approx(
            float(lower_bound(490, 500, 0.05)), rel=1e-9
        )

    def test_says_nothing_between_looks(self):
        plan = Schedule(4000, 0.001)
        assert plan.lower(np.array([2500]), np.array([2500])).tolist() == [0.0]
        assert plan.next_look(np.array([0, 1000, 1001, 4000])).tolist() == [1000, 1414, 1414, 4000]

    def test_all_looks_together_hold(self):
        """20,000 coins, level 0.05: at most 1,140 wrong (more: probability below 1e-5)."""
        rng = np.random.default_rng(2)
        plan = Schedule(8000, 0.05)
        steps = np.diff(plan.looks, prepend=0)
        hits = rng.binomial(steps, 0.9, size=(20_000, len(steps))).cumsum(1)
        wrong = (plan.lower(hits, np.broadcast_to(plan.looks, hits.shape)) > 0.9).any(1)
        assert 400 < wrong.sum() <= 1140

    def test_last_look_is_nearly_as_good_as_one_look(self):
        plan = Schedule(100_000, 0.001)
        gap = 0.9 - float(plan.lower(np.array(90_000), np.array(100_000)))
        assert gap < 1.1 * (0.9 - float(lower_bound(90_000, 100_000, 0.001)))
