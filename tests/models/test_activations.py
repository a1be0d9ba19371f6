"""Tempered sigmoids: closed form, tanh as a special case, a network that takes them."""

from functools import partial

import torch
from torch import nn

from privet.models import create
from privet.models.activations import TemperedSigmoid
from privet.models.registry import cnn, cnn_deep


def test_tanh_is_the_default():
    x = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(TemperedSigmoid()(x), x.tanh(), rtol=0, atol=1e-6)


def test_values_slope_and_range():
    activation = TemperedSigmoid(scale=1.58, temperature=3.0, offset=0.71)
    x = torch.zeros(1, requires_grad=True)
    y = activation(x)
    assert torch.allclose(y, torch.tensor(1.58 / 2 - 0.71))
    y.backward()
    assert torch.allclose(x.grad, torch.tensor(1.58 * 3.0 / 4))  # s T / 4
    ends = activation(torch.tensor([-50.0, 50.0]))
    assert torch.allclose(ends, torch.tensor([-0.71, 1.58 - 0.71]))


def test_the_tanh_networks_take_it():
    x = torch.rand(2, 3, 32, 32)
    for name, builder in (("cnn", cnn), ("cnn-deep", cnn_deep)):
        tanh = create(name, (3, 32, 32), 4)
        same = builder((3, 32, 32), 4, activation=TemperedSigmoid)
        other = builder((3, 32, 32), 4, activation=partial(TemperedSigmoid, 1.58, 3.0, 0.71))
        assert not any(isinstance(layer, nn.Tanh) for layer in same)
        for model in (same, other):
            model.load_state_dict(tanh.state_dict())
        torch.testing.assert_close(same(x), tanh(x), rtol=0, atol=1e-5)
        assert not torch.allclose(other(x), tanh(x), atol=1e-3)
