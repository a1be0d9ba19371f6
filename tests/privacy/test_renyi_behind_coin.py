"""The Renyi bound of a coin that is tossed once, against enumeration and dp-accounting."""

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy import accounting
from privet.privacy.accounting import covers, epsilon_of, renyi, sampled_gaussian
from privet.privacy.filters import RenyiFilter


def divergence(p, q, order):
    """Of two tables of probabilities, by its definition."""
    return math.log(float(np.sum(np.asarray(p) ** order * np.asarray(q) ** (1.0 - order)))) / (
        order - 1.0
    )


def two_answers(times, truth, kept):
    chances = (kept, 1 - kept) if truth else (1 - kept, kept)
    return np.array([math.prod(one) for one in itertools.product(chances, repeat=times)])


@pytest.mark.parametrize("rate", [0.03, 0.4])
@pytest.mark.parametrize("order", [2, 3, 7])
def test_against_tables(monkeypatch, rate, order):
    """Randomised response three times, behind one coin: the bound is above both directions."""
    p, q = (two_answers(3, truth, 0.8) for truth in (True, False))
    mixed = (1 - rate) * q + rate * p
    event = dp.PoissonSampledDpEvent(rate, dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1.0), 3))

    def larger(_, k):
        return max(divergence(p, q, k), divergence(q, p, k))

    monkeypatch.setattr(accounting, "renyi", larger)
    found = accounting._renyi_behind_coin(event, order)
    exact = max(divergence(mixed, q, order), divergence(q, mixed, order))
    assert found >= exact - 1e-12
    forward = divergence(mixed, q, order)
    loose = math.log(1 - rate + rate * math.exp((order - 1) * divergence(q, p, order))) / (
        order - 1
    )
    assert found == pytest.approx(max(forward, loose), rel=1e-9)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_of_one_gaussian_the_first_direction_is_dp_accountings(rate):
    """Two Gaussians of 2^(1/2) sigma are one of sigma: sampled, dp-accounting knows the answer."""
    composed = dp.PoissonSampledDpEvent(
        rate, dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0 * math.sqrt(2.0)), 2)
    )
    single = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(2.0))
    for order in (2, 8, 32):
        assert renyi(composed, order) >= renyi(single, order) * (1 - 1e-9)
    assert renyi(composed, 2) <= renyi(single, 2) + rate * math.expm1(0.25)


def test_a_filter_admits_a_memory_and_is_above_the_exact_figure():
    reads = dp.ComposedDpEvent([sampled_gaussian(2.0, 0.1, 50), sampled_gaussian(2.0, 0.05, 100)])
    coin = dp.PoissonSampledDpEvent(0.2, reads)
    cap = RenyiFilter.for_cap(2.0, 1e-5)
    cost = cap.cost(coin)
    assert 0 < cost < cap.cost(reads)
    assert cap.epsilon_spent(cost) >= epsilon_of(coin, 1e-5, interval=1e-3)


def test_a_fraction_of_an_order_is_refused():
    coin = dp.PoissonSampledDpEvent(0.2, sampled_gaussian(2.0, 0.1, 5))
    with pytest.raises(InputError, match="no Renyi bound behind a coin"):
        renyi(coin, 2.5)


def test_replace_one_is_proved_of_samples_and_not_of_coins():
    step = sampled_gaussian(2.0, 0.1, 5)
    coin = dp.PoissonSampledDpEvent(0.2, step)
    assert covers(step, Adjacency.REPLACE_ONE)
    assert covers(coin, Adjacency.ADD_REMOVE)
    assert not covers(coin, Adjacency.REPLACE_ONE)
    assert not covers(dp.ComposedDpEvent([step, coin]), Adjacency.REPLACE_ONE)
