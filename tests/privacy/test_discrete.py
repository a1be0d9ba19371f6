"""The discrete Gaussian: the sampler against the exact distribution, the accounting by brute force.

Statistical tests have fixed keys; each would fail a correct implementation under a random key with
the probability it states."""

import math
from fractions import Fraction
from itertools import pairwise

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.errors import InputError
from privet.privacy import discrete
from privet.privacy.discrete import DiscreteGaussian, DiscreteShift
from privet.privacy.randomness import SecretStream
from privet.privacy.tradeoff import Gaussian, Numerical

FIXED = settings(derandomize=True, deadline=None, max_examples=40)
STREAM = SecretStream(bytes(range(32)))
N = 20_000
VARIANCES = [Fraction(1, 10), Fraction(1), Fraction(9, 2), Fraction(200), Fraction(0.1) * 77]


def pmf(sigma2, xs):
    """By the definition; the normaliser over 40 sigma."""
    end = math.ceil(40 * math.sqrt(sigma2)) + 1
    total = math.fsum(math.exp(-x * x / (2 * float(sigma2))) for x in range(-end, end + 1))
    return np.array([math.exp(-x * x / (2 * float(sigma2))) / total for x in xs])


def goodness_of_fit(draws, sigma2):
    """p-value of the chi-square test; cells of fewer than ten expected draws are pooled."""
    reach = int(np.abs(draws).max()) + 1
    xs = np.arange(-reach, reach + 1)
    expected = pmf(sigma2, xs) * len(draws)
    observed = np.array([np.sum(draws == x) for x in xs], dtype=float)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], len(draws) - expected[~rare].sum())
    statistic = np.sum((observed - expected) ** 2 / expected)
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def draw(sigma2, n=N, *, step=0, stream=STREAM):
    counts = np.zeros(n, dtype=np.int64)
    return DiscreteGaussian(sigma2=sigma2).add_to(counts, step=step, stream=stream)


def hockey_stick(p, q, epsilon):
    return math.fsum(np.maximum(0.0, p - math.exp(epsilon) * q).ravel())


def pair(sigma2, shift):
    """N_Z and its shift on a window that holds both."""
    reach = math.ceil(12 * math.sqrt(sigma2)) + 2 * shift
    xs = np.arange(-reach, reach + 1)
    return pmf(sigma2, xs), pmf(sigma2, xs - shift)


