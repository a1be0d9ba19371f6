"""R-bar and L-bar: their gradients as the thesis writes them, and what they approximate."""

import math

import pytest
import torch
import torch.nn.functional as F

from privet.lifelong.published.objectives import (
    agem_gradient,
    classification,
    published_gradient,
    reconstruction,
)
from privet.models import create
from privet.models.published_lifelong import LIFELONG

N, K = 7, 3


@pytest.fixture
def network():
    made = create(LIFELONG, (1, 8, 8), K, init_seed=3).double()
    torch.manual_seed(0)
    made.input_noise.normal_(std=0.7)
    made.hidden_noise.normal_(std=0.7)
    return made


@pytest.fixture
def batch(network):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(N, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(K, (N,), generator=generator)
    chi3 = torch.randn(1, 64, generator=generator, dtype=torch.float64).expand(K, -1)
    return network.noised(x), y, chi3


def as_matrix(first, shape):
    """theta1 as the thesis has it: (pixels, neurons of one map, maps), by pushing unit images."""
    pixels = math.prod(shape)
    units = torch.eye(pixels, dtype=first.weight.dtype).view(pixels, *shape)
    return first(units).detach().flatten(2).permute(0, 2, 1)


def parts(network, flat):
    sizes = [p.numel() for p in network.parameters()]
    return dict(zip((n for n, _ in network.named_parameters()), flat.split(sizes), strict=True))


def test_the_gradient_of_the_first_layer_is_the_thesis_one(network, batch):
    """sum_r h-bar_r (1/2 - x-bar_rs), summed over the places that share a weight."""
    noised, y, chi3 = batch
    matrix = as_matrix(network.first, (1, 8, 8))
    flat = noised.flatten(1)
    h = torch.einsum("rs,snm->rnm", flat, matrix).clamp(-1, 1)
    h = h + network.hidden_noise.flatten(1).T
    dense = torch.einsum("rnm,rs->snm", h, 0.5 - flat) / N / 64
    by_hand = torch.autograd.functional.vjp(
        lambda w: (
            F.conv2d(torch.eye(64, dtype=w.dtype).view(64, 1, 8, 8), w, padding=1)
            .flatten(2)
            .permute(0, 2, 1)
        ),
        network.first.weight.detach(),
        dense,
    )[1]
    found = parts(network, published_gradient(network, noised, y, chi3))["first.weight"]
    assert torch.allclose(found, by_hand.flatten(), atol=1e-12)


def test_the_gradient_of_the_last_layer_is_the_thesis_one(network, batch):
    noised, y, chi3 = batch
    h = network.hidden(network.encoded(noised)).detach()
    z = h @ network.last.weight.detach().T
    slope = 0.5 - F.one_hot(y, K) + z / 4
    by_hand = slope.T @ h / N - chi3
    found = parts(network, published_gradient(network, noised, y, chi3))["last.weight"]
    assert torch.allclose(found, by_hand.flatten(), atol=1e-12)


def test_below_the_last_layer_the_slope_is_propagated_and_no_noise(network, batch):
    noised, y, chi3 = batch
    h = network.hidden(network.encoded(noised).detach())
    w = network.last.weight.detach()
    slope = (0.5 - F.one_hot(y, K) + h.detach() @ w.T / 4) @ w / N
    lower = list(network.hidden.named_parameters())
    by_hand = torch.autograd.grad((h * slope).sum(), [p for _, p in lower])
    for noise in (chi3, 100 * chi3):
        found = parts(network, published_gradient(network, noised, y, noise))
        for (name, _), expected in zip(lower, by_hand, strict=True):
            assert torch.allclose(found[f"hidden.{name}"], expected.flatten(), atol=1e-12)


def test_both_are_the_taylor_polynomials_of_the_cross_entropies(network, batch):
    """At small weights they differ from the true costs in the next order alone."""
    noised, y, chi3 = batch
    network.hidden_noise.zero_()
    off = {"reconstruction": [], "classification": []}
    for size in (1e-2, 5e-3):
        with torch.no_grad():
            network.last.weight.copy_(size * torch.ones_like(network.last.weight))
        network.renormalise(size, exactly=True)
        h = network.encoded(noised).detach()
        v = torch.einsum("rnm,snm->rs", h.flatten(2).mT, as_matrix(network.first, (1, 8, 8)))
        x = noised.flatten(1)
        exact = (x * F.softplus(-v) + (1 - x) * F.softplus(v)).sum() / N / 64
        off["reconstruction"].append(float(abs(reconstruction(network, noised).detach() - exact)))
        # The same statistics for both: batch normalisation is in training mode.
        z = network.above(h).detach()
        one_hot = F.one_hot(y, K).double()
        entropy = F.binary_cross_entropy_with_logits(z, one_hot, reduction="sum") / N
        found = classification(network, noised, y, 0 * chi3)
        off["classification"].append(float(abs(found.detach() - entropy)))
    # v is of the second order in the weights, its square of the fourth; z of the first.
    assert off["reconstruction"][0] / off["reconstruction"][1] == pytest.approx(16, rel=0.05)
    assert off["classification"][0] / off["classification"][1] == pytest.approx(16, rel=0.2)


def test_the_printed_loss_has_its_misprint(network, batch):
    noised, y, chi3 = batch
    z = network.above(network.encoded(noised)).detach()
    y_ = F.one_hot(y, K)
    by_hand = (z - z * y_ - z.abs() / 2 + z**2 / 8 + math.log(2)).sum() / N
    by_hand = by_hand - (chi3 * network.last.weight.detach()).sum()
    assert float(z.min()) < 0
    found = [classification(network, noised, y, chi3, printed=p).item() for p in (True, False)]
    assert found[0] == pytest.approx(float(by_hand), rel=1e-12)
    assert found[1] != pytest.approx(float(by_hand))


def test_each_part_learns_from_its_own_objective(network, batch):
    """theta1 never sees a label, theta2 never the reconstruction."""
    noised, y, chi3 = batch
    one = parts(network, published_gradient(network, noised, y, chi3))
    other = parts(network, published_gradient(network, noised, (y + 1) % K, chi3))
    assert torch.equal(one["first.weight"], other["first.weight"])
    assert not torch.allclose(one["last.weight"], other["last.weight"])


def test_agem_learns_from_the_cross_entropy_end_to_end(network, batch):
    noised, y, chi3 = batch
    found = agem_gradient(network, noised, y, chi3)
    F.cross_entropy(network.above(network.encoded(noised)), y).backward()
    by_hand = torch.cat([p.grad.flatten() for p in network.parameters()])
    assert torch.allclose(found, by_hand, atol=1e-12)
    assert float(parts(network, found)["first.weight"].abs().max()) > 0
