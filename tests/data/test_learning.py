import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.data import learning
from privet.data.dataset import Split
from privet.data.learning import EDGES, FAILURE, learn_bounds, learn_size, one_of_each
from privet.errors import InputError
from privet.privacy.noise import LaplaceNoise
from privet.privacy.randomness import SecretStream


def stream(seed):
    return SecretStream(seed.to_bytes(32, "little"))


def test_the_noisy_size_has_laplace_noise_of_scale_one_over_epsilon():
    """KS test at fixed seeds; a right mechanism fails with probability 1e-4."""
    n, epsilon = 1000, 0.5
    # Another n for each draw: the noise is bound to the count that it hides.
    noise = [learn_size(n, epsilon, stream(seed)) - n for seed in range(2000)]
    smooth = np.array(noise) + np.random.default_rng(0).uniform(-0.5, 0.5, len(noise))
    assert stats.kstest(smooth, stats.laplace(scale=1 / epsilon).cdf).pvalue > 1e-4


def test_a_wrong_scale_would_be_caught():
    noise = [learn_size(1000, 0.5, stream(seed)) - 1000 for seed in range(2000)]
    assert stats.kstest(noise, stats.laplace(scale=1.0).cdf).pvalue < 1e-4


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    low=st.floats(-1000, 1000),
    width=st.floats(0.01, 1000),
    seed=st.integers(0, 2**32),
)
def test_learned_bounds_cover_well_filled_data_and_are_powers_of_two(low, width, seed):
    values = np.random.default_rng(seed).uniform(low, low + width, (4000, 2))
    for column, (found_low, found_high) in enumerate(learn_bounds(values, 2.0, stream(seed))):
        inside = (values[:, column] >= found_low) & (values[:, column] <= found_high)
        assert inside.mean() > 0.9
        assert found_low < found_high
        assert found_high in EDGES


def test_a_single_extreme_record_does_not_show():
    """The threshold hides one record: its bucket passes with probability below FAILURE * e^eps."""
    usual = np.random.default_rng(0).uniform(1, 3, (2000, 1))
    extreme = np.vstack([usual, [[1e9]]])
    results = {tuple(learn_bounds(extreme, 1.0, stream(seed))) for seed in range(200)}
    assert results == {((1.0, 4.0),)}
    assert math.exp(1.0) * FAILURE * 200 < 1e-3


def test_all_columns_share_one_sensitivity(monkeypatch):
    """A record is in one bucket of each of the columns: L1 sensitivity is their number."""
    asked = []

    def spy(**options):
        asked.append(options)
        return LaplaceNoise(**options)

    monkeypatch.setattr(learning, "LaplaceNoise", spy)
    learn_bounds(np.ones((4000, 7)), 2.0, stream(0))
    assert asked == [{"scale": 0.5, "sensitivity": 7.0}]


def test_the_noise_grows_with_the_number_of_columns():
    """One record is in one bucket of every column, so all columns share epsilon."""
    few = np.ones((60, 1))
    assert learn_bounds(few, 1.0, stream(0)) == [(0.5, 1.0)]
    with pytest.raises(InputError, match="too little data"):
        learn_bounds(np.ones((60, 20)), 1.0, stream(0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_bad_epsilons_are_refused(epsilon):
    with pytest.raises(InputError, match="bad epsilon"):
        learn_size(10, epsilon, stream(0))
    with pytest.raises(InputError, match="bad epsilon"):
        learn_bounds(np.ones((10, 1)), epsilon, stream(0))


def owned(counts, value):
    """One column; the records of the last unit hold `value`, all others lie between 1 and 3."""
    units = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(0).uniform(1, 3, (len(units), 1))
    x[units == len(counts) - 1] = value
    return Split(x=x, y=np.zeros(len(units), np.int64), units=units)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(0, 2**32))
def test_one_record_of_each_unit_is_one_of_its_own(counts, seed):
    units = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    records = Split(x=units[:, None], y=units, units=units)
    chosen = one_of_each(records, stream(seed))
    assert units[chosen].tolist() == list(range(len(counts)))


def test_every_record_of_a_unit_is_as_likely():
    """Chi-square at fixed seeds; a right choice fails with probability 1e-4."""
    units = np.repeat(np.arange(4000), 5)
    chosen = one_of_each(Split(x=units[:, None], y=units, units=units), stream(0))
    assert stats.chisquare(np.bincount(chosen % 5)).pvalue > 1e-4


def test_without_units_every_record_stands_for_itself():
    records = Split(x=np.ones((7, 1)), y=np.zeros(7, np.int64))
    assert one_of_each(records, stream(0)).tolist() == list(range(7))


def test_a_unit_with_many_extreme_records_does_not_show_unless_all_are_counted():
    """As for a single record: with probability above 1 - 200 e^eps FAILURE nothing is seen."""
    records = owned([3] * 800 + [500], 1e9)
    found, planted = set(), set()
    for seed in range(200):
        one = records.x[one_of_each(records, stream(seed))]
        found.add(tuple(learn_bounds(one, 1.0, stream(seed))))
        planted.add(tuple(learn_bounds(records.x, 1.0, stream(seed))))  # the bug
    assert found == {((1.0, 4.0),)}
    assert planted == {((1.0, 2.0**30),)}
