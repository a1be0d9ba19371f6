"""Convolutions and their transposes: against plain autograd, torch.func and Opacus."""

import sys
from pathlib import Path

import pytest

from privet.privacy.clipping import FastClipper, cross_entropy, describe

sys.path.insert(0, str(Path(__file__).parents[1]))
from clipping_cases import (
    CONVOLUTION,
    GEOMETRIES,
    check_gradients,
    check_sums,
    close,
    opacus_rows,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

# What Opacus 1.6 gets wrong: it takes every padding for zeros, and forgets the size asked for.
NOT_BY_OPACUS = {
    "conv1d reflected",
    "conv2d circular",
    "conv3d circular",
    "conv2d replicated",
    "conv2d same, reflected",
    "transposed conv2d of a size asked for",
}


@pytest.mark.parametrize("name", CONVOLUTION)
def test_every_unit_gets_its_gradient(name):
    check_gradients(CONVOLUTION[name])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["conv1d in groups", "conv2d of one pixel", "transposed conv2d"])
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(CONVOLUTION[name], geometry)


@pytest.mark.parametrize("name", CONVOLUTION)
def test_clipped_sums_of_every_variant(name):
    check_sums(CONVOLUTION[name], "flat")


@pytest.mark.parametrize("name", sorted(set(CONVOLUTION) - NOT_BY_OPACUS))
def test_opacus_agrees(name):
    model, (x, y) = CONVOLUTION[name].model(), CONVOLUTION[name].batch(5)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, opacus_rows(model, cross_entropy, x, y))


@pytest.mark.parametrize("name", CONVOLUTION)
def test_the_rule_is_used(name):
    layers = {layer.name: layer for layer in describe(CONVOLUTION[name].model())}
    assert layers["layer"].treatment == "rule"
