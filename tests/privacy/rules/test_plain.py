"""Linear, Embedding and the norms: against plain autograd, torch.func and Opacus."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.privacy.clipping import FastClipper, cross_entropy, describe

sys.path.insert(0, str(Path(__file__).parents[1]))
from clipping_cases import (
    GEOMETRIES,
    PLAIN,
    check_gradients,
    check_sums,
    close,
    loop_rows,
    opacus_rows,
)

# What Opacus 1.6 gets wrong: it gives the padding row a gradient, and stumbles over a missing bias.
NOT_BY_OPACUS = {"embedding with padding", "layer norm without bias"}


@pytest.mark.parametrize("name", PLAIN)
def test_every_unit_gets_its_gradient(name):
    check_gradients(PLAIN[name])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["linear", "wide linear on short sequences", "embedding"])
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(PLAIN[name], geometry)


@pytest.mark.parametrize("name", PLAIN)
def test_clipped_sums_of_every_variant(name):
    check_sums(PLAIN[name], "flat")


@pytest.mark.parametrize("name", sorted(set(PLAIN) - NOT_BY_OPACUS))
def test_opacus_agrees(name):
    model, (x, y) = PLAIN[name].model(), PLAIN[name].batch(5)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, opacus_rows(model, cross_entropy, x, y))


@pytest.mark.parametrize("name", PLAIN)
def test_the_rule_is_used(name):
    layers = {layer.name: layer for layer in describe(PLAIN[name].model())}
    assert layers["layer"].treatment == "rule"


def test_a_token_that_comes_twice_has_one_gradient():
    """Its norm is that of the sum; two rows of norm 1 that cancel have none."""
    model = nn.Embedding(3, 1)
    signs = torch.tensor([[1.0, -1.0, 2.0], [1.0, 1.0, 0.0]])
    loss = lambda outputs, y: (outputs[..., 0] * y).sum(1)  # noqa: E731
    tokens = torch.tensor([[0, 0, 1], [2, 2, 0]])
    clipper = FastClipper(model, loss, 1.0)
    rows = clipper.per_example_gradients(tokens, signs)
    assert rows.tolist() == [[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    total = clipper.clipped_sum(tokens, signs)
    assert torch.allclose(total, torch.tensor([0.0, 1.0, 1.0]), atol=2e-5)


def test_the_padding_row_never_moves():
    model = PLAIN["embedding with padding"].model()
    x = torch.ones(2, 6, dtype=torch.int64)
    rows = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, torch.tensor([0, 1]))
    assert torch.equal(rows[:, :12], torch.zeros(2, 12))
    assert close(rows, loop_rows(model, cross_entropy, x, torch.tensor([0, 1])))
