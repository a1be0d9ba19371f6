"""The classic accountant against numerical integration, dp-accounting and the paper's figure."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privet.errors import InputError
from privet.privacy import accounting, moments
from privet.privacy.moments import epsilon, log_moment, strong_composition_epsilon

FIXED = settings(derandomize=True, deadline=None, max_examples=40)
PAPER = {"noise_multiplier": 4.0, "rate": 0.01, "steps": 10_000, "delta": 1e-5}


def directions(moment: int, sigma: float, q: float) -> tuple[float, float]:
    """log E_1 and log E_2 as the paper computes them: by quadrature."""
    without, present = stats.norm(0, sigma), stats.norm(1, sigma)

    def log_mixture(x):
        return np.logaddexp(math.log1p(-q) + without.logpdf(x), math.log(q) + present.logpdf(x))

    def expectation(log_integrand):
        ends = sigma * 40 + moment + 2
        grid = np.linspace(-ends, ends, 2001)
        top = log_integrand(grid).max()
        value, _ = integrate.quad(
            lambda x: math.exp(log_integrand(x) - top),
            -ends,
            ends,
            points=[0.0, 1.0, float(grid[log_integrand(grid).argmax()])],
            limit=1000,
            epsrel=1e-11,
        )
        return math.log(value) + top

    first = expectation(lambda x: (moment + 1) * without.logpdf(x) - moment * log_mixture(x))
    second = expectation(lambda x: (moment + 1) * log_mixture(x) - moment * without.logpdf(x))
    return first, second


class TestLogMoment:
    @pytest.mark.parametrize("moment", [1, 2, 7, 32])
    @pytest.mark.parametrize(("sigma", "q"), [(4.0, 0.01), (1.0, 0.1), (0.8, 0.5)])
    def test_is_the_larger_integral(self, moment, sigma, q):
        first, second = directions(moment, sigma, q)
        found = log_moment(moment, noise_multiplier=sigma, rate=q)
        assert found == pytest.approx(second, rel=1e-6, abs=1e-12)
        assert first <= second * (1 + 1e-6)

    @given(st.integers(1, 64), st.floats(0.5, 20.0), st.floats(1e-4, 1.0))
    @FIXED
    def test_is_dp_accountings_renyi_divergence_at_the_next_order(self, moment, sigma, q):
        event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))
        accountant = dp.rdp.RdpAccountant([moment + 1])
        accountant.compose(event)
        ours = log_moment(moment, noise_multiplier=sigma, rate=q)
        assert ours == pytest.approx(moment * float(accountant.rdp[0]), rel=1e-6, abs=1e-12)

    def test_without_sampling_is_the_closed_form(self):
        nearly = log_moment(5, noise_multiplier=2.0, rate=1 - 1e-12)
        assert log_moment(5, noise_multiplier=2.0, rate=1.0) == pytest.approx(5 * 6 / 8)
        assert nearly == pytest.approx(5 * 6 / 8, rel=1e-9)

    @pytest.mark.parametrize("bad", [{"moment": 0}, {"moment": 1.5}, {"rate": 0.0}, {"rate": 1.1}])
    def test_meaningless_arguments_are_refused(self, bad):
        arguments = {"moment": 2, "noise_multiplier": 1.0, "rate": 0.1} | bad
        with pytest.raises(InputError):
            log_moment(arguments.pop("moment"), **arguments)


class TestEpsilon:
    def test_the_papers_figure(self):
        """Section 3.2 of the paper: q = 0.01, sigma = 4, T = 10,000, delta = 1e-5."""
        assert epsilon(**PAPER) == pytest.approx(1.26, abs=0.005)

    def test_one_order_off_would_miss_it(self, monkeypatch):
        """Planted bug: the moment of the next order, as where lambda is taken for the order."""
        right = moments.log_moment
        monkeypatch.setattr(moments, "log_moment", lambda m, **k: right(m + 1, **k))
        assert abs(epsilon(**PAPER) - 1.26) > 0.005

    def test_is_looser_than_what_we_state(self):
        event = accounting.sampled_gaussian(4.0, 0.01, 10_000)
        tight = accounting.epsilon_of(event, 1e-5)
        renyi = accounting.epsilon_of(event, 1e-5, how="rdp")
        assert tight < renyi < epsilon(**PAPER) < strong_composition_epsilon(**PAPER)

    def test_more_moments_help_where_epsilon_is_small(self):
        small = PAPER | {"steps": 10}
        assert epsilon(**small, moments=256) < 0.5 * epsilon(**small)

    def test_one_gaussian_release_by_hand(self):
        """min over lambda of ((lambda + 1)/(2 sigma^2) + log(1/delta)/lambda)."""
        by_hand = min((m + 1) / 8 + math.log(1e6) / m for m in range(1, 33))
        found = epsilon(noise_multiplier=2.0, rate=1.0, steps=1, delta=1e-6)
        assert found == pytest.approx(by_hand)

    @pytest.mark.parametrize("bad", [{"steps": 0}, {"delta": 0.0}, {"noise_multiplier": -1.0}])
    def test_meaningless_arguments_are_refused(self, bad):
        with pytest.raises(InputError):
            epsilon(**(PAPER | bad))


class TestStrongComposition:
    def test_one_unsampled_step_is_hardly_above_the_gaussian(self):
        """T = 1, q = 1: the theorem's price is its square root of two logarithms."""
        alone = accounting.epsilon_of(dp.GaussianDpEvent(4.0), 1e-5)
        composed = strong_composition_epsilon(noise_multiplier=4.0, rate=1.0, steps=1, delta=1e-5)
        assert alone < composed < alone * (math.sqrt(2 * math.log(2e5)) + math.expm1(2 * alone))

    def test_the_papers_line_takes_sampling_to_first_order(self):
        """The paper prints 9.34; q e with the classic Gaussian bound gives it, to 0.02."""
        q, sigma, steps, delta = 0.01, 4.0, 10_000, 1e-5

        def composed(share):
            own = math.sqrt(2 * math.log(1.25 * steps * q / (share * delta))) / sigma
            spread = math.sqrt(2 * steps * -math.log((1 - share) * delta))
            return q * own * spread + steps * q * own * math.expm1(q * own)

        assert min(composed(s) for s in np.linspace(0.01, 0.99, 99)) == pytest.approx(
            9.34, abs=0.02
        )
        assert strong_composition_epsilon(**PAPER) > 12
