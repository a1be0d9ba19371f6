"""Standardised weights: what they are, and their gradients one example at a time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from privet.models import create, standardised
from privet.models.standardised import (
    ChannelAffine,
    PulledBack,
    WSConv2d,
    channel_affine,
    pull_back,
    standardise,
    ws_conv2d,
)
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy, make_clipper
from privet.privacy.rules import Dense, Rounding, Windowed, has_rule

# Without what is allowed for additions: nothing but the measured norm.
BARE = Rounding(sums=2.0**-22, outputs=2.0**-22, additions=0.0)


def weights(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) + 0.3


def test_each_output_channel_has_mean_zero_and_norm_one():
    unit, scale = standardise(weights(5, 3, 2, 2))
    flat = unit.flatten(1)
    assert flat.mean(1).abs().max() < 1e-12
    assert torch.allclose(flat.norm(dim=1), torch.ones(5).double())
    var = weights(5, 3, 2, 2).flatten(1).var(1, unbiased=False)
    assert torch.allclose(scale, (12 * var).rsqrt())


def test_weights_without_spread_stay_finite():
    unit, scale = standardise(torch.full((2, 3, 1, 1), 0.4))
    assert torch.equal(unit, torch.zeros_like(unit))
    assert torch.allclose(scale, torch.tensor(100.0))  # the floor of 0.0001


def test_the_pull_back_is_the_derivative():
    """Against autograd, for ordinary channels and for one at the floor."""
    weight = weights(4, 3, 2, 2)
    weight[2] = 0.2 + 1e-4 * weight[2]  # N var(W) below the floor
    gradients = torch.stack([weights(4, 3, 2, 2, seed=s) for s in (1, 2, 3)])
    ours = pull_back(weight, gradients)
    for row, gradient in zip(ours, gradients, strict=True):
        raw = weight.clone().requires_grad_()
        standardise(raw)[0].backward(gradient)
        torch.testing.assert_close(row, raw.grad, rtol=1e-9, atol=1e-12)


def test_norms_follow_without_forming():
    """The identity in the docstring of `pull_back`."""
    weight, gradients = weights(4, 3, 2, 2), weights(6, 4, 3, 2, 2, seed=1)
    unit, scale = standardise(weight)
    G, V = gradients.flatten(2), unit.flatten(1)
    squares = G.square().sum(2) - 12 * G.mean(2).square() - (G * V).sum(2).square()
    expected = pull_back(weight, gradients).flatten(2).square().sum(2)
    torch.testing.assert_close(scale.square() * squares, expected, rtol=1e-9, atol=1e-12)


def reference(layer, x, b):
    """Gradients of <b_i, layer(x_i)> for each example i, by torch.func."""

    def inner(parameters, x, b):
        return (functional_call(layer, parameters, (x[None],))[0] * b).sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    return vmap(grad(inner), in_dims=(None, 0, 0))(parameters, x, b)


@pytest.mark.parametrize(
    ("layer", "rule", "shape"),
    [
        (WSConv2d(3, 4, 3, padding=1, bias=False), ws_conv2d, (5, 3, 6, 7)),
        (WSConv2d(4, 6, 3, stride=2, padding=1), ws_conv2d, (5, 4, 7, 7)),
        (WSConv2d(4, 6, 1, groups=2), ws_conv2d, (2, 4, 3, 3)),
        (ChannelAffine(4), channel_affine, (5, 4, 3, 2)),
        (ChannelAffine(4), channel_affine, (5, 4)),
    ],
)
def test_rules_agree_with_the_reference(layer, rule, shape):
    layer = layer.double()
    for i, parameter in enumerate(layer.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    x = weights(*shape)
    b = weights(*layer(x).shape, seed=1)
    expected = reference(layer, x, b)
    ours = rule(layer, x, b, *([layer(x)] if rule is ws_conv2d else []))
    assert set(ours) == set(expected)
    for name, gradients in expected.items():
        torch.testing.assert_close(ours[name].formed(), gradients, rtol=1e-9, atol=1e-9)


def test_views_are_added_up_before_they_are_pulled_back():
    layer = WSConv2d(3, 4, 3, bias=False).double()
    x, b = weights(6, 3, 5, 5), weights(6, 4, 3, 3, seed=1)
    form = ws_conv2d(layer, x, b, layer(x))["weight"]
    expected = reference(layer, x, b)["weight"].reshape(3, 2, 4, 3, 3, 3).sum(1)
    torch.testing.assert_close(form.folded(2).formed(), expected)
    squares = expected.flatten(1).square().sum(1)
    torch.testing.assert_close(form.folded(2).squared_norms(BARE), squares, rtol=4e-5, atol=0)


def at_random(groups, stride, bias, units=4, rows=2):
    """A layer with one channel at the floor, and a batch for it."""
    torch.manual_seed(groups + 10 * stride)
    layer = WSConv2d(4, 6, 3, stride, padding=1, groups=groups, bias=bias)
    with torch.no_grad():
        layer.weight[1] = 0.2 + 1e-4 * layer.weight[1]
    x = torch.randn(units * rows, 4, 9, 9)
    return layer, x, torch.randn_like(layer(x))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_need_not_be_formed(groups, stride, bias, monkeypatch):
    """Norms and sums of a large kernel, in float32, against torch.func in double precision."""
    layer, x, b = at_random(groups, stride, bias)
    with torch.no_grad():
        form = ws_conv2d(layer, x, b, layer(x))["weight"].folded(2)
    exact = reference(layer.double(), x.double(), b.double())["weight"]
    exact = exact.reshape(4, 2, *exact.shape[1:]).sum(1)
    monkeypatch.setattr(Windowed, "_costs", lambda self: (1.0, 0.0, 1.0))
    settled = form.settled()
    assert isinstance(settled, PulledBack)
    assert settled.held == 0
    norms, expected = settled.squared_norms(BARE).sqrt(), exact.flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, expected, rtol=2e-5, atol=0)
    assert (norms >= expected * (1 - 1e-6)).all()
    factors = torch.tensor([1.0, -0.5, 2.0, 0.0], dtype=torch.float64)
    total = torch.einsum("n,n...->...", factors, exact).float()
    found = settled.weighted_sum(factors)
    assert (found - total).norm() <= 1e-5 * total.norm()
    rest = settled.without(torch.tensor([False, True, False, True]))
    total = (exact[0] + exact[2]).float()
    assert (rest.weighted_sum(torch.ones(4)) - total).norm() <= 1e-5 * total.norm()


def test_the_norm_without_what_is_taken_off_would_be_too_long(monkeypatch):
    """What is orthogonal must go: else honest gradients are clipped too much."""
    layer, x, _ = at_random(1, 1, False)
    monkeypatch.setattr(Windowed, "_costs", lambda self: (1.0, 0.0, 1.0))
    with torch.no_grad():
        b = layer(x)  # the gradient points along V
        form = ws_conv2d(layer, x, b, layer(x))["weight"].settled()
    exact = reference(layer.double(), x.double(), b.double())["weight"].flatten(1).norm(dim=1)
    assert (form.plain.squared_norms().sqrt() > 1.2 * exact).all()
    torch.testing.assert_close(form.squared_norms(BARE).sqrt(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_norms_read_from_the_output_are_those_of_the_fields(rows):
    """With a bias in the output, and a form built again from its fields, as a trace returns it."""
    layer, x, b = at_random(2, 2, True)
    nn.init.normal_(layer.bias)
    with torch.no_grad():
        form = ws_conv2d(layer, x, b, layer(x))["weight"]
    form = form.folded(rows)
    form = PulledBack(**{name: getattr(form, name) for name in form.__dataclass_fields__})
    exact = reference(layer.double(), x.double(), b.double())["weight"]
    exact = exact.reshape(-1, rows, *exact.shape[1:]).sum(1).flatten(1).norm(dim=1)
    torch.testing.assert_close(form.squared_norms(BARE).sqrt(), exact, rtol=2e-5, atol=0)


def test_formed_gradients_cost_no_look_at_the_patches(monkeypatch):
    """What only unformed norms need is computed for them alone: most layers are formed."""
    layer, x, b = at_random(1, 1, True)
    looks = []
    over_patches = standardised._over_patches
    monkeypatch.setattr(
        standardised, "_over_patches", lambda *a: looks.append(a[1]) or over_patches(*a)
    )
    with torch.no_grad():
        form = ws_conv2d(layer, x, b, layer(x))["weight"].folded(2)
    settled = form.settled()
    assert isinstance(settled, Dense)
    formed = settled.squared_norms()
    assert looks == []
    torch.testing.assert_close(form.squared_norms(BARE), formed, rtol=4e-5, atol=0)
    assert looks == [1, 2]


@pytest.mark.parametrize("name", ["wrn-10-1", "cnn-gn"])
def test_clipping_a_network_is_fast_and_agrees_with_the_reference(name):
    model = create(name, (1, 8, 8), 3)
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    fast = make_clipper(model, cross_entropy, 0.5, probe=(x[:2], y[:2]))
    assert isinstance(fast, FastClipper)
    slow = ReferenceClipper(model, cross_entropy, 0.5)
    for views in (1, 3):
        ours, expected = (c.clipped_sum(x, y, views=views) for c in (fast, slow))
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_the_rules_are_found():
    assert has_rule(WSConv2d(3, 4, 3))
    assert has_rule(ChannelAffine(3))


def test_the_two_layers_are_a_convolution_with_gain_times_unit():
    convolution, affine = WSConv2d(3, 4, 3, bias=False), ChannelAffine(4)
    nn.init.normal_(affine.weight)
    nn.init.normal_(affine.bias)
    x = torch.rand(2, 3, 6, 6)
    weight = affine.weight.reshape(4, 1, 1, 1) * standardise(convolution.weight)[0]
    expected = nn.functional.conv2d(x, weight, affine.bias)
    torch.testing.assert_close(affine(convolution(x)), expected)