class TestSampler:
    @pytest.mark.parametrize("sigma2", VARIANCES, ids=float)
    def test_is_the_discrete_gaussian(self, sigma2):
        """Chi-square, error rate 1e-6; and a variance 20 % off would be noticed."""
        draws = draw(sigma2)
        assert goodness_of_fit(draws, sigma2) > 1e-6
        assert goodness_of_fit(draws, sigma2 * Fraction(4, 5)) < 1e-6
        assert goodness_of_fit(draws, sigma2 * Fraction(6, 5)) < 1e-6

    def test_a_rounded_continuous_gaussian_would_be_noticed(self):
        """It is close to the discrete one, but another distribution."""
        rounded = np.rint(STREAM.normal(N, purpose="test", step=0) / 2).astype(np.int64)
        assert goodness_of_fit(rounded, Fraction(1, 4)) < 1e-6

    def test_zero_counted_twice_is_caught(self, monkeypatch):
        """Planted bug: the sign is thrown, and minus zero kept."""

        def careless(scale, below):
            while not discrete._bernoulli_exp_up_to_one(rest := below(scale), scale, below):
                pass
            while discrete._bernoulli_exp_up_to_one(1, 1, below):
                rest += scale
            return rest if below(2) else -rest

        monkeypatch.setattr(discrete, "_discrete_laplace", careless)
        assert goodness_of_fit(draw(Fraction(1)), Fraction(1)) < 1e-6

    def test_even_instead_of_odd_is_caught(self, monkeypatch):
        """Planted bug: 1 - exp(-gamma) where exp(-gamma) belongs."""
        right = discrete._bernoulli_exp
        monkeypatch.setattr(discrete, "_bernoulli_exp", lambda *a: not right(*a))
        assert goodness_of_fit(draw(Fraction(4), 2000), Fraction(4)) < 1e-6

    @pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 3), (1, 1), (7, 2), (9, 1)])
    def test_bernoulli_exp(self, numerator, denominator):
        """Binomial test, error rate 1e-6."""
        below = discrete._uniform_integers(STREAM, step=0, context=b"test")
        hits = sum(discrete._bernoulli_exp(numerator, denominator, below) for _ in range(N))
        p = math.exp(-numerator / denominator)
        assert stats.binomtest(hits, N, p).pvalue > 1e-6

    @pytest.mark.parametrize("n", [1, 2, 3, 100, 2**53, 3 * 2**70])
    def test_uniform_integers(self, n):
        """Range, and thirds by chi-square (error rate 1e-6)."""
        below = discrete._uniform_integers(STREAM, step=0, context=b"test")
        values = [below(n) for _ in range(6000)]
        assert min(values) >= 0
        assert max(values) < n
        if n >= 3:
            thirds = np.bincount([3 * v // n for v in values], minlength=3)
            share = np.array([-(-n * (i + 1) // 3) - -(-n * i // 3) for i in range(3)]) / n
            assert stats.chisquare(thirds, 6000 * share.astype(float)).pvalue > 1e-6

    def test_consumes_every_bit_once(self):
        """Two words of 53 bits give 106 throws of a coin, each bit of theirs in turn."""
        below = discrete._uniform_integers(STREAM, step=0, context=b"test")
        coins = [below(2) for _ in range(106)]
        u = STREAM.uniform(1024, purpose="discrete", step=0, context=b"test" + bytes(8))[:2]
        words = [int(x * 2**53) for x in u]
        assert coins == [(w >> i) & 1 for w in words for i in range(53)]


class TestRelease:
    def test_whole_numbers_in_the_same_shape(self):
        counts = np.arange(12, dtype=np.int32).reshape(3, 4)
        noisy = DiscreteGaussian(sigma2=4).add_to(counts, step=0, stream=STREAM)
        assert noisy.shape == (3, 4)
        assert noisy.dtype == np.int64
        assert np.array_equal(counts, np.arange(12).reshape(3, 4))

    def test_same_counts_same_output(self):
        assert np.array_equal(draw(Fraction(9, 2), 50), draw(Fraction(9, 2), 50))
        assert np.array_equal(draw(Fraction(4), 50), draw(4, 50))

    def test_anything_that_differs_meets_unrelated_noise(self):
        """|correlation| below 5.5 sigma (error rate 4e-8 each)."""
        counts = np.arange(4000)
        noise = DiscreteGaussian(sigma2=Fraction(100))

        def noise_of(counts, noise=noise, step=0, stream=STREAM):
            return noise.add_to(counts, step=step, stream=stream) - counts

        first = noise_of(counts)
        other = counts.copy()
        other[7] += 1
        for changed in (
            noise_of(other),
            noise_of(counts, step=1),
            noise_of(counts, stream=SecretStream(bytes(32))),
        ):
            assert abs(np.corrcoef(first, changed)[0, 1]) < 5.5 / math.sqrt(4000)

    def test_another_variance_meets_unrelated_noise(self):
        """One count in many steps: later draws would differ anyway, once the bits are out of step.
        |correlation| below 5.5 sigma (error rate 4e-8); shared bits would give one near 1."""
        one, two = (
            [int(draw(sigma2, 1, step=step)[0]) for step in range(1000)]
            for sigma2 in (Fraction(100), Fraction(101))
        )
        assert abs(np.corrcoef(one, two)[0, 1]) < 5.5 / math.sqrt(1000)

    def test_refusals(self):
        noise = DiscreteGaussian(sigma2=4)
        with pytest.raises(InputError, match="not whole"):
            noise.add_to(np.zeros(3), step=0, stream=STREAM)
        with pytest.raises(InputError, match="too large"):
            noise.add_to(np.array([2**62]), step=0, stream=STREAM)
        for bad in (4.0, "4", Fraction(0), Fraction(-1)):
            with pytest.raises(InputError, match="variance"):
                DiscreteGaussian(sigma2=bad)
        for bad in (0, -1, 1.5):
            with pytest.raises(InputError, match="whole number"):
                DiscreteGaussian(sigma2=4, sensitivity=bad)
            with pytest.raises(InputError, match="whole number"):
                DiscreteGaussian(sigma2=4, cells=bad)


class TestTradeOff:
    @given(st.sampled_from(VARIANCES), st.integers(1, 6), st.floats(0.0, 6.0))
    @FIXED
    def test_delta_by_brute_force(self, sigma2, shift, epsilon):
        exact = hockey_stick(*pair(sigma2, shift), epsilon)
        found = DiscreteShift(sigma2=sigma2, shift=shift).delta(epsilon)
        assert found == pytest.approx(exact, rel=1e-7, abs=1e-25)
        assert found >= exact * (1 - 1e-12) - 1e-30

    @given(st.sampled_from(VARIANCES), st.integers(1, 6), st.floats(0.01, 6.0))
    @FIXED
    def test_delta_by_the_papers_formula(self, sigma2, shift, epsilon):
        """Theorem 7: P[Y > e s^2/D - D/2] - exp(e) P[Y > e s^2/D + D/2]."""
        edge, s = epsilon * float(sigma2) / shift, math.ceil(40 * math.sqrt(sigma2)) + 10

        def above(limit):
            return pmf(sigma2, range(math.floor(limit) + 1, s + 1)).sum()

        exact = above(edge - shift / 2) - math.exp(epsilon) * above(edge + shift / 2)
        found = DiscreteShift(sigma2=sigma2, shift=shift).delta(epsilon)
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-14)

    @pytest.mark.parametrize(("sigma", "shift"), [(0.5, 1), (3.0, 1), (3.0, 4), (40.0, 3)])
    def test_dp_accounting_agrees_from_above(self, sigma, shift):
        theirs = privacy_loss_distribution.from_discrete_gaussian_mechanism(sigma, shift)
        ours = DiscreteShift(sigma2=Fraction(sigma) ** 2, shift=shift)
        for delta in (1e-3, 1e-6, 1e-9):
            bound = theirs.get_epsilon_for_delta(delta)
            assert ours.epsilon(delta) <= bound * (1 + 1e-8)
            assert ours.epsilon(delta) > bound - 2e-4

    @given(st.sampled_from(VARIANCES), st.integers(1, 6), st.floats(-9, -1))
    @FIXED
    def test_epsilon_inverts_delta_and_rounds_up(self, sigma2, shift, exponent):
        curve, delta = DiscreteShift(sigma2=sigma2, shift=shift), 10.0**exponent
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta
        if epsilon > 0:
            assert curve.delta(epsilon * (1 - 1e-6)) > delta

    @given(st.sampled_from(VARIANCES), st.integers(1, 6), st.floats(0.0, 1.0))
    @FIXED
    def test_beta_is_the_best_test_by_brute_force(self, sigma2, shift, alpha):
        """Neyman and Pearson: take outcomes by falling ratio until alpha is spent."""
        p, q = pair(sigma2, shift)
        spent = np.concatenate([[0.0], np.cumsum(p[::-1])])
        power = float(np.interp(alpha, spent, np.concatenate([[0.0], np.cumsum(q[::-1])])))
        found = DiscreteShift(sigma2=sigma2, shift=shift).beta(alpha)
        assert found == pytest.approx(1 - power, abs=1e-6)
        assert found <= 1 - power + 1e-12

    def test_beta_and_delta_are_dual(self):
        """delta = max over alpha of 1 - exp(epsilon) alpha - beta(alpha)."""
        curve = DiscreteShift(sigma2=Fraction(9, 2), shift=2)
        alphas = np.linspace(0, 1, 4001)
        betas = np.array([curve.beta(float(a)) for a in alphas])
        assert betas[0] == 1.0
        assert betas[-1] == 0.0
        for epsilon in (0.0, 0.5, 2.0):
            sup = float(np.max(1 - math.exp(epsilon) * alphas - betas))
            assert sup == pytest.approx(curve.delta(epsilon), abs=1e-3)

    @given(st.sampled_from(VARIANCES), st.integers(1, 6), st.floats(0.0, 5.0))
    @FIXED
    def test_a_smaller_move_is_dominated(self, sigma2, shift, epsilon):
        deltas = [DiscreteShift(sigma2=sigma2, shift=s).delta(epsilon) for s in range(1, shift + 1)]
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(deltas))

    def test_wide_noise_is_like_the_continuous_one(self):
        wide, smooth = DiscreteShift(sigma2=Fraction(10**6), shift=900), Gaussian(0.9)
        for delta in (1e-2, 1e-6):
            assert wide.epsilon(delta) == pytest.approx(smooth.epsilon(delta), rel=1e-3)

    def test_may_be_worse_than_the_continuous_one(self):
        """Why the continuous curve must not be stated for it."""
        assert DiscreteShift(sigma2=Fraction(9, 2), shift=1).delta(2.0) > 1.1 * Gaussian(
            1 / math.sqrt(4.5)
        ).delta(2.0)

    def test_is_never_pure(self):
        assert DiscreteShift(sigma2=Fraction(4), shift=1).epsilon(0.0) == math.inf

    def test_noise_too_wide_for_the_sums_is_refused(self):
        mechanism = DiscreteGaussian(sigma2=Fraction(10**11))
        with pytest.raises(InputError, match="account rho"):
            _ = mechanism.tradeoff
        assert mechanism.rho == Fraction(1, 2 * 10**11)


class TestConcentrated:
    @pytest.mark.parametrize("sigma2", [Fraction(1, 2), Fraction(9, 2), Fraction(50)])
    @pytest.mark.parametrize("order", [2, 5, 16])
    @pytest.mark.parametrize("shift", [1, 3])
    def test_renyi_divergence_is_the_continuous_one_at_whole_orders(self, sigma2, order, shift):
        s = float(sigma2)
        reach = math.ceil(12 * math.sqrt(s)) + (order + 1) * shift
        xs = np.arange(-reach, reach + 1.0)
        logs = -order * xs**2 / (2 * s) + (order - 1) * (xs - shift) ** 2 / (2 * s)
        total = np.log(np.sum(np.exp(-(xs**2) / (2 * s))))
        divergence = (np.logaddexp.reduce(logs) - total) / (order - 1)
        rho = DiscreteGaussian(sigma2=sigma2, sensitivity=shift).rho
        assert divergence == pytest.approx(order * float(rho), rel=1e-9)

    def test_event_costs_more_than_the_exact_curve_and_not_much(self):
        mechanism = DiscreteGaussian(sigma2=Fraction(25), sensitivity=2)
        assert mechanism.rho == Fraction(4, 50)
        assert isinstance(mechanism.event, dp.ZCDpEvent)
        assert mechanism.event.rho >= mechanism.rho
        accountant = dp.rdp.RdpAccountant()
        accountant.compose(mechanism.event)
        loose, tight = accountant.get_epsilon(1e-6), mechanism.tradeoff.epsilon(1e-6)
        assert tight < loose < 1.25 * tight

    def test_several_cells_compose(self):
        """Two cells, each moved by one: the hockey stick of the product, by brute force."""
        mechanism = DiscreteGaussian(sigma2=Fraction(2), cells=2)
        assert mechanism.rho == Fraction(1, 2)
        assert isinstance(mechanism.tradeoff, Numerical)
        p, q = pair(Fraction(2), 1)
        for epsilon in (0.0, 0.5, 2.0, 4.0):
            exact = hockey_stick(np.outer(p, p), np.outer(q, q), epsilon)
            found = mechanism.tradeoff.delta(epsilon)
            assert exact * (1 - 1e-9) <= found
            assert found == pytest.approx(exact, rel=2e-3)
