import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm
from torch import nn

from privet.certification import ABSTAIN
from privet.classifiers import open_classifier
from privet.studies.certification_cost.cohen import by_numpy, certify_one, one_by_one

SIGMA = 0.5


@pytest.fixture
def half_space():
    """Class 1 where the first of four features exceeds 0.5."""
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * 4, [1.0, 0.0, 0.0, 0.0]]))
        model.bias.copy_(torch.tensor([0.5, 0.0]))
    return open_classifier(model, shape=(4,))


def test_both_counters_count_the_same():
    votes = np.random.default_rng(0).integers(0, 5, size=1000)
    assert one_by_one(votes, 6).tolist() == by_numpy(votes, 6).tolist()
    assert one_by_one(votes, 6).sum() == 1000


@pytest.mark.parametrize("batch", [1000, 333])
def test_the_radius_is_below_the_exact_margin_and_near_it(half_space, batch):
    torch.manual_seed(0)
    x = torch.tensor([0.5 + 1.2 * SIGMA, 0.3, 0.3, 0.3])
    chosen, radius = certify_one(
        half_space, x, sigma=SIGMA, alpha=0.001, n0=100, n=20_000, batch=batch
    )
    assert chosen == 1
    assert 0.95 * 1.2 * SIGMA < radius < 1.2 * SIGMA


def test_the_bound_is_clopper_and_pearsons(half_space):
    """All votes agree far from the boundary: p is alpha^(1/n), by scipy's own exact interval."""
    x = torch.tensor([0.5 + 50 * SIGMA, 0.3, 0.3, 0.3])
    _, radius = certify_one(half_space, x, sigma=SIGMA, alpha=0.01, n0=10, n=500, batch=100)
    low = binomtest(500, 500, alternative="greater").proportion_ci(0.99, method="exact").low
    assert radius == pytest.approx(SIGMA * norm.ppf(low))


def test_a_tie_abstains(half_space):
    torch.manual_seed(1)
    found = [
        certify_one(
            half_space,
            torch.tensor([0.5, 0.3, 0.3, 0.3]),
            sigma=SIGMA,
            alpha=0.001,
            n0=20,
            n=500,
            batch=500,
        )
        for _ in range(20)
    ]
    assert found.count((ABSTAIN, 0.0)) >= 19
