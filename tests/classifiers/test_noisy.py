import math

import pytest
import torch
from scipy.stats import norm
from torch import nn

from privet.attacks.sweep import attack
from privet.classifiers import open_classifier
from privet.classifiers.noisy import noisy
from privet.errors import InputError


class Threshold(nn.Module):
    """Class 1 where the one pixel is above a half."""

    def forward(self, x):
        above = x.flatten(1).sum(1) - 0.5
        return torch.stack([-above, above], 1)


def threshold():
    return open_classifier(Threshold(), shape=(1,))


def test_draws_hit_as_often_as_the_normal_distribution_says():
    """P(0.6 + 0.25 b > 0.5) = Phi(0.4) = 0.6554; 100,000 draws are within 5 deviations."""
    chance = norm.cdf(0.4)
    votes = noisy(threshold(), 0.25, seed=1).labels(torch.full((100_000, 1), 0.6))
    spread = math.sqrt(chance * (1 - chance) / 100_000)
    assert float(votes.double().mean()) == pytest.approx(chance, abs=5 * spread)


def test_every_call_draws_anew_and_the_seed_repeats_them():
    x = torch.full((4, 1), 0.6)
    one, other = noisy(threshold(), 0.25, seed=1), noisy(threshold(), 0.25, seed=1)
    first = one.scores(x)
    assert not torch.equal(first, one.scores(x))
    assert len(first[:, 0].unique()) == 4
    assert torch.equal(first, other.scores(x))
    assert one.random


def test_an_attack_must_reach_where_the_majority_turns():
    """The smoothed classifier turns at a half, 0.1 away: 0.05 is too short, 0.15 is enough."""
    x, y = torch.full((3, 1), 0.6), torch.ones(3, dtype=torch.int64)
    found = attack("pgd", noisy(threshold(), 0.1), x, y, norm="l2", sizes=[0.05, 0.15], eot=4)
    assert found.holds["pgd"].tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_refused_scales(scale):
    with pytest.raises(InputError, match="bad scale"):
        noisy(threshold(), scale)
