"""Random cosine features: fixed, of one length, and a Gaussian kernel on the mean."""

import math

import pytest
import torch

from privet.errors import InputError
from privet.models import create
from privet.models.cosines import Cosines


def test_they_are_fixed_by_a_public_seed_whatever_the_first_weights():
    one, other = (create("cosines-2-64", (1, 8, 8), 10, init_seed=seed).front for seed in (0, 7))
    assert torch.equal(one.directions, other.directions)
    assert list(one.parameters()) == []


def test_their_products_are_a_gaussian_kernel():
    """E cos(W(x - z)) = exp(-|W(x - z)|^2 / 2); 40,000 directions leave 0.01 of chance."""
    torch.manual_seed(0)
    x, z = torch.rand(6, 20), torch.rand(6, 20)
    front = Cosines(20, 40_000, 2.0)
    found = (front(x) * front(z)).mean(1)
    distance = (2.0 * x - 2.0 * z).square().sum(1) * 2.0**2 / 20
    assert found == pytest.approx(torch.exp(-distance / 2.0), abs=0.015)


def test_every_example_has_the_same_length():
    torch.manual_seed(0)
    x = torch.cat([torch.rand(50, 12), torch.zeros(1, 12), torch.ones(1, 12)])
    assert torch.allclose(Cosines(12, 30, 3.0)(x).square().sum(1), torch.tensor(60.0), rtol=1e-5)


def test_spread_and_number_are_in_the_name():
    narrow, wide = (create(f"cosines-{s}-900", (4,), 2).front.directions for s in ("1.5", "3"))
    assert torch.allclose(2.0 * narrow, wide)
    assert narrow.shape == (900, 4)
    assert float(narrow.std()) == pytest.approx(1.5 / math.sqrt(4), rel=0.05)
    assert create("cosines-2-5", (4,), 3).head[1].weight.shape == (3, 10)
    for wrong in ("cosines-2", "cosines-2-0", "cosines--2-5"):
        with pytest.raises(InputError, match="unknown model"):
            create(wrong, (4,), 2)
