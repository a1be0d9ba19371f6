"""The networks of L2DP-ML: sizes, clipping, norms, where the noise is."""

import pytest
import torch

from privet.models import create
from privet.models.published_lifelong import LIFELONG

SHAPES = [(1, 28, 28), (3, 32, 32), (100, 3), (1, 3, 100), (1, 8, 8)]


def made(shape, classes=5, seed=0):
    return create(LIFELONG, shape, classes, init_seed=seed)


@pytest.mark.parametrize(
    ("shape", "patch", "maps", "neurons", "units"),
    [
        ((1, 28, 28), (1, 5, 5), 32, (14, 14), 512),
        ((3, 32, 32), (3, 4, 4), 64, (14, 14), 256),
        ((100, 3), (1, 2, 2), 32, (50, 2), 128),
        ((1, 3, 100), (1, 2, 2), 32, (2, 50), 128),
        ((1, 8, 8), (1, 3, 3), 16, (8, 8), 64),
    ],
)
def test_the_sizes_of_the_thesis(shape, patch, maps, neurons, units):
    network = made(shape)
    assert tuple(network.first.weight.shape) == (maps, *patch)
    assert tuple(network.hidden_noise.shape) == (maps, *neurons)
    assert tuple(network.last.weight.shape) == (5, units)
    assert network.first.bias is None
    assert network.last.bias is None


def test_the_widths_of_the_convolutions():
    def widths(shape):
        convolutions = [m for m in made(shape).modules() if isinstance(m, torch.nn.Conv2d)]
        return [m.out_channels for m in convolutions if m.kernel_size != (1, 1)]

    assert widths((1, 28, 28)) == widths((100, 3)) == [32, 64, 96]
    residual = widths((3, 32, 32))
    assert residual == [64, *[64] * 4, *[128] * 4, *[128] * 4, *[160] * 4]
    assert len(residual) + 1 == 18, "and the layer behind them, of 256 units"


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_it_is_the_thesis_formula(shape):
    """theta1' x-bar by unfolding, clipped, noised; h_pi within [-1, 1]; scores linear in it."""
    network, x = made(shape).eval(), torch.rand(3, *shape)
    network.input_noise.normal_(std=2.0)
    network.hidden_noise.normal_(std=3.0)
    images = x.reshape(3, -1, *shape[-2:])
    if shape == (3, 32, 32):
        images = images[..., 2:30, 2:30]
    noised = 2.0 * images - 1.0 + network.input_noise
    first = network.first
    columns = torch.nn.functional.unfold(
        noised, first.kernel_size, padding=first.padding, stride=first.stride
    )
    h = (first.weight.flatten(1) @ columns).view(3, *network.hidden_noise.shape)
    assert float(h.abs().max()) > 1.0, "or nothing would be clipped"
    features = network.hidden(h.clamp(-1, 1) + network.hidden_noise)
    assert float(features.abs().max()) <= 1.0
    assert torch.allclose(network(x), features @ network.last.weight.T, atol=1e-4)


def test_columns_are_shortened_and_never_lengthened():
    network = made((1, 8, 8))

    def norms():
        return network.first.weight.detach().abs().flatten(1).sum(1)

    assert torch.allclose(norms(), torch.ones(16))
    with torch.no_grad():
        network.first.weight[0] *= 0.5
        network.first.weight[1] *= 3.0
    network.renormalise(0.8)
    assert float(norms()[0]) == pytest.approx(0.5)
    assert torch.allclose(norms()[1:], torch.full((15,), 0.8))
    network.renormalise(0.8, exactly=True)
    assert torch.allclose(norms(), torch.full((16,), 0.8))
