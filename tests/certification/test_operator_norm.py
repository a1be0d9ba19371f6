"""Bounds of operator norms against dense singular values of the modules themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privet.certification.operator_norm import operator_norm, power_estimate, read_linear
from privet.errors import CheckFailed, InputError
from privet.models.registry import Centre
from privet.models.standardised import ChannelAffine, WSConv2d

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
# A dense SVD is right to about 1e-13; below that nobody can tell bound and truth apart.
SVD_ERROR = 1e-12


def written_out(layer: nn.Module, shape: tuple[int, ...]) -> np.ndarray:
    """The module's own matrix: what it does to each unit vector, in double precision."""
    layer, n = layer.double(), math.prod(shape)
    with torch.no_grad():
        offset = layer(torch.zeros(1, *shape, dtype=torch.float64))
        rows = layer(torch.eye(n, dtype=torch.float64).reshape(n, *shape)) - offset
    return rows.reshape(n, -1).T.numpy()


def true_norm(layer: nn.Module, shape: tuple[int, ...]) -> float:
    return float(np.linalg.svd(written_out(layer, shape), compute_uv=False)[0])


@st.composite
def convolutions(draw):
    """A random convolution and a shape that it fits on."""
    axes, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    several = st.tuples(*[st.integers(1, 3)] * axes)
    kernel, stride, dilation = draw(several), draw(several), draw(several)
    padding = draw(st.tuples(*[st.integers(0, 4)] * axes))
    least = [
        max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    grid = tuple(n + draw(st.integers(0, 5)) for n in least)
    torch.manual_seed(draw(st.integers(0, 10**6)))
    kind = {1: nn.Conv1d, 2: nn.Conv2d}[axes]
    ins, outs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    layer = kind(
        ins, outs, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    return layer, (ins, *grid)


@FIXED
@given(convolutions())
def test_convolutions_are_bounded_from_above_and_tightly(case):
    """Fails where stride, dilation, padding or groups are read wrongly in either direction."""
    layer, shape = case
    truth, found = true_norm(layer, shape), operator_norm(layer, shape)
    assert truth * (1 - SVD_ERROR) <= found.bound <= truth * (1 + 1e-7) + 1e-140


@FIXED
@given(convolutions())
def test_each_bound_is_valid_by_itself(case):
    """The smallest bound would hide a wrong one; so would a product that is never the best."""
    layer, shape = case
    truth = true_norm(layer, shape)
    (form,) = read_linear(layer, shape)
    named = {method: bound for bound, method in form.bounds()}
    assert set(named) == {"row and column sums", "Fourier"}
    assert min(named.values()) >= truth * (1 - SVD_ERROR)


@FIXED
@given(convolutions())
def test_the_matrix_is_the_modules_own(case):
    layer, shape = case
    (form,) = read_linear(layer, shape)
    ours = form.matrix().toarray()
    assert ours.shape == form.size
    assert np.count_nonzero(ours) <= form.entries
    np.testing.assert_array_equal(ours, written_out(layer, shape))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_fourier_bound_is_within_a_tenth_on_images(stride):
    """Stated looseness; without the split into phases it would be off by about the stride."""
    torch.manual_seed(stride)
    layer, shape = nn.Conv2d(3, 8, 5, stride=stride, padding=2), (3, 16, 16)
    (form,) = read_linear(layer, shape)
    bound = {method: b for b, method in form.bounds()}["Fourier"]
    assert 1.0 <= bound / true_norm(layer, shape) <= 1.1


@FIXED
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 10**6), st.sampled_from([(), (3,)]))
def test_dense_layers(n, m, seed, leading):
    torch.manual_seed(seed)
    layer, shape = nn.Linear(n, m), (*leading, n)
    truth, found = true_norm(layer, shape), operator_norm(layer, shape)
    assert truth * (1 - SVD_ERROR) <= found.bound <= truth * (1 + 1e-9)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.AvgPool1d(3, 2, 1), (2, 11)),
        (nn.AvgPool2d(2), (3, 8, 8)),
        (nn.AvgPool2d((3, 2), stride=1, padding=1), (1, 6, 7)),
        (nn.AvgPool2d(3, divisor_override=2), (2, 9, 9)),
        (nn.AvgPool3d(2, 1), (1, 3, 4, 3)),
        (nn.Conv2d(2, 3, 3, padding="same", dilation=2), (2, 6, 5)),
        (nn.Conv2d(2, 3, 4, padding="valid"), (2, 6, 5)),
        (nn.Conv3d(1, 2, 2, stride=2, padding=1), (1, 4, 3, 5)),
        (Centre(), (1, 4, 4)),
        (nn.Sequential(nn.Identity(), nn.Flatten()), (2, 3)),
        (nn.Sequential(Centre(), nn.Conv2d(1, 4, 3), nn.AvgPool2d(2), nn.Flatten()), (1, 8, 8)),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.Flatten(), nn.Linear(32, 5))),
            (1, 6, 6),
        ),
        (nn.Sequential(*[nn.Linear(6, 6)] * 3), (6,)),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else type(value).__name__,
)
def test_the_other_layers(layer, shape):
    truth, found = true_norm(layer, shape), operator_norm(layer, shape)
    assert truth * (1 - SVD_ERROR) <= found.bound <= truth * (1 + 1e-9)
    assert found.gap >= -1e-12


