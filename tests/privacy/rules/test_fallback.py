"""Any module: gradients of its own parameters by torch.func on that module alone."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.privacy.clipping import (
    FastClipper,
    ReferenceClipper,
    cross_entropy,
    describe,
    make_clipper,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from clipping_cases import (
    FALLBACK,
    GEOMETRIES,
    Case,
    Scaled,
    check_gradients,
    check_sums,
    close,
    loop_rows,
)


@pytest.mark.parametrize("name", FALLBACK)
def test_every_unit_gets_its_gradient(name):
    check_gradients(FALLBACK[name])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["own parameters around a child", "two in, two out"])
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(FALLBACK[name], geometry)


@pytest.mark.parametrize("name", FALLBACK)
def test_clipped_sums_of_every_variant(name):
    check_sums(FALLBACK[name], "flat")


@pytest.mark.parametrize("name", FALLBACK)
def test_only_the_odd_layer_leaves_the_rules(name):
    case = FALLBACK[name]
    model = case.model()
    treatments = {layer.name: layer.treatment for layer in describe(model)}
    assert treatments.pop("layer") == "module"
    assert set(treatments.values()) == {"rule"}
    clipper = make_clipper(model, cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_a_constant_argument_as_long_as_the_batch_is_not_taken_for_rows(rows):
    """The table is 3 x 3; told apart by the probe, whose batches have other sizes."""
    case = FALLBACK["two in, two out"]
    model = case.model()
    clipper = make_clipper(model, cross_entropy, 1.0, probe=case.batch(4))
    x, y = case.batch(rows)
    assert close(clipper.per_example_gradients(x, y), loop_rows(model, cross_entropy, x, y))


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return nn.functional.dropout(x * self.scale, 0.5, self.training)


def test_a_random_module_goes_to_the_whole_model():
    """Computed again, it would draw other masks than those behind its output's gradient."""
    case = Case(Noisy, (4,))
    clipper = make_clipper(case.model(), cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, ReferenceClipper)
    assert "random" in clipper.note


class TiedInside(nn.Module):
    """Its own parameter is also its child's weight."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = self.inner.weight

    def forward(self, x):
        return self.inner(torch.tanh(x @ self.outer))


class Twofold(nn.Module):
    """One parameter under two names."""

    def __init__(self):
        super().__init__()
        self.one = self.two = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.tanh(x * self.one) * self.two


@pytest.mark.parametrize(
    "build", [TiedInside, Twofold, lambda: nn.Sequential(*[Scaled(4)] * 2)], ids=["1", "2", "3"]
)
def test_a_parameter_used_in_several_places_has_one_gradient(build):
    case = Case(build, (4,))
    model = case.model()
    clipper = make_clipper(model, cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note
    x, y = case.batch(5, seed=3)
    assert close(clipper.per_example_gradients(x, y), loop_rows(model, cross_entropy, x, y))
