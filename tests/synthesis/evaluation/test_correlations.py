import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.synthesis.evaluation import correlations as module
from privet.synthesis.evaluation.correlations import correlations, off_diagonal, pearson


@given(st.integers(0, 10_000))
def test_pairs_are_correlated_over_the_rows_that_have_both(seed):
    rng = np.random.default_rng(seed)
    x = rng.random((40, 3))
    x[rng.random(x.shape) < 0.3] = np.nan
    found, count = correlations(lambda rows: x[rows], len(x))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = ~np.isnan(x[:, i]) & ~np.isnan(x[:, j])
        assert count[i, j] == both.sum()
        assert found[i, j] == pytest.approx(np.corrcoef(x[both, i], x[both, j])[0, 1], abs=1e-9)
    assert np.array_equal(found, found.T)


def test_parts_of_the_rows_add_up(monkeypatch):
    x = np.random.default_rng(0).random((500, 4))
    whole, _ = correlations(lambda rows: x[rows], len(x))
    monkeypatch.setattr(module, "AT_ONCE", 37)
    parts, _ = correlations(lambda rows: x[rows], len(x))
    assert parts == pytest.approx(whole)


def test_a_constant_goes_with_nothing():
    assert pearson(np.arange(9) / 9, np.full(9, 0.25)) == 0.0
    assert pearson(np.arange(9) / 9, np.arange(9) / 18) == pytest.approx(1.0)


def test_no_rows_and_the_upper_triangle():
    found, count = correlations(lambda rows: np.zeros((0, 2)), 0)
    assert found.tolist() == count.tolist() == [[0, 0], [0, 0]]
    assert off_diagonal(np.arange(9).reshape(3, 3)).tolist() == [1, 2, 5]
