"""A coin that is tossed once, for all of a composition, against closed forms and enumeration."""

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import epsilon_of, sampled_gaussian, tradeoff_of
from privet.privacy.tradeoff import (
    Gaussian,
    Numerical,
    compose,
    gaussian_delta,
    poisson_subsampled,
    sampled_once,
    self_compose,
)

EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.0, 4.0)
ANSWERS = {True: 0.8, False: 0.2}  # of randomised response, where the truth is `True`


def hockey_stick(p, q, epsilon):
    """The divergence of two tables of probabilities, by its definition."""
    return sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def answers(times, truth):
    """Probabilities of all sequences of so many answers."""
    chances = [ANSWERS[True], ANSWERS[False]] if truth else [ANSWERS[False], ANSWERS[True]]
    return [math.prod(one) for one in itertools.product(chances, repeat=times)]


def randomised_response(times):
    """dp-accounting's distribution of that: losses of log 4 either way, exactly on the grid."""
    from dp_accounting.pld import privacy_loss_distribution as library

    interval = math.log(4) / 10_000
    one = library.PrivacyLossDistribution.create_from_rounded_probability(
        {10_000: 0.8, -10_000: 0.2}, 0.0, interval
    )
    return Numerical(one.self_compose(times)), interval


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("times", [1, 3])
def test_by_enumeration(times, rate):
    whole, interval = randomised_response(times)
    found = sampled_once(whole, rate, interval)
    p, q = np.array(answers(times, True)), np.array(answers(times, False))
    mixed = (1 - rate) * q + rate * p
    for epsilon in EPSILONS:
        true = max(hockey_stick(mixed, q, epsilon), hockey_stick(q, mixed, epsilon))
        assert true - 1e-12 <= found.delta(epsilon) <= true + 1e-4


def one_sided(p, q, interval):
    """dp-accounting's distribution of a pair of tables, losses rounded up, each way by itself."""
    from dp_accounting.pld import privacy_loss_distribution as library

    def losses(upper, lower):
        masses, beyond = {}, 0.0
        for a, b in zip(upper, lower, strict=True):
            if b == 0:
                beyond += a
            elif a > 0:
                place = math.ceil(math.log(a / b) / interval - 1e-9)
                masses[place] = masses.get(place, 0.0) + a
        return masses, beyond

    (removed, beyond), (added, beyond_add) = losses(p, q), losses(q, p)
    return library.PrivacyLossDistribution.create_from_rounded_probability(
        removed, beyond, interval, symmetric=False,
        rounded_probability_mass_function_add=added, infinity_mass_add=beyond_add,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_neither_direction_is_below_the_truth(seed):
    """Random tables, some with outcomes that one side never has; then composed with another."""
    rng, interval = np.random.default_rng(seed), 1e-3
    p, q, other_p, other_q = (rng.dirichlet(np.full(5, 0.7)) for _ in range(4))
    if seed % 2:
        p[0], q[1] = 0.0, 0.0
        p, q = p / p.sum(), q / q.sum()
    rate = rng.uniform(0.05, 0.9)
    mixed = (1 - rate) * q + rate * p
    found = sampled_once(Numerical(one_sided(p, q, interval)), rate, interval)
    for epsilon in EPSILONS:
        ways = (hockey_stick(mixed, q, epsilon), hockey_stick(q, mixed, epsilon))
        parts = (found.distribution._pmf_remove, found.distribution._pmf_add)
        for true, part in zip(ways, parts, strict=True):
            assert part.get_delta_for_epsilon(epsilon) >= true - 1e-12
    # The other mechanism is worse the other way round: here the way of adding counts.
    both = compose([found, Numerical(one_sided(other_q, other_p, interval))], interval)
    first, second = np.outer(mixed, other_q).ravel(), np.outer(q, other_p).ravel()
    for epsilon in EPSILONS:
        true = max(hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon))
        assert both.delta(epsilon) >= true - 1e-12


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_the_way_of_adding_is_that_of_dp_accounting(rate):
    found, known = sampled_once(Gaussian(0.9), rate), poisson_subsampled(1 / 0.9, rate)
    for epsilon in (-2.0, -0.5, -0.05, 0.0, 0.05):
        ours, theirs = found.distribution._pmf_add, known.distribution._pmf_add
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-4
        )


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.6, 0.5), (3.0, 0.01)])
def test_of_one_gaussian_it_is_the_poisson_sample_of_dp_accounting(multiplier, rate):
    found = sampled_once(Gaussian(1 / multiplier), rate)
    known = poisson_subsampled(multiplier, rate)
    for epsilon in EPSILONS:
        assert found.delta(epsilon) == pytest.approx(known.delta(epsilon), rel=1e-5, abs=1e-13)


