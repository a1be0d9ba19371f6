"""A frozen front and a trained head: training the head on cached features is training the whole."""

import torch
from torch import nn

from privet.models import Fronted


def made():
    torch.manual_seed(0)
    front = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Tanh())
    return Fronted(front, nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)))


def test_the_front_is_frozen_and_the_head_is_not():
    model = made()
    assert not any(p.requires_grad for p in model.front.parameters())
    assert all(p.requires_grad for p in model.head.parameters())


def test_the_front_computes_the_same_in_training_as_in_evaluation():
    """Otherwise features could not be computed once for all steps."""
    model, x = made(), torch.rand(8, 6)
    model.train()
    assert model.head[1].training
    assert not any(module.training for module in model.front.modules())
    assert torch.equal(model.front(x), model.eval().front(x))
    assert not model.head[1].training


def test_a_step_on_cached_features_is_a_step_on_the_whole():
    x, y = torch.rand(8, 6), torch.arange(8) % 3
    whole, apart = made(), made()
    whole.head[1].p = apart.head[1].p = 0.0
    features = apart.front(x).detach()
    for model, inputs in ((whole, x), (apart.head, features)):
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), y).backward()
            optimizer.step()
    for a, b in zip(whole.parameters(), apart.parameters(), strict=True):
        assert torch.equal(a, b)


def test_gradients_reach_the_input():
    x = torch.rand(2, 6, requires_grad=True)
    made().eval()(x).sum().backward()
    assert x.grad.abs().sum() > 0
