"""Layers for rows of columns: what they compute, and each example's own gradient."""

import sys
from pathlib import Path

import pytest
import torch

from privet.models.columns import PerColumn, Shift, Triangular
from privet.privacy.clipping import describe

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
from clipping_cases import Case, check_gradients, check_sums


def filled(layer):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
    return layer


def pairs(layer, x):
    return layer(x.unflatten(-1, (-1, 2)))


ALLOWED = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
CASES = {
    "shift": Case(lambda: filled(Shift(4, gain=3.0)), (4,)),
    "shift on sequences": Case(lambda: filled(Shift(2, 2)), (3, 4), pairs),
    "per column": Case(lambda: filled(PerColumn(2, 2, 3, gain=3.0)), (4,), pairs),
    "per column on sequences": Case(lambda: filled(PerColumn(2, 2, 3)), (3, 4), pairs),
    "triangular": Case(lambda: filled(Triangular(ALLOWED)), (4,)),
    "triangular on sequences": Case(lambda: filled(Triangular(ALLOWED)), (3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_unit_gets_its_gradient(name):
    check_gradients(CASES[name])


@pytest.mark.parametrize("geometry", ["flat", "per-layer by shares"])
@pytest.mark.parametrize("name", CASES)
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(CASES[name], geometry)


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_used(name):
    layers = {layer.name: layer for layer in describe(CASES[name].model())}
    assert layers["layer"].treatment == "rule"


def test_per_column_is_a_product_for_each_column():
    layer, x = filled(PerColumn(3, 2, 4)), torch.randn(5, 7, 3, 2)
    expected = torch.stack([x[..., f, :] @ layer.weight[f].T for f in range(3)], -2)
    assert torch.allclose(layer(x), expected, atol=1e-6)


def test_triangular_sees_only_what_it_may():
    layer, x = filled(Triangular(ALLOWED)), torch.randn(5, 4)
    before = layer(x)
    x[:, 2] += 1.0
    moved = (layer(x) != before).any(0)
    assert moved.tolist() == [False, False, True]


def test_triangular_gives_no_gradient_to_what_it_may_not_see():
    layer = filled(Triangular(ALLOWED))
    layer(torch.randn(5, 4)).sum().backward()
    assert (layer.weight.grad[~ALLOWED] == 0).all()
    assert (layer.weight.grad[ALLOWED] != 0).all()


def test_shift_begins_as_its_offset():
    offset = torch.tensor([0.0, -1e4])
    assert (Shift(2, offset=offset)(torch.ones(3, 2)) == 1.0 + offset).all()
