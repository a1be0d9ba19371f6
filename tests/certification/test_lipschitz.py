"""Sensitivities of paths: exact small cases, and no pair of inputs that moves further."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privet.certification.lipschitz import lipschitz
from privet.certification.operator_norm import l1_norm
from privet.errors import InputError
from privet.models import create
from privet.models.activations import TemperedSigmoid


def linear(matrix):
    matrix = torch.tensor(matrix, dtype=torch.float64)
    layer = nn.Linear(matrix.shape[1], matrix.shape[0]).double()
    with torch.no_grad():
        layer.weight.copy_(matrix)
    return layer


def written_out(layer, shape):
    """The matrix, column by column, by applying the layer itself."""
    size = math.prod(shape)
    ones = torch.eye(size, dtype=torch.float64).view(size, *shape)
    with torch.no_grad():
        return (layer(ones) - layer(torch.zeros_like(ones))).flatten(1).T


LAYERS = [
    (nn.Linear(5, 3), (5,)),
    (nn.Linear(4, 3), (2, 4)),
    (nn.Conv1d(2, 3, 3, padding=1), (2, 9)),
    (nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 9, 8)),
    (nn.Conv2d(4, 4, 3, groups=2, dilation=2), (4, 9, 9)),
    (nn.Conv2d(1, 2, (2, 5), stride=(3, 1)), (1, 9, 9)),
    (nn.AvgPool2d(2), (2, 6, 6)),
    (nn.AvgPool2d(3, 1), (1, 7, 7)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda v: type(v).__name__)
def test_the_l1_norm_is_the_largest_column_sum(layer, shape):
    """Of the matrix written out; a wrong axis (row sums) is off by far."""
    torch.manual_seed(0)
    layer = layer.double()
    exact = float(written_out(layer, shape).abs().sum(0).max())
    assert exact <= l1_norm(layer, shape) <= exact * (1 + 1e-9)


def test_exact_products():
    stretch = linear([[3.0, 0.0], [0.0, 1.0]])
    turn = linear([[0.0, 1.0], [1.0, 0.0]])
    path = nn.Sequential(stretch, nn.ReLU(), turn, nn.Sigmoid(), linear([[2.0, 2.0]]))
    assert lipschitz(path, (2,), "l2") == pytest.approx(3 * 0.25 * math.sqrt(8), rel=1e-8)
    assert lipschitz(path, (2,), "l1") == pytest.approx(3 * 0.25 * 2, rel=1e-8)


def test_linear_maps_in_a_row_are_one_map():
    """diag(3, 1) then diag(1, 3) stretches by 3, not by 9."""
    path = nn.Sequential(linear([[3.0, 0.0], [0.0, 1.0]]), linear([[1.0, 0.0], [0.0, 3.0]]))
    assert lipschitz(path, (2,), "l2") == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize(
    ("pool", "windows"),
    [
        (nn.MaxPool2d(2), 1),
        (nn.MaxPool2d(2, 1), 4),
        (nn.MaxPool2d(3, 2, padding=1), 4),
        (nn.MaxPool2d((3, 1), (1, 1)), 3),
        (nn.MaxPool2d(3, 2, dilation=2), 9),
        (nn.MaxPool2d(2, 3), 1),
    ],
    ids=str,
)
def test_a_maximum_counts_how_often_an_entry_is_read(pool, windows):
    """The one spike that every window sees reaches the bound in both norms."""
    assert lipschitz(pool, (1, 9, 9), "l1") == pytest.approx(windows)
    assert lipschitz(pool, (1, 9, 9), "l2") == pytest.approx(math.sqrt(windows))
    flat = torch.zeros(81, 1, 9, 9)
    spikes = torch.eye(81).view(81, 1, 9, 9)
    moved = (pool(spikes) - pool(flat)).flatten(1)
    assert float(moved.abs().sum(1).max()) == windows


ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU6(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.ELU(2.5),
    nn.LeakyReLU(3.0),
    nn.Hardtanh(),
    TemperedSigmoid(3.0, 1.5, 1.0),
    nn.Dropout(0.5).eval(),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_slopes_of_activations_are_right_and_reached(activation):
    places = torch.linspace(-8, 8, 200_001, dtype=torch.float64)
    values = activation(places)
    steepest = float(((values[1:] - values[:-1]) / (places[1:] - places[:-1])).abs().max())
    bound = lipschitz(activation, (1,), "l2")
    assert steepest <= bound * (1 + 1e-9)
    assert steepest >= 0.99 * bound


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("cut", [2, 3, 4, 5, 6])
def test_no_pair_of_inputs_moves_further(norm, cut):
    """A search by gradient for the pair that is stretched most, on a real network."""
    path = nn.Sequential(*list(create("cnn-tiny", (1, 8, 8), 3))[:cut]).double()
    bound = lipschitz(path, (1, 8, 8), norm)
    p = 1 if norm == "l1" else 2
    torch.manual_seed(1)
    x = torch.rand(20, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    step = (1e-2 * torch.randn(20, 1, 8, 8, dtype=torch.float64)).requires_grad_()
    search = torch.optim.Adam([x, step], lr=0.02)
    best = 0.0
    for _ in range(60):
        moved = (path(x + step) - path(x)).flatten(1).norm(p, dim=1)
        stretch = moved / step.flatten(1).norm(p, dim=1)
        best = max(best, float(stretch.detach().max()))
        search.zero_grad()
        (-stretch.sum()).backward()
        search.step()
    assert best <= bound
    assert best >= 0.03 * bound  # products over layers are loose, in l1 more so


@pytest.mark.parametrize(
    "part",
    [nn.GroupNorm(1, 2), nn.Softmax(1), nn.MaxPool1d(2, return_indices=True), nn.BatchNorm1d(2)],
    ids=lambda p: type(p).__name__,
)
def test_what_has_no_known_constant_is_refused(part):
    with pytest.raises(InputError):
        lipschitz(nn.Sequential(nn.Conv1d(1, 2, 3), part), (1, 9), "l2")


def test_unknown_norm_and_hooks_are_refused():
    with pytest.raises(InputError, match="norm"):
        lipschitz(nn.ReLU(), (2,), "linf")
    hooked = nn.ReLU()
    hooked.register_forward_hook(lambda *_: torch.zeros(1, 2))
    with pytest.raises(InputError, match="hook"):
        lipschitz(nn.Sequential(hooked), (2,), "l2")


def test_the_bound_holds_in_floating_point():
    """Exactly representable: the bound is at least the norm, not a rounding error below."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.integers(-9, 10, (6, 4)).astype(float)
        layer = linear(matrix.tolist())
        assert lipschitz(layer, (4,), "l1") >= np.abs(matrix).sum(0).max()
        assert lipschitz(layer, (4,), "l2") >= np.linalg.norm(matrix, 2) * (1 - 1e-15)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(
    ("part", "shape"),
    [
        (nn.MaxPool2d(3, 1), (6, 6)),
        (nn.MaxPool1d(3, 1), (6,)),
        (nn.AvgPool2d(3, 1, divisor_override=1), (6, 6)),
        (nn.Softplus(), (4,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_bound_here_is_refused(part, shape, norm):
    """Windows over a batch that is taken for channels; a slope with a jump in PyTorch's version."""
    with pytest.raises(InputError):
        lipschitz(nn.Sequential(part), shape, norm)
