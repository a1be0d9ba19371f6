"""Rules of layers: per-example gradients against autograd, one example at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from privet.privacy.rules import RULES, Dense, RankOne, has_rule

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=80)

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (4,)),
    "linear on sequences": (lambda: nn.Linear(4, 3), (5, 4)),
    "linear on grids": (lambda: nn.Linear(4, 3), (2, 3, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1, dilation=2), (2, 9)),
    "conv1d in groups": (lambda: nn.Conv1d(4, 6, 2, groups=2, bias=False), (4, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 7, 5)),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=2, dilation=2), (4, 6, 6)),
    "conv2d that skips the rim": (lambda: nn.Conv2d(1, 2, 2, stride=3), (1, 6, 7)),
}


def autograd_rows(layer, x, b):
    """For each example and parameter: the gradient of <layer(x_i), b_i>."""
    rows = {name: [] for name, _ in layer.named_parameters()}
    for xi, bi in zip(x, b, strict=True):
        value = (layer(xi.unsqueeze(0))[0] * bi).sum()
        for name, g in zip(rows, torch.autograd.grad(value, list(layer.parameters())), strict=True):
            rows[name].append(g)
    return {name: torch.stack(g) for name, g in rows.items()}


@pytest.fixture(params=LAYERS, ids=str)
def case(request):
    torch.manual_seed(0)
    build, shape = LAYERS[request.param]
    layer = build()
    x = torch.randn(4, *shape)
    b = torch.randn_like(layer(x))
    return layer, x, b, autograd_rows(layer, x, b)


def test_a_rule_gives_every_examples_gradient(case):
    layer, x, b, expected = case
    found = RULES[type(layer)](layer, x, b)
    assert set(found) == set(expected)
    for name, rows in expected.items():
        assert torch.allclose(found[name].formed(), rows, rtol=1e-5, atol=1e-5)


def test_norms_and_weighted_sums_are_those_of_the_formed_gradients(case):
    layer, x, b, expected = case
    weights = torch.tensor([0.5, 0.0, 2.0, -1.0])
    for name, part in RULES[type(layer)](layer, x, b).items():
        rows = expected[name].double()
        norms = rows.flatten(1).norm(dim=1)
        assert torch.allclose(part.squared_norms().double().sqrt(), norms, rtol=1e-5)
        total = torch.einsum("b,b...->...", weights.double(), rows)
        assert torch.allclose(part.weighted_sum(weights).double(), total, rtol=1e-4, atol=1e-4)


def test_broken_rows_become_zero_and_leave_the_others_alone(case):
    layer, x, b, expected = case
    x, b = x.clone(), b.clone()
    x[1], b[1] = float("inf"), float("nan")
    broken = torch.tensor([False, True, False, False])
    for name, part in RULES[type(layer)](layer, x, b).items():
        mended = part.without(broken)
        assert torch.equal(mended.formed()[1], torch.zeros_like(mended.formed()[1]))
        assert torch.allclose(mended.formed()[~broken], expected[name][~broken], atol=1e-5)
        assert torch.isfinite(mended.weighted_sum(torch.ones(4))).all()


@REPEATABLE
@given(
    b=st.floats(1e-30, 1e30, allow_subnormal=False),
    a=st.floats(1e-30, 1e30, allow_subnormal=False),
)
def test_the_norm_of_a_rank_one_gradient_neither_underflows_nor_overflows(a, b):
    part = RankOne(torch.tensor([[b, 0.0]]), torch.tensor([[a, a]]))
    exact = 2.0 * float(torch.tensor(a)) ** 2 * float(torch.tensor(b)) ** 2
    assert float(part.squared_norms()) == pytest.approx(exact, rel=1e-6)


def test_a_parameter_used_twice_has_the_norm_of_the_sum():
    b, a = torch.tensor([[3.0], [1.0]]), torch.tensor([[1.0], [1.0]])
    both = Dense.sum_of([RankOne(b, a), Dense(torch.tensor([[[-3.0]], [[1.0]]]))])
    assert both.squared_norms().tolist() == [0.0, 4.0]  # 3 - 3 cancels, 1 + 1 adds up


@pytest.mark.parametrize(
    "layer", [nn.Linear(2, 2), nn.Conv1d(1, 1, 2), nn.Conv2d(1, 1, 2), nn.ReLU()]
)
def test_plain_layers_have_a_rule(layer):
    assert has_rule(layer)


class MyLinear(nn.Linear):
    pass


@pytest.mark.parametrize(
    "layer",
    [
        MyLinear(2, 2),
        nn.LayerNorm(2),
        nn.GroupNorm(1, 2),
        nn.LSTM(2, 2),
        nn.Embedding(2, 2),
        nn.Conv3d(1, 1, 2),
        nn.ConvTranspose1d(1, 1, 2),
        nn.Bilinear(2, 2, 2),
        nn.Conv1d(1, 1, 3, padding="same"),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
        nn.MultiheadAttention(2, 1),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_have_none(layer):
    assert not all(has_rule(module) for module in layer.modules())


def test_a_frozen_layer_needs_no_rule():
    assert has_rule(nn.LayerNorm(2).requires_grad_(False))


def test_a_layer_with_an_extra_parameter_has_none():
    layer = nn.Linear(2, 2)
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    assert not has_rule(layer)
