"""Trials leave no trace, and whoever draws is found out."""

import random
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

from privet.privacy.probing import draws, in_double, seed_all, undisturbed

X = torch.rand(3, 4)
SOURCES = {
    "torch": lambda: torch.rand(()),
    "python": lambda: random.random(),
    "numpy": lambda: np.random.random(),
}


class Drawing(nn.Module):
    def __init__(self, source):
        super().__init__()
        self.fc, self.source = nn.Linear(4, 2), source

    def forward(self, x):
        return self.fc(x) * float(self.source()) if self.training else self.fc(x)


@pytest.mark.parametrize("name", SOURCES)
def test_a_model_that_draws_is_found_out_whatever_it_draws_from(name):
    model = Drawing(SOURCES[name])
    with undisturbed(model):
        assert draws(model.train(), X)
        assert not draws(model.eval(), X)


@pytest.mark.parametrize("name", SOURCES)
def test_seeding_repeats_what_is_drawn(name):
    with undisturbed(nn.Linear(1, 1)):
        seed_all(3)
        first = float(SOURCES[name]())
        seed_all(3)
        assert float(SOURCES[name]()) == first
        seed_all(4)
        assert float(SOURCES[name]()) != first


def test_after_a_trial_every_generator_goes_on_where_it_was():
    """A known state would make the next draw, perhaps a secret, known too."""
    model = nn.Linear(1, 1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    with suppress(ZeroDivisionError), undisturbed(model):
        seed_all(0)
        [source() for source in SOURCES.values()]
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])


def test_double_precision_for_a_while():
    model = nn.BatchNorm1d(4)
    model.running_mean.fill_(1 / 3)
    tensors = [*model.parameters(), *model.buffers()]
    before = [(t.data_ptr(), t.dtype, t.detach().clone()) for t in tensors]
    with suppress(ZeroDivisionError), in_double(model):
        assert model(X.double()).dtype == torch.float64
        model.weight.data.add_(1.0)
        raise ZeroDivisionError
    for tensor, (place, dtype, values) in zip(tensors, before, strict=True):
        assert (tensor.data_ptr(), tensor.dtype) == (place, dtype)
        assert dtype == torch.int64 or torch.equal(tensor, values)
