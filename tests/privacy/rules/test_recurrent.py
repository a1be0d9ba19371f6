"""Recurrent layers, expanded over time: against plain autograd, torch.func and Opacus."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from privet.errors import InputError
from privet.privacy.clipping import FastClipper, cross_entropy, describe, make_clipper, trainable

sys.path.insert(0, str(Path(__file__).parents[1]))
from clipping_cases import (
    DEEP,
    GEOMETRIES,
    RECURRENT,
    Case,
    all_states,
    check_gradients,
    check_sums,
    close,
    loop_rows,
    opacus_parts,
    recurrent,
)

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")


@pytest.mark.parametrize("name", RECURRENT)
def test_every_unit_gets_its_gradient(name):
    check_gradients(RECURRENT[name])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["LSTM, two layers, both ways", "GRU", "LSTM, projected"])
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(RECURRENT[name], geometry)


@pytest.mark.parametrize("name", RECURRENT)
def test_clipped_sums_of_every_variant(name):
    check_sums(RECURRENT[name], "flat")


@pytest.mark.parametrize("name", RECURRENT)
def test_everything_is_covered_by_rules(name):
    assert {layer.treatment for layer in describe(RECURRENT[name].model())} == {"rule"}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"batch_first": False}, {"bias": False}, DEEP])
def test_opacus_agrees(kind, options):
    from opacus import layers

    case = Case(recurrent(kind, **options), (4, 3), all_states)
    model = case.model()
    twin = copy.deepcopy(model)
    options = {"batch_first": True} | options
    twin.layer = getattr(layers, f"DP{kind.__name__}")(3, 2, **options)
    twin.layer.load_state_dict(model.layer.state_dict())
    x, y = case.batch(5)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    parts = opacus_parts(twin, cross_entropy, x, y)
    assert close(found, torch.cat([parts[name] for name in trainable(model)], 1).double())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout_between_layers_draws_the_masks_that_pytorch_draws(kind):
    """make_clipper compares in training mode, with the same seed on both sides."""
    case = Case(recurrent(kind, dropout=0.5, **DEEP), (4, 3), all_states)
    clipper = make_clipper(case.model(), cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note


@pytest.mark.parametrize("frozen", ["weight_hh_l0", "weight_ih_l0", "bias_hh_l0"])
def test_a_frozen_part_leaves_the_rest_right(frozen):
    case = RECURRENT["LSTM"]
    model = case.model()
    model.layer.get_parameter(frozen).requires_grad_(False)
    x, y = case.batch(4)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, loop_rows(model, cross_entropy, x, y))


def test_frozen_recurrence_has_no_gradient_at_the_first_step():
    """h_0 is constant and so is W_hh: the first product belongs to no graph."""
    case = RECURRENT["GRU"]
    model = case.model()
    for name in ("weight_hh_l0", "bias_hh_l0"):
        model.layer.get_parameter(name).requires_grad_(False)
    x, y = case.batch(4)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, loop_rows(model, cross_entropy, x, y))


def test_a_packed_sequence_is_refused_with_the_fix():
    model = RECURRENT["LSTM"].model()
    model.call = lambda layer, x: layer(pack_padded_sequence(x, [4, 2], batch_first=True))[0].data
    with pytest.raises(InputError, match=r"packed.*pad the sequences"):
        FastClipper(model, cross_entropy, 1.0).clipped_sum(
            torch.randn(2, 4, 3), torch.tensor([0, 1])
        )
