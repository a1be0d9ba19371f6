"""Random cosine features: fixed, within bounds, and a Gaussian kernel on the mean."""

import math

import pytest
import torch

from privet.models import create
from privet.models.cosines import WIDTH, Cosines


def test_they_are_fixed_by_a_public_seed_whatever_the_first_weights():
    one, other = (create("cosines-2", (1, 8, 8), 10, init_seed=seed).front for seed in (0, 7))
    assert torch.equal(one.directions, other.directions)
    assert list(one.parameters()) == []


def test_their_products_are_a_gaussian_kernel():
    """E cos(a) cos(b) = exp(-|W(x - z)|^2 / 2) / 2; 40,000 features leave 0.01 of chance."""
    torch.manual_seed(0)
    x, z = torch.rand(6, 20), torch.rand(6, 20)
    front = Cosines(20, 40_000, 2.0)
    found = (front(x) * front(z)).mean(1)
    distance = (2.0 * x - 2.0 * z).square().sum(1) * 2.0**2 / 20
    assert found == pytest.approx(0.5 * torch.exp(-distance / 2.0), abs=0.01)
    assert front(x).abs().max() <= 1.0


def test_the_spread_is_in_the_name():
    narrow, wide = (create(f"cosines-{s}", (4,), 2).front.directions for s in (1, 3))
    assert torch.allclose(3.0 * narrow, wide)
    assert narrow.shape == (WIDTH, 4)
    assert float(narrow.std()) == pytest.approx(1 / math.sqrt(4), rel=0.05)
