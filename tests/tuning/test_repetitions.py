import hashlib
import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as oracle
from scipy import stats

from privet.privacy.randomness import SecretStream
from privet.tuning.repetitions import Repetitions

CASES = [(2.0, 1.0), (10.0, 1.0), (10.0, 0.0), (3.0, 0.5), (40.0, 2.5), (10_000.0, 10.0)]


def stream(i):
    return SecretStream(hashlib.blake2b(b"trials %d" % i, digest_size=32).digest())


def formula(k, shape, gamma):
    """Definition 1 of the paper, term by term."""
    if shape == 0:
        return (1 - gamma) ** k / (k * math.log(1 / gamma))
    product = math.prod((j + shape) / (j + 1) for j in range(k))
    return (1 - gamma) ** k / (gamma**-shape - 1) * product


@pytest.mark.parametrize(("mean", "shape"), CASES)
def test_the_distribution_is_the_papers(mean, shape):
    chosen = Repetitions(mean=mean, shape=shape)
    for k in (1, 2, 3, 7, 30):
        exact = formula(k, shape, chosen.gamma)
        assert chosen.pmf(k) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("mean", "shape"), CASES)
def test_scipy_knows_it_by_other_names(mean, shape):
    chosen = Repetitions(mean=mean, shape=shape)
    if shape == 0:
        known = stats.logser(1 - chosen.gamma).pmf
    else:
        negative_binomial = stats.nbinom(shape, chosen.gamma)
        left = negative_binomial.sf(0)
        known = lambda k: negative_binomial.pmf(k) / left  # noqa: E731
    for k in (1, 2, 5, 20):
        assert chosen.pmf(k) == pytest.approx(known(k), rel=1e-6)


@pytest.mark.parametrize(("mean", "shape"), CASES[:-1])
def test_it_adds_up_and_has_the_mean(mean, shape):
    chosen = Repetitions(mean=mean, shape=shape)
    terms, term = [], chosen.pmf(1)
    for k in range(1, int(60 * mean)):
        terms.append(term)
        term *= chosen.pmf(2) / chosen.pmf(1) * 2 / (1 + shape) * (k + shape) / (k + 1)
    assert sum(terms) == pytest.approx(1.0, abs=1e-6)
    assert sum(k * p for k, p in enumerate(terms, 1)) == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(("mean", "shape"), CASES)
def test_rounding_is_to_the_safe_side_of_the_accountant(mean, shape):
    """More than the accounted mean, or less than its gamma, would be more than is charged."""
    chosen = Repetitions(mean=mean, shape=shape)
    assert chosen.gamma >= oracle._gamma_truncated_negative_binomial(shape, mean)
    true_mean = oracle._truncated_negative_binomial_mean(chosen.gamma, shape)
    assert mean * (1 - 1e-8) < true_mean < mean


def fit(draws, chosen):
    """The p-value of Pearson's test, bins of at least 20 expected draws."""
    edges, expected, inside = [], [], 0.0
    k, last, below = 1, 0, 0.0
    while (1 - below - inside) * len(draws) > 20:
        inside += chosen.pmf(k)
        if inside * len(draws) >= 20:
            edges.append((last + 1, k))
            expected.append(inside * len(draws))
            below, inside, last = below + inside, 0.0, k
        k += 1
    edges.append((last + 1, 10**9))
    expected.append(len(draws) - sum(expected))
    seen = [((draws >= low) & (draws <= high)).sum() for low, high in edges]
    return stats.chisquare(seen, expected).pvalue


@pytest.mark.parametrize(("mean", "shape"), [(5.0, 1.0), (5.0, 0.0), (8.0, 3.0), (3.0, 0.5)])
def test_draws_follow_it(mean, shape):
    """Fixed keys, so the outcome is fixed; a fair draw would fail 1 time in 1000.

    Mistakes planted: the untruncated draw (one too few), a fixed number, another shape.
    """
    chosen = Repetitions(mean=mean, shape=shape)
    draws = np.array([chosen.draw(stream(i)) for i in range(4000)])
    assert draws.min() == 1
    assert fit(draws, chosen) > 1e-3
    assert fit(draws + 1, chosen) < 1e-9
    assert fit(np.full_like(draws, round(mean)), chosen) < 1e-9
    assert fit(draws, Repetitions(mean=mean, shape=shape + 1.0)) < 1e-6


class Fixed:
    def __init__(self, value):
        self.value = value

    def uniform(self, n, **_):
        return np.full(n, self.value)


def test_the_ends_of_the_draw():
    """The largest uniform must end, and the smallest gives one trial."""
    for mean, shape in CASES:
        chosen = Repetitions(mean=mean, shape=shape)
        assert chosen.draw(Fixed(0.0)) == 1
        assert 5 * mean < chosen.draw(Fixed(1 - 2.0**-53)) < 1000 * mean


def test_a_draw_is_repeatable_and_has_an_address_of_its_own():
    chosen = Repetitions(mean=20.0, shape=1.0)
    assert chosen.draw(stream(1)) == chosen.draw(stream(1))
    other = stream(1).uniform(1, purpose="sampling", step=0)[0]
    assert stream(1).uniform(1, purpose="number of trials", step=0)[0] != other