def test_composed_with_itself_it_stays_the_poisson_sample():
    """So both directions, and negative losses, are right: composition needs all of them."""
    found = self_compose(sampled_once(Gaussian(0.8), 0.2), 30)
    known = self_compose(poisson_subsampled(1.25, 0.2), 30)
    assert found.epsilon(1e-5) == pytest.approx(known.epsilon(1e-5), rel=1e-5)
    both = compose([found, Gaussian(0.5)]).epsilon(1e-6)
    assert both == pytest.approx(compose([known, Gaussian(0.5)]).epsilon(1e-6), rel=1e-5)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_profile_of_a_gaussian_behind_a_coin(rate):
    found = sampled_once(Gaussian(1.0), rate)
    for epsilon in (0.1, 0.7, 1.5):
        inner = math.log1p(math.expm1(epsilon) / rate)
        assert found.delta(epsilon) == pytest.approx(rate * gaussian_delta(1.0, inner), rel=1e-6)


def test_a_certain_coin_changes_nothing_and_a_rarer_one_costs_less():
    whole = tradeoff_of(sampled_gaussian(1.5, 0.1, 20), interval=1e-3)
    assert sampled_once(whole, 1.0) is whole
    costs = [sampled_once(whole, rate, 1e-3).epsilon(1e-5) for rate in (0.01, 0.1, 0.5, 0.99)]
    assert costs == sorted(costs)
    assert costs[-1] < whole.epsilon(1e-5)
    assert costs[-1] == pytest.approx(whole.epsilon(1e-5), rel=0.01)


def test_mass_beyond_all_losses_stays():
    """A mechanism that gives itself away with probability 0.01 does so behind a coin, p times."""
    from dp_accounting.pld import privacy_loss_distribution as library

    leaky = Numerical(library.identity().compose(library.from_privacy_parameters(
        dp.pld.common.DifferentialPrivacyParameters(0.5, 0.01)
    )))  # fmt: skip
    assert sampled_once(leaky, 0.2).delta(30.0) == pytest.approx(0.002, rel=1e-3)


def memory_event(sigma, tasks, admitted):
    """A record of the first task: its own steps, then 24 reads of the memory in each later one."""
    own = sampled_gaussian(sigma, 1 / 24, 24)
    reads = dp.ComposedDpEvent(
        [sampled_gaussian(sigma, 0.1 / (later - 1), 24) for later in range(2, tasks + 1)]
    )
    return dp.ComposedDpEvent([own, dp.PoissonSampledDpEvent(admitted, reads)])


@pytest.mark.parametrize(
    ("sigma", "tasks", "admitted", "expected"),
    [
        (1.29, 5, 1 / 24, 1.001),
        (1.89, 2, 1 / 24, 0.502),
        (1.89, 20, 1 / 24, 0.503),
        (4.0, 20, 1 / 24, 0.184),
        (1.89, 5, 1.0, 1.54),
        (1.29, 2, 1.0, 2.50),
    ],
)
def test_a_memory_that_admits_by_coin(sigma, tasks, admitted, expected):
    """Known answers of an independent accountant, rounded up to two or three digits."""
    found = epsilon_of(memory_event(sigma, tasks, admitted), 1e-5, interval=1e-3)
    assert expected - 0.01 <= found <= expected + 0.005


@pytest.mark.parametrize(
    "event",
    [
        memory_event(1.9, 3, 0.1),
        dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)),
        dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 2)),
    ],
    ids=["memory", "Laplace", "composition"],
)
def test_replace_one_is_refused(event):
    with pytest.raises(InputError, match="without a proved trade-off"):
        tradeoff_of(event, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_no_chance_is_refused(rate):
    with pytest.raises(InputError, match="bad chance"):
        sampled_once(Gaussian(1.0), rate)
