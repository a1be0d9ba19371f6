"""The Renyi filter against closed forms, quadrature and the tight accountant."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from privet.errors import InputError
from privet.privacy.accounting import WHOLE_ORDERS, epsilon_of, sampled_gaussian
from privet.privacy.filters import RenyiFilter

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
caps = st.tuples(st.floats(0.5, 20), st.floats(-9, -3).map(lambda e: 10.0**e))


def renyi_by_sum(p, q, order: float) -> float:
    """The divergence of two densities given on a grid of step 1e-3."""
    terms = np.exp(order * np.log(p) + (1 - order) * np.log(q))
    return math.log(float(terms.sum()) * 1e-3) / (order - 1)


def laplace_renyi(shift: float, order: float) -> float:
    """Mironov (2017), Proposition 6."""
    a = order
    first = a / (2 * a - 1) * math.exp((a - 1) * shift)
    second = (a - 1) / (2 * a - 1) * math.exp(-a * shift)
    return math.log(first + second) / (a - 1)


def normal(x, mean=0.0):
    return np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi)


class TestBudget:
    @given(caps, st.sampled_from(WHOLE_ORDERS))
    @FIXED
    def test_spending_all_of_it_is_exactly_the_cap(self, cap, order):
        chosen = RenyiFilter(epsilon=cap[0], delta=cap[1], order=float(order))
        if chosen.budget > 1e-3:
            converted, _ = dp.rdp.compute_epsilon([order], [chosen.budget], cap[1])
            assert converted == pytest.approx(cap[0], rel=1e-9)

    @given(caps, st.floats(0.01, 10))
    @FIXED
    def test_epsilon_spent_is_the_library_conversion(self, cap, divergence):
        chosen = RenyiFilter.for_cap(*cap)
        converted, _ = dp.rdp.compute_epsilon([chosen.order], [divergence], cap[1])
        assert chosen.epsilon_spent(divergence) == pytest.approx(converted, abs=1e-9)

    def test_nothing_spent_is_zero(self):
        assert RenyiFilter.for_cap(3.0, 1e-5).epsilon_spent(0.0) == 0.0

    @given(caps)
    @FIXED
    def test_the_order_admits_the_most_gaussian_spending(self, cap):
        chosen = RenyiFilter.for_cap(*cap)
        for order in WHOLE_ORDERS:
            other = RenyiFilter(epsilon=cap[0], delta=cap[1], order=float(order))
            assert other.budget / other.order <= chosen.budget / chosen.order

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (math.nan, 1e-5)]
    )
    def test_meaningless_caps_are_refused(self, epsilon, delta):
        with pytest.raises(InputError):
            RenyiFilter.for_cap(epsilon, delta)

    def test_cap_below_every_order_is_refused(self):
        with pytest.raises(InputError, match="cap too small"):
            RenyiFilter.for_cap(0.001, 1e-10)


class TestCost:
    @pytest.mark.parametrize("order", [1.1, 1.5, 4.0, 37.0])
    @pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
    def test_gaussian(self, order, z):
        cost = RenyiFilter(epsilon=1.0, delta=1e-5, order=order).cost(dp.GaussianDpEvent(z))
        assert cost == pytest.approx(order / (2 * z * z))

    @pytest.mark.parametrize("order", [1.1, 1.5, 4.0, 37.0])
    @pytest.mark.parametrize("b", [0.5, 2.0, 10.0])
    def test_laplace(self, order, b):
        cost = RenyiFilter(epsilon=1.0, delta=1e-5, order=order).cost(dp.LaplaceDpEvent(b))
        assert cost == pytest.approx(laplace_renyi(1 / b, order), rel=1e-6)
        x = np.arange(-60, 60, 1e-3) + 5e-4
        p, q = np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x - 1 / b)) / 2
        assert cost == pytest.approx(renyi_by_sum(p, q, order), rel=1e-3)

    @pytest.mark.parametrize(
        ("order", "slack"),
        # Between whole numbers dp-accounting bounds a series by absolute values: safe, but loose
        # at small orders, up to infinity.
        [(2.0, 1e-4), (10.0, 1e-4), (7.5, 1e-2), (3.7, 0.1), (2.4, 2.0), (1.1, math.inf)],
    )
    @pytest.mark.parametrize(("z", "rate"), [(1.0, 0.1), (0.8, 0.5), (3.0, 0.01), (2.0, 0.9)])
    def test_sampled_gaussian_bounds_both_directions(self, order, slack, z, rate):
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z))
        cost = RenyiFilter(epsilon=1.0, delta=1e-5, order=order).cost(event)
        x = np.arange(-20, 30, 1e-3)
        p, q = (1 - rate) * normal(x) + rate * normal(x, 1 / z), normal(x)
        exact = max(renyi_by_sum(p, q, order), renyi_by_sum(q, p, order))
        assert exact * (1 - 1e-6) <= cost <= exact * (1 + slack)

    @pytest.mark.parametrize("order", [1.1, 2.0, 8.0, 60.0])
    @pytest.mark.parametrize("parts", [(0.5, 0.5), (2.0, 0.1), (0.1, 0.2, 0.3)])
    def test_one_laplace_covers_coordinates_of_the_same_l1_shift(self, order, parts):
        chosen = RenyiFilter(epsilon=1.0, delta=1e-5, order=order)
        apart = sum(laplace_renyi(shift, order) for shift in parts)
        assert apart <= chosen.cost(dp.LaplaceDpEvent(1 / sum(parts))) + 1e-12

    def test_costs_add_over_trees(self):
        chosen = RenyiFilter.for_cap(3.0, 1e-5)
        g, step = dp.GaussianDpEvent(2.0), dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0))
        tree = dp.ComposedDpEvent([g, dp.SelfComposedDpEvent(dp.ComposedDpEvent([step, g]), 5)])
        assert chosen.cost(tree) == pytest.approx(6 * chosen.cost(g) + 5 * chosen.cost(step))

    def test_no_privacy_costs_everything(self):
        chosen = RenyiFilter.for_cap(3.0, 1e-5)
        assert chosen.cost(dp.NonPrivateDpEvent()) == math.inf
        assert chosen.cost(dp.ComposedDpEvent([dp.NonPrivateDpEvent()])) == math.inf
        assert chosen.cost(dp.GaussianDpEvent(0.0)) == math.inf
        assert chosen.epsilon_spent(math.inf) == math.inf

    def test_unsupported_is_refused(self):
        with pytest.raises(InputError):
            RenyiFilter.for_cap(3.0, 1e-5).cost(
                dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0))
            )


runs = st.one_of(
    st.builds(dp.GaussianDpEvent, st.floats(1.0, 10)),
    st.builds(dp.LaplaceDpEvent, st.floats(2.0, 20)),
    st.builds(sampled_gaussian, st.floats(1.0, 5), st.floats(0.005, 0.3), st.integers(1, 400)),
)


class TestCap:
    @given(st.floats(1, 6), st.floats(-7, -4), st.lists(runs, min_size=1, max_size=6))
    @settings(derandomize=True, deadline=None, max_examples=15)
    def test_admitted_runs_stay_below_the_cap(self, epsilon, exponent, sequence):
        chosen = RenyiFilter.for_cap(epsilon, 10.0**exponent)
        spent, admitted = 0.0, []
        for run in sequence:
            if spent + chosen.cost(run) <= chosen.budget:
                spent += chosen.cost(run)
                admitted.append(run)
        if admitted:
            whole = dp.ComposedDpEvent(admitted)
            assert epsilon_of(whole, chosen.delta, interval=1e-3) <= epsilon

    def test_a_filter_that_forgets_the_conversion_is_caught(self):
        """Planted: taking epsilon itself for the divergence budget admits too much."""
        chosen = RenyiFilter.for_cap(2.0, 1e-6)
        z = math.sqrt(chosen.order / (2 * chosen.epsilon))
        planted = dp.GaussianDpEvent(z)
        assert chosen.cost(planted) == pytest.approx(chosen.epsilon)
        assert epsilon_of(planted, 1e-6) > chosen.epsilon
        assert chosen.cost(planted) > chosen.budget

    def test_the_best_gaussian_run_comes_near_the_cap(self):
        """The price of not knowing the plan is paid, but not much more."""
        chosen = RenyiFilter.for_cap(3.0, 1e-5)
        z = math.sqrt(chosen.order / (2 * chosen.budget))
        assert 0.8 * 3.0 < epsilon_of(dp.GaussianDpEvent(z), 1e-5) <= 3.0


def test_the_laplace_formula_is_its_integral():
    """Keeps the oracle above honest."""
    value, _ = integrate.quad(
        lambda x: math.exp(-3 * abs(x) + 2 * abs(x - 0.7)) / 2, -40, 40, points=[0, 0.7], limit=300
    )
    assert laplace_renyi(0.7, 3.0) == pytest.approx(math.log(value) / 2, rel=1e-8)
