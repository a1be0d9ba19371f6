import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.features import Categorical, Numeric
from privet.synthesis.evaluation.distances import ADDED, BINS, kl, shares_by_bin, wasserstein

X = Numeric(name="x", low=0, high=10)
W = Categorical(name="w", values=("a", "b", "c"))


def test_bins_lie_between_the_public_bounds():
    shares = shares_by_bin(X, np.array([0.0, 0.19, 0.2, 10.0, 10.0]))
    assert len(shares) == BINS == 50
    assert shares[[0, 1, 49]] == pytest.approx([0.4, 0.2, 0.4])
    assert list(shares_by_bin(W, np.array([0.0, 2.0, 2.0, 2.0]))) == [0.25, 0.0, 0.75]


def test_bins_follow_a_logarithmic_scale():
    skewed = Numeric(name="s", low=0, high=1000, scale="log")
    ends = skewed.value_at(np.arange(50) / 50 + 1e-9)
    assert np.array_equal(shares_by_bin(skewed, ends), np.full(50, 1 / 50))


def test_kl_of_known_shares():
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    exact = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl(p, q) == pytest.approx(exact, abs=1e-5)
    assert kl(q, p) != pytest.approx(kl(p, q), abs=1e-3)
    alone = kl(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert alone == pytest.approx(math.log(1 / ADDED), rel=1e-3)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.floats(-2, 2))
def test_a_shift_moves_everything_by_itself(values, shift):
    a = np.array(values)
    assert wasserstein(X, a, a + shift) == pytest.approx(abs(shift) / 10, abs=1e-9)
    assert kl(shares_by_bin(X, a), shares_by_bin(X, a)) == 0


def test_words_are_all_equally_far_apart():
    a, b = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 2.0, 2.0, 1.0])
    assert wasserstein(W, a, b) == pytest.approx(0.5)
