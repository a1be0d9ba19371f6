import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from privet.synthesis.evaluation.intervals import area, found_at, share


@pytest.mark.parametrize(("hits", "draws"), [(0, 10), (3, 10), (10, 10), (480, 1000)])
def test_shares_have_the_exact_interval(hits, draws):
    exact = binomtest(hits, draws).proportion_ci(0.95, method="exact")
    found = share(hits, draws)
    assert (found["low"], found["high"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert found["share"] == hits / draws
    assert share(0, 0)["share"] is None


def test_the_area_is_that_of_scikit_learn_ties_included():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 80).astype(float), rng.integers(-2, 7, 50).astype(float)
    found = area(a, b)
    y = np.repeat([1, 0], [80, 50])
    assert found["auroc"] == pytest.approx(roc_auc_score(y, np.concatenate([a, b])))


def test_the_interval_of_the_area_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = 0.7602499389  # P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2)
    hits = 0
    for _ in range(1000):
        found = area(rng.normal(1, 1, 80), rng.normal(0, 1, 80))
        hits += found["low"] <= truth <= found["high"]
    assert 0.93 <= hits / 1000 <= 0.97


def test_the_interval_of_a_point_covers_at_least_as_often_as_it_says():
    rng = np.random.default_rng(0)
    truth = norm.sf(norm.isf(0.05) - 1)  # members N(1, 1) above the threshold of 5 % of N(0, 1)
    found = [found_at(0.05, rng.normal(1, 1, 200), rng.normal(0, 1, 200)) for _ in range(500)]
    assert np.mean([f["low"] <= truth <= f["high"] for f in found]) >= 0.95
    assert np.mean([f["high"] - f["low"] for f in found]) < 0.4  # and it says something
    few = found_at(0.001, rng.normal(9, 1, 200), rng.normal(0, 1, 200))
    assert few["share"] > 0.99
    assert few["low"] == 0  # 200 others do not tell what 0.1 % of them is


def test_a_perfect_area_of_few_scores_is_not_certain():
    found = area(np.array([5.0, 6, 7]), np.array([1.0, 2, 3, 4]))
    assert found["auroc"] == found["high"] == 1.0
    assert found["low"] == pytest.approx(share(3, 3)["low"])
    assert area(np.zeros(0), np.zeros(3))["auroc"] is None
