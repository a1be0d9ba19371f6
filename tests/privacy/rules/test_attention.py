"""Attention through recorded projections: against plain autograd, torch.func and Opacus."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.privacy.clipping import FastClipper, cross_entropy, describe, make_clipper

sys.path.insert(0, str(Path(__file__).parents[1]))
from clipping_cases import (
    ATTENTION,
    GEOMETRIES,
    Case,
    attention,
    check_gradients,
    check_sums,
    close,
    loop_rows,
    opacus_parts,
    self_attention,
    unweighted,
)


@pytest.mark.parametrize("name", ATTENTION)
def test_every_unit_gets_its_gradient(name):
    check_gradients(ATTENTION[name])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["self", "cross, other widths", "learned and zero positions"])
def test_clipped_sums_are_those_made_by_hand(name, geometry):
    check_sums(ATTENTION[name], geometry)


@pytest.mark.parametrize("name", ATTENTION)
def test_clipped_sums_of_every_variant(name):
    check_sums(ATTENTION[name], "flat")


@pytest.mark.parametrize("name", ATTENTION)
def test_everything_is_covered_by_rules(name):
    assert {layer.treatment for layer in describe(ATTENTION[name].model())} == {"rule"}


class TimeFirst(nn.Module):
    """Attention alone, with time on the first axis: the one way in which Opacus is right."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        key = x[..., : self.layer.kdim]
        return self.layer(x, key, x[..., : self.layer.vdim])[0]


class Turned(nn.Module):
    """The same with examples first."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize("options", [{}, {"kdim": 3, "vdim": 2}, {"add_bias_kv": True}])
def test_opacus_agrees(options):
    """Batch first, the outputs of Opacus 1.6 are not those of PyTorch."""
    from opacus.layers import DPMultiheadAttention

    torch.manual_seed(0)
    plain, theirs = nn.MultiheadAttention(4, 2, **options), DPMultiheadAttention(4, 2, **options)
    theirs.load_state_dict(plain.state_dict())
    theirs.kdim, theirs.vdim = plain.kdim, plain.vdim
    x, b = torch.randn(5, 3, 4), torch.randn(5, 3, 4)
    ours = FastClipper(Turned(TimeFirst(plain)), lambda out, y: (out * y).sum((1, 2)), 1.0)
    parts = opacus_parts(
        TimeFirst(theirs),
        lambda out, y: (out * y).sum(),
        x.transpose(0, 1),
        b.transpose(0, 1),
        batch_first=False,
    )
    expected = torch.cat([_from_opacus(parts, n) for n, _ in plain.named_parameters()], 1)
    assert close(ours.per_example_gradients(x, b), expected.double())


def _from_opacus(parts, name):
    """Opacus keeps the three projections apart, under other names."""
    if name.startswith("in_proj"):
        own = name.removeprefix("in_proj_")
        return torch.cat([parts[f"layer.{letter}linear.{own}"] for letter in "qkv"], 1)
    name = name.replace("bias_k", "seq_bias_k.bias").replace("bias_v", "seq_bias_v.bias")
    for letter in "qkv":
        name = name.replace(f"{letter}_proj_weight", f"{letter}linear.weight")
    return parts[f"layer.{name}"]


@pytest.mark.parametrize("call", [self_attention, unweighted])
@pytest.mark.parametrize("batch_first", [True, False])
def test_dropout_draws_the_masks_that_pytorch_draws(call, batch_first):
    """make_clipper compares in training mode, with the same seed on both sides."""
    case = Case(attention(dropout=0.5, batch_first=batch_first), (3, 4), call)
    clipper = make_clipper(case.model(), cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note


def test_an_encoder_layer_with_dropout_everywhere_stays_fast():
    case = Case(lambda: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.3, batch_first=True), (3, 4))
    clipper = make_clipper(case.model(), cross_entropy, 1.0, probe=case.batch(4))
    assert isinstance(clipper, FastClipper), clipper.note


def test_outputs_and_weights_are_those_of_pytorch():
    from privet.privacy.rules.attention import multihead_attention

    class NoTape:
        def linear(self, x, weight, bias):
            return nn.functional.linear(x, weight, bias)

        def watch(self, outputs, book):
            pass

    torch.manual_seed(0)
    layer = nn.MultiheadAttention(6, 3, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    x = torch.randn(2, 4, 6)
    for named in ({}, {"average_attn_weights": False}, {"need_weights": False}):
        expected = layer(x, x, x, **named)
        found = multihead_attention(layer, NoTape(), x, x, x, **named)
        assert torch.allclose(found[0], expected[0], atol=1e-6)
        if expected[1] is None:
            assert found[1] is None
        else:
            assert torch.allclose(found[1], expected[1], atol=1e-6)


@pytest.mark.parametrize("frozen", ["in_proj_weight", "in_proj_bias", "out_proj.weight"])
def test_a_frozen_part_leaves_the_rest_right(frozen):
    case = ATTENTION["self"]
    model = case.model()
    model.layer.get_parameter(frozen).requires_grad_(False)
    x, y = case.batch(4)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, loop_rows(model, cross_entropy, x, y))


def test_only_the_output_projection_may_train():
    """PyTorch never calls that module, so no hook on it would fire."""
    case = ATTENTION["self"]
    model = case.model().requires_grad_(False)
    model.layer.out_proj.requires_grad_(True)
    x, y = case.batch(4)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert found.norm() > 0
    assert close(found, loop_rows(model, cross_entropy, x, y))


def test_two_projections_may_share_one_weight():
    case = ATTENTION["cross, other widths"]
    model = Case(attention(kdim=3, vdim=3), (5, 4), case.call).model()
    model.layer.v_proj_weight = model.layer.k_proj_weight
    x, y = case.batch(4)
    found = FastClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
    assert close(found, loop_rows(model, cross_entropy, x, y))


def test_attention_without_a_batch_axis_is_refused():
    model = Case(attention(), (3, 4), self_attention).model()
    model.call = lambda layer, x: layer(x[0], x[0], x[0])[0].expand(len(x), 3, 4)
    with pytest.raises(InputError, match="without a batch axis"):
        FastClipper(model, cross_entropy, 1.0).clipped_sum(
            torch.randn(2, 3, 4), torch.tensor([0, 1])
        )
