"""Poisson sampling: each example by itself, at the stated rate. Fixed key; each statistical test
would fail a perfect sampler with the probability it states."""

import math

import numpy as np
import pytest
from scipy import stats

from privet.errors import InputError
from privet.privacy.randomness import SecretStream
from privet.privacy.sampling import PoissonSampler

STREAM = SecretStream(bytes(range(32)))


def membership(rate: float, n: int, steps: int) -> np.ndarray:
    """A table of steps by examples: who was in."""
    table = np.zeros((steps, n), dtype=bool)
    for step in range(steps):
        table[step, PoissonSampler(rate=rate).draw(n, step=step, stream=STREAM)] = True
    return table


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.97])
def test_inclusion_rate(rate):
    """Binomial test over all examples and steps, error rate 1e-6."""
    table = membership(rate, 2000, 100)
    assert stats.binomtest(int(table.sum()), table.size, rate).pvalue > 1e-6


def test_inclusion_rate_would_catch_two_percent():
    table = membership(0.5, 2000, 100)
    assert stats.binomtest(int(table.sum()), table.size, 0.51).pvalue < 1e-6


def test_batch_sizes_are_binomial_not_fixed():
    """The variance of 2,000 batch sizes, by chi-square, error rate 1e-6."""
    sizes = membership(0.2, 400, 2000).sum(axis=1)
    statistic = ((sizes - 80.0) ** 2).sum() / (400 * 0.2 * 0.8)
    # A binomial's kurtosis is within 1 % of the normal's here; the bounds are widened by 2 %.
    assert 0.98 * stats.chi2.ppf(5e-7, 2000) < statistic < 1.02 * stats.chi2.isf(5e-7, 2000)


def test_every_example_and_every_step_has_the_rate():
    """Each row and column total within 6 sigma: error rate 1e-5 in all."""
    table = membership(0.3, 500, 3000)
    for totals, trials in ((table.sum(axis=0), 3000), (table.sum(axis=1), 500)):
        assert np.abs(totals - 0.3 * trials).max() < 6 * math.sqrt(trials * 0.21)


def test_examples_are_pairwise_independent():
    """Correlations of 30 examples over 20,000 steps, each within 6 sigma: error rate 1e-6."""
    table = membership(0.3, 30, 20_000)
    r = np.corrcoef(table.T)[np.triu_indices(30, 1)]
    assert np.abs(r).max() < 6 / math.sqrt(20_000)


def test_steps_are_pairwise_independent():
    table = membership(0.3, 20_000, 30)
    r = np.corrcoef(table)[np.triu_indices(30, 1)]
    assert np.abs(r).max() < 6 / math.sqrt(20_000)


def test_pairs_meet_at_the_squared_rate():
    """Planted-bug power: drawing without replacement would meet less often by 1/(n-1)."""
    table = membership(0.5, 4, 20_000)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    for i, j in pairs:
        together = int((table[:, i] & table[:, j]).sum())
        assert stats.binomtest(together, 20_000, 0.25).pvalue > 1e-7
        assert stats.binomtest(together, 20_000, 0.5 * 1 / 3).pvalue < 1e-7


@pytest.mark.parametrize("step", [0, 1, 77])
def test_one_example_does_not_feel_how_many_others_there_are(step):
    sampler = PoissonSampler(rate=0.3)
    small = sampler.draw(1000, step=step, stream=STREAM)
    for n in (1001, 1002, 5000):
        large = sampler.draw(n, step=step, stream=STREAM)
        assert np.array_equal(small, large[large < 1000])


def test_a_draw_can_be_repeated():
    sampler = PoissonSampler(rate=0.3)
    one, again = (sampler.draw(1000, step=4, stream=STREAM) for _ in range(2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, sampler.draw(1000, step=5, stream=STREAM))
    assert not np.array_equal(one, sampler.draw(1000, step=4, stream=SecretStream(b"k" * 32)))


def test_a_higher_rate_keeps_who_was_in():
    low, high = (PoissonSampler(rate=r).draw(1000, step=0, stream=STREAM) for r in (0.2, 0.4))
    assert set(low) < set(high)


def test_rate_one_takes_everyone():
    for step in range(20):
        drawn = PoissonSampler(rate=1.0).draw(1000, step=step, stream=STREAM)
        assert np.array_equal(drawn, np.arange(1000))


def test_batches_may_be_empty():
    """At one expected example a share 1/e of batches is empty; binomial, error rate 1e-6."""
    empty = int((membership(0.01, 100, 2000).sum(axis=1) == 0).sum())
    assert stats.binomtest(empty, 2000, 0.99**100).pvalue > 1e-6
    assert PoissonSampler(rate=0.5).draw(0, step=0, stream=STREAM).size == 0


def test_the_threshold_is_the_rate_to_the_last_bit():
    class Near(SecretStream):
        def uniform(self, n, **address):
            return np.array([0.25 - 2.0**-53, 0.25, 0.0])

    drawn = PoissonSampler(rate=0.25).draw(3, step=0, stream=Near(bytes(32)))
    assert drawn.tolist() == [0, 2]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.inf, math.nan])
def test_bad_rates_are_refused(rate):
    with pytest.raises(InputError, match="bad sampling rate"):
        PoissonSampler(rate=rate)


def test_noise_and_sampling_draw_apart():
    """The same key and step under another purpose says nothing about who is in."""
    u = STREAM.uniform(5000, purpose="gaussian", step=0)
    drawn = PoissonSampler(rate=0.5).draw(5000, step=0, stream=STREAM)
    member = np.isin(np.arange(5000), drawn)
    assert abs(np.corrcoef(u, member)[0, 1]) < 6 / math.sqrt(5000)