def test_gains_of_channels():
    layer = ChannelAffine(3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, -4.0, 1.0]))
    assert operator_norm(layer, (3, 2, 2)).bound == pytest.approx(4.0, rel=1e-12)


def test_known_norms():
    ones = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(ones.weight)
    # Separable: 1 + 2 cos(pi / (n + 1)) along each axis, the path graph's largest eigenvalue.
    exact = (1 + 2 * math.cos(math.pi / 9)) ** 2
    assert exact <= operator_norm(ones, (1, 8, 8)).bound <= exact * (1 + 1e-9)
    zero = nn.Linear(3, 3)
    nn.init.zeros_(zero.weight)
    assert 0 <= operator_norm(zero, (3,)).bound < 1e-100


def test_large_layers_fall_back_on_fourier(monkeypatch):
    monkeypatch.setattr("privet.certification.operator_norm.LARGEST_SIDE", 40)
    torch.manual_seed(0)
    layer, shape = nn.Conv2d(2, 6, 3, padding=1), (2, 9, 9)
    found = operator_norm(layer, shape)
    assert found.method == "Fourier"
    assert 1.0 <= found.bound / true_norm(layer, shape) <= 1.1


def test_a_product_is_not_written_out_where_it_is_large(monkeypatch):
    monkeypatch.setattr("privet.certification.operator_norm.MOST_ENTRIES", 100)
    torch.manual_seed(0)
    layer, shape = nn.Sequential(nn.Linear(9, 8), nn.Linear(8, 7)), (9,)
    found = operator_norm(layer, shape)
    parts = true_norm(layer[0], (9,)) * true_norm(layer[1], (8,))
    assert found.method == "product"
    assert found.bound == pytest.approx(parts, rel=1e-9)
    assert found.bound >= true_norm(layer, shape)


# The popular mistakes, caught by the same comparison.


def test_power_iteration_is_no_bound():
    torch.manual_seed(1)
    layer, shape = nn.Conv2d(2, 4, 3, padding=1), (2, 9, 9)
    truth = true_norm(layer, shape)
    few = [power_estimate(layer, shape, steps=k) for k in (1, 5, 20)]
    assert few == sorted(few)
    assert few[-1] < truth * (1 - 1e-3)
    assert power_estimate(layer, shape, steps=3000) == pytest.approx(truth, rel=1e-6)


def test_the_reshaped_kernel_is_no_bound():
    torch.manual_seed(2)
    layer, shape = nn.Conv2d(3, 8, 3, padding=1), (3, 8, 8)
    reshaped = torch.linalg.matrix_norm(layer.weight.detach().flatten(1).double(), 2)
    assert float(reshaped) < 0.9 * true_norm(layer, shape) < operator_norm(layer, shape).bound


@pytest.mark.parametrize(
    ("layer", "shape", "word"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (4,), "ReLU at '1'"),
        (nn.Sequential(nn.Sequential(nn.BatchNorm1d(4))), (4,), "BatchNorm1d at '0.0'"),
        (WSConv2d(1, 2, 3), (1, 5, 5), "WSConv2d"),
        (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 5, 5), "zero padding"),
        (nn.AvgPool2d(3, padding=1, count_include_pad=False), (1, 6, 6), "border"),
        (nn.AvgPool2d(3, stride=2, ceil_mode=True), (1, 6, 6), "border"),
        (nn.Dropout(), (4,), "Dropout"),
    ],
)
def test_what_is_not_known_to_be_linear_is_refused_by_name(layer, shape, word):
    with pytest.raises(InputError, match=word.replace(".", r"\.")):
        operator_norm(layer, shape)


def test_a_hook_is_refused():
    hooked, patched = nn.Linear(3, 3), nn.Linear(3, 3)
    hooked.register_forward_hook(lambda module, inputs, output: 10 * output)
    patched.forward = lambda x: x.abs()
    for layer in (hooked, nn.Sequential(patched), nn.utils.spectral_norm(nn.Linear(3, 3))):
        with pytest.raises(InputError, match="hook"):
            operator_norm(layer, (3,))


def test_weights_that_are_not_finite_are_refused():
    layer = nn.Linear(3, 3)
    nn.init.constant_(layer.weight, math.nan)
    with pytest.raises(InputError, match="finite"):
        operator_norm(layer, (3,))


def test_a_bound_that_the_module_contradicts_is_an_error(monkeypatch):
    """The module itself has the last word: here it is changed behind its type."""
    layer = nn.Linear(3, 3)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: 2 * x @ self.weight.T)
    with pytest.raises(CheckFailed, match="contradicted"):
        operator_norm(layer, (3,))
