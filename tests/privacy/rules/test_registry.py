"""Which layers have a rule: exact types, plain parameters, a forward method of the library."""

import pytest
import torch
from torch import nn

from privet.privacy.rules import has_rule, why_no_rule


class MyLinear(nn.Linear):
    pass


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(),
        nn.Linear(2, 2),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
        nn.ConvTranspose1d(1, 1, 2),
        nn.Embedding(2, 2),
        nn.GroupNorm(1, 2),
        nn.LSTM(2, 2, 2, dropout=0.5, bidirectional=True, proj_size=1),
        nn.GRUCell(2, 2),
        nn.MultiheadAttention(4, 2, kdim=3, add_bias_kv=True),
        MyLinear(2, 2).requires_grad_(False),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_plain_layers_and_layers_without_parameters_are_covered(layer):
    assert has_rule(layer)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (MyLinear(2, 2), "no rule for MyLinear"),
        (nn.Bilinear(2, 2, 2), "no rule for Bilinear"),
        (nn.Embedding(2, 2, max_norm=1.0), "max_norm"),
        (nn.Embedding(2, 2, scale_grad_by_freq=True), "scale_grad_by_freq"),
        (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), "running statistics"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_others_say_why_not(layer, why):
    assert not has_rule(layer)
    assert why in why_no_rule(layer)


def test_a_reparametrised_layer_has_none():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert not all(has_rule(module) for module in layer.modules())


@pytest.mark.parametrize("build", [lambda: nn.Linear(2, 2), lambda: nn.LSTM(2, 2)])
def test_a_layer_with_an_extra_parameter_has_none(build):
    layer = build()
    layer.register_parameter("scale", nn.Parameter(torch.ones(1)))
    assert "extra parameter 'scale'" in why_no_rule(layer)


def test_a_layer_with_a_forward_of_its_own_has_none():
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x
    assert "forward" in why_no_rule(layer)
