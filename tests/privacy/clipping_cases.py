"""Small models around one layer each, and oracles that know no rules: plain autograd, Opacus.

A case is a model stem -> layer -> tanh -> head: the layer's input needs a gradient, its output is
bent, and its neighbours have parameters too.
"""

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from privet.privacy.clipping import (
    FLAT,
    ROUNDING_MARGIN,
    FastClipper,
    Geometry,
    ReferenceClipper,
    cross_entropy,
    trainable,
)

CLASSES = 3
GEOMETRIES = {
    "flat": FLAT,
    "per-layer": Geometry.per_layer(),
    "per-layer by shares": Geometry.per_layer({"head": 0.2}),
    "weighted": Geometry.weighted(),
    "weighted by hand": Geometry.weighted({"head": 3.0}),
}


def apply(layer, x):
    return layer(x)


class Around(nn.Module):
    """A stem, the layer under test, a head."""

    def __init__(self, layer, shape, call=apply, tokens=0):
        super().__init__()
        self.stem = nn.Identity() if tokens else nn.Linear(shape[-1], shape[-1])
        self.layer, self.call = layer, call
        with torch.no_grad():
            example = torch.zeros(2, *shape, dtype=torch.int64 if tokens else torch.float32)
            width = self.call(self.layer, self.stem(example)).flatten(1).shape[1]
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.call(self.layer, self.stem(x))).flatten(1))


@dataclass(frozen=True)
class Case:
    build: Any
    shape: tuple
    call: Any = apply
    tokens: int = 0
    by_func: bool = True  # whether torch.func can differentiate the whole model

    def model(self, seed=0):
        torch.manual_seed(seed)
        return Around(self.build(), self.shape, self.call, self.tokens)

    def batch(self, n, seed=1, size=1.0):
        generator = torch.Generator().manual_seed(seed)
        if self.tokens:
            x = torch.randint(0, self.tokens, (n, *self.shape), generator=generator)
        else:
            x = size * torch.randn(n, *self.shape, generator=generator)
        return x, torch.randint(0, CLASSES, (n,), generator=generator)


# --- one product or one scaling ----------------------------------------------------------------

PLAIN = {
    "linear": Case(lambda: nn.Linear(4, 3), (4,)),
    "linear without bias": Case(lambda: nn.Linear(4, 3, bias=False), (4,)),
    "linear on sequences": Case(lambda: nn.Linear(4, 3), (5, 4)),
    "linear on grids": Case(lambda: nn.Linear(4, 3), (2, 3, 4)),
    "wide linear on short sequences": Case(lambda: nn.Linear(40, 40), (2, 40)),
    "embedding": Case(lambda: nn.Embedding(7, 4), (5,), tokens=7),
    "embedding of one token": Case(lambda: nn.Embedding(7, 4), (), tokens=7),
    "embedding of a grid": Case(lambda: nn.Embedding(5, 3), (2, 4), tokens=5),
    "embedding with padding": Case(lambda: nn.Embedding(4, 3, padding_idx=1), (6,), tokens=4),
    "layer norm": Case(lambda: nn.LayerNorm(6), (6,)),
    "layer norm over two axes": Case(lambda: nn.LayerNorm((5, 4), eps=0.1), (3, 5, 4)),
    "layer norm without bias": Case(lambda: nn.LayerNorm(4, bias=False), (5, 4)),
    "rms norm": Case(lambda: nn.RMSNorm(4), (5, 4)),
    "rms norm over two axes": Case(lambda: nn.RMSNorm((5, 4), eps=0.1), (5, 4)),
    "group norm": Case(lambda: nn.GroupNorm(2, 4), (4, 3, 3)),
    "group norm of vectors": Case(lambda: nn.GroupNorm(2, 6, eps=0.1), (6,)),
    "instance norm of signals": Case(lambda: nn.InstanceNorm1d(4, affine=True), (4, 5)),
    "instance norm of images": Case(lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 3)),
    "instance norm of volumes": Case(lambda: nn.InstanceNorm3d(2, affine=True), (2, 3, 2, 2)),
}

# --- convolutions ------------------------------------------------------------------------------


def conv(*args, **kwargs):
    return lambda: nn.Conv2d(*args, **kwargs)


CONVOLUTION = {
    "conv1d": Case(lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1, dilation=2), (2, 9)),
    "conv1d in groups": Case(lambda: nn.Conv1d(4, 6, 2, groups=2, bias=False), (4, 7)),
    "conv1d same": Case(lambda: nn.Conv1d(2, 3, 4, padding="same"), (2, 7)),
    "conv1d same, dilated": Case(lambda: nn.Conv1d(2, 3, 4, padding="same", dilation=3), (2, 12)),
    "conv1d reflected": Case(lambda: nn.Conv1d(2, 3, 3, padding=2, padding_mode="reflect"), (2, 7)),
    "conv2d": Case(conv(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 7, 5)),
    "conv2d without bias": Case(conv(2, 3, 3, bias=False), (2, 5, 5)),
    "conv2d depthwise": Case(conv(4, 8, 3, groups=4, padding=2, dilation=2), (4, 6, 6)),
    "conv2d that skips the rim": Case(conv(1, 2, 2, stride=3), (1, 6, 7)),
    "conv2d of one pixel": Case(conv(20, 16, 1), (20, 1, 1)),
    "conv2d valid": Case(conv(2, 3, 3, padding="valid"), (2, 5, 5)),
    "conv2d same": Case(conv(2, 3, (4, 3), padding="same", dilation=(1, 2)), (2, 6, 6)),
    "conv2d circular": Case(conv(2, 3, 3, padding=(1, 2), padding_mode="circular"), (2, 5, 5)),
    "conv2d replicated": Case(
        conv(2, 4, 3, padding=1, padding_mode="replicate", groups=2, stride=2), (2, 5, 6)
    ),
    "conv2d same, reflected": Case(
        conv(2, 3, 4, padding="same", padding_mode="reflect"), (2, 6, 6)
    ),
    "conv3d": Case(lambda: nn.Conv3d(2, 4, (2, 1, 2), stride=(1, 2, 1), groups=2), (2, 4, 3, 3)),
    "conv3d circular": Case(
        lambda: nn.Conv3d(1, 2, 2, padding=(0, 1, 1), padding_mode="circular"), (1, 3, 2, 3)
    ),
    "transposed conv3d": Case(
        lambda: nn.ConvTranspose3d(1, 2, 2, padding=(1, 0, 0), stride=(1, 2, 1)), (1, 3, 2, 2)
    ),
    "transposed conv1d": Case(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (4, 5)),
    "transposed conv2d": Case(
        lambda: nn.ConvTranspose2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 4, 3)
    ),
    "transposed conv2d without bias": Case(
        lambda: nn.ConvTranspose2d(2, 3, 2, bias=False), (2, 3, 3)
    ),
    "transposed conv2d, padded output": Case(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2, dilation=2),
        (4, 3, 3),
    ),
    "transposed conv2d, output padded beyond a stride": Case(
        lambda: nn.ConvTranspose2d(2, 2, 3, padding=2, output_padding=2, dilation=3), (2, 4, 4)
    ),
    "transposed conv2d of a size asked for": Case(
        lambda: nn.ConvTranspose2d(2, 2, 3, stride=2),
        (2, 3, 3),
        call=lambda layer, x: layer(x, output_size=(8, 7)),
    ),
}

# --- attention ---------------------------------------------------------------------------------


def self_attention(layer, x, **named):
    x = x if layer.batch_first else x.transpose(0, 1)
    out, weights = layer(x, x, x, **named)
    out = out if layer.batch_first else out.transpose(0, 1)
    return out if weights is None else torch.cat([out.flatten(1), weights.flatten(1)], 1)


def cross_attention(layer, x):
    """Queries of the first two positions, keys and values (of other widths) of the rest."""
    x = x if layer.batch_first else x.transpose(0, 1)
    split = (x[:, :2], x[:, 2:]) if layer.batch_first else (x[:2], x[2:])
    out, _ = layer(split[0], split[1][..., : layer.kdim], split[1][..., : layer.vdim])
    return out if layer.batch_first else out.transpose(0, 1)


def with_masks(layer, x):
    padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    padding[:, -1] = True
    forbidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    return self_attention(layer, x, key_padding_mask=padding, attn_mask=forbidden)


def with_head_masks(layer, x):
    mask = torch.linspace(-1, 1, layer.num_heads * x.shape[1] ** 2, device=x.device)
    mask = mask.reshape(1, layer.num_heads, x.shape[1], x.shape[1]).repeat(len(x), 1, 1, 1)
    return self_attention(
        layer, x, attn_mask=mask.flatten(0, 1), need_weights=True, average_attn_weights=False
    )


def causal(layer, x):
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
    return self_attention(layer, x, attn_mask=mask, is_causal=True, need_weights=False)


def unweighted(layer, x):
    return self_attention(layer, x, need_weights=False)


def attention(**kwargs):
    return lambda: nn.MultiheadAttention(4, 2, **({"batch_first": True} | kwargs))


ATTENTION = {
    "self": Case(attention(), (3, 4), self_attention),
    "self, without weights": Case(attention(), (3, 4), unweighted),
    "self, time first": Case(attention(batch_first=False), (3, 4), self_attention),
    "self, without bias": Case(attention(bias=False), (3, 4), unweighted),
    "cross": Case(attention(), (5, 4), cross_attention),
    "cross, time first": Case(attention(batch_first=False), (5, 4), cross_attention),
    "cross, other widths": Case(attention(kdim=3, vdim=2), (5, 4), cross_attention),
    "cross, other widths, no bias": Case(
        attention(kdim=2, vdim=3, bias=False), (5, 4), cross_attention
    ),
    "causal": Case(attention(), (3, 4), causal),
    "masked": Case(attention(), (3, 4), with_masks),
    "masked by head": Case(attention(), (3, 4), with_head_masks),
    "learned and zero positions": Case(
        attention(add_bias_kv=True, add_zero_attn=True), (3, 4), with_masks
    ),
    "learned positions, time first": Case(
        attention(add_bias_kv=True, batch_first=False), (3, 4), unweighted
    ),
    "encoder layer": Case(
        lambda: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True), (3, 4)
    ),
    "decoder layer": Case(
        lambda: nn.TransformerDecoderLayer(4, 2, 5, dropout=0.0, batch_first=True),
        (3, 4),
        lambda layer, x: layer(x, torch.tanh(x)),
    ),
}

# --- recurrence --------------------------------------------------------------------------------


def all_states(layer, x):
    """Outputs and last states, so that a gradient comes from everywhere."""
    y, states = layer(x if layer.batch_first else x.transpose(0, 1))
    y = y if layer.batch_first else y.transpose(0, 1)
    states = states if isinstance(states, tuple) else (states,)
    return torch.cat([y.flatten(1), *(s.transpose(0, 1).flatten(1) for s in states)], 1)


def last_output(layer, x):
    return layer(x)[0][:, -1]


def given_state(layer, x):
    first = x.mean(1)[None, :, :2].contiguous()
    state = (first, 2 * first) if isinstance(layer, nn.LSTM) else first
    return layer(x, state)[0]


def with_a_cell(layer, x):
    state = None
    for t in range(x.shape[1]):
        state = layer(x[:, t], state)
    return torch.cat(state, 1) if isinstance(state, tuple) else state


def recurrent(kind, **kwargs):
    return lambda: kind(3, 2, **({"batch_first": True} | kwargs))


DEEP = {"num_layers": 2, "bidirectional": True}
RECURRENT = {
    f"{kind.__name__}{name}": Case(
        recurrent(kind, **kwargs), (4, 3), call, by_func=kind is nn.LSTM or call is given_state
    )
    for kind in (nn.LSTM, nn.GRU, nn.RNN)
    for name, kwargs, call in [
        ("", {}, all_states),
        (", its last output", {}, last_output),
        (", time first", {"batch_first": False}, all_states),
        (", without bias", {"bias": False}, all_states),
        (", two layers, both ways", DEEP, all_states),
        (", from a given state", {}, given_state),
    ]
} | {
    "LSTM, projected": Case(
        recurrent(nn.LSTM, proj_size=1, **DEEP), (4, 3), all_states, by_func=False
    ),
    "RNN with relu": Case(
        recurrent(nn.RNN, nonlinearity="relu"), (4, 3), all_states, by_func=False
    ),
    "LSTM cell": Case(lambda: nn.LSTMCell(3, 2), (4, 3), with_a_cell, by_func=False),
    "GRU cell": Case(lambda: nn.GRUCell(3, 2, bias=False), (4, 3), with_a_cell, by_func=False),
    "RNN cell": Case(
        lambda: nn.RNNCell(3, 2, nonlinearity="relu"), (4, 3), with_a_cell, by_func=False
    ),
}

# --- any module --------------------------------------------------------------------------------


class Scaled(nn.Module):
    """Parameters of its own around a child that has a rule."""

    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(1))
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return self.inner(self.scale * x + self.shift) * self.scale.sum()


class TwoInTwoOut(nn.Module):
    """Tensors by position and by name, a constant table among them; a dictionary comes out."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))

    def forward(self, x, *, table, other):
        mixed = table @ (x @ self.weight)
        return {"sum": mixed + other, "rest": [other * self.weight.sum(), "no tensor"]}


def two_in_two_out(layer, x):
    table = torch.linspace(0, 1, x.shape[1] ** 2, device=x.device).reshape(x.shape[1], -1)
    both = layer(x, table=table, other=x.tanh())
    return torch.cat([both["sum"], both["rest"][0]], 1)


class StandardisedConv(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(
            x, weight / (weight.std((1, 2, 3), keepdim=True) + 0.1), self.bias
        )


class DoublingLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class WithPositions(nn.Module):
    """A learned table that is added to every sequence, as in vision transformers."""

    def __init__(self):
        super().__init__()
        self.positions, self.token = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.zeros(4))
        self.body = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)

    def forward(self, x):
        token = self.token.expand(len(x), 1, 4)
        return self.body(torch.cat([token, x + self.positions], 1))


FALLBACK = {
    "bilinear": Case(lambda: nn.Bilinear(4, 4, 3), (4,), lambda layer, x: layer(x, x.tanh())),
    "prelu": Case(lambda: nn.PReLU(2), (2, 4)),
    "own parameters around a child": Case(lambda: Scaled(4), (3, 4)),
    "two in, two out": Case(lambda: TwoInTwoOut(4), (3, 4), two_in_two_out),
    "standardised weights": Case(lambda: StandardisedConv(2, 3, 3), (2, 5, 5)),
    "subclass": Case(lambda: DoublingLinear(4, 3), (4,)),
    "learned positions": Case(WithPositions, (3, 4)),
    "pieces of examples on the first axis": Case(
        lambda: DoublingLinear(2, 3), (6,), lambda layer, x: layer(x.reshape(-1, 2)).reshape(-1, 9)
    ),
}

ALL = {
    f"{kind}: {name}": case
    for kind, table in {
        "plain": PLAIN,
        "convolution": CONVOLUTION,
        "attention": ATTENTION,
        "recurrent": RECURRENT,
        "fallback": FALLBACK,
    }.items()
    for name, case in table.items()
}


# --- checks ------------------------------------------------------------------------------------


def close(found, expected, tolerance=1e-5):
    """Rows that agree to a relative error, each measured by its own length."""
    return bool(
        ((found.double() - expected).norm(dim=-1) <= tolerance * expected.norm(dim=-1)).all()
    )


def check_gradients(case):
    """Every unit's gradient, alone and from weighted views with a gap."""
    model = case.model()
    fast, reference = (kind(model, cross_entropy, 1.0) for kind in (FastClipper, ReferenceClipper))
    x, y = case.batch(6)
    weights = torch.tensor([0.5, 0.2, 1.0, 0.0, -0.3, 2.0])
    rows = loop_rows(model, cross_entropy, x, y)
    for views, w in [(1, None), (2, None), (3, weights)]:
        shares = torch.full((6,), 1 / views) if w is None else w
        expected = (shares[:, None] * rows).reshape(6 // views, views, -1).sum(1)
        found = fast.per_example_gradients(x.clone(), y, views=views, weights=w)
        assert close(found, expected), views
        if case.by_func:
            found = reference.per_example_gradients(x.clone(), y, views=views, weights=w)
            assert close(found, expected), views


def check_sums(case, geometry):
    """Clipped sums at a norm that clips half of the units, by hand, fast and by torch.func."""
    model = case.model()
    x, y = case.batch(8)
    rows = loop_rows(model, cross_entropy, x, y, views=2)
    norm = float(rows.norm(dim=1).median())
    expected = sum_by_hand(model, rows, norm, GEOMETRIES[geometry])
    for kind in (FastClipper, ReferenceClipper) if case.by_func else (FastClipper,):
        clipper = kind(model, cross_entropy, norm, geometry=GEOMETRIES[geometry])
        found = clipper.clipped_sum(x.clone(), y, views=2).double()
        assert (found - expected).norm() <= 1e-5 * 4 * norm


# --- oracles -----------------------------------------------------------------------------------


def loop_rows(model, loss, x, y, views=1, weights=None):
    """Every unit's gradient in double precision: one row at a time, plain autograd, added up."""
    parameters = list(trainable(model).values())
    weights = [1.0 / views] * len(x) if weights is None else weights.tolist()
    rows = []
    for i in range(len(x)):
        value = loss(model(x[i : i + 1].clone()), y[i : i + 1]).sum()
        if value.requires_grad:
            grads = torch.autograd.grad(value, parameters, materialize_grads=True)
        else:
            grads = [torch.zeros_like(p) for p in parameters]
        rows.append(weights[i] * torch.cat([g.flatten() for g in grads]).double())
    return torch.stack(rows).reshape(-1, views, rows[0].numel()).sum(1)


def clip_and_add(rows, clip_norm):
    """(sum, size): the sum of clipped rows, and the sum of their lengths."""
    bound = clip_norm * (1 - ROUNDING_MARGIN)
    clipped = [row * min(1.0, bound / max(float(row.norm()), 1e-300)) for row in rows]
    return sum(clipped), sum(float(c.norm()) for c in clipped)


def sum_by_hand(model, rows, clip_norm, geometry):
    """The clipped sum in the geometry's coordinates, written down from its definition."""
    numbers = dict(geometry.resolved(model).numbers)
    if geometry.name == "flat":
        return clip_and_add(rows, clip_norm)[0]
    masks = {layer: layer_mask(model, layer) for layer in numbers}
    if geometry.name == "weighted":
        scales = sum(w * masks[layer].double() for layer, w in numbers.items())
        return clip_and_add(rows * scales, clip_norm)[0]
    length = math.sqrt(sum(s * s for s in numbers.values()))
    total = torch.zeros_like(rows[0])
    for layer, share in numbers.items():
        own = masks[layer]
        total[own] = clip_and_add(rows[:, own], clip_norm * share / length)[0]
    return total


def layer_mask(model, layer):
    """Which entries of a flat vector belong to a layer."""
    return torch.cat(
        [
            torch.full((p.numel(),), name.rpartition(".")[0] == layer)
            for name, p in trainable(model).items()
        ]
    )


def opacus_parts(model, loss, x, y, **options):
    """Per-sample gradients of Opacus by parameter; its hooks cannot stand in-place activations."""
    from opacus.grad_sample import GradSampleModule

    plain = copy.deepcopy(model)
    for module in plain.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(plain, loss_reduction="sum", strict=False, **options)
        value = loss(wrapped(x.clone()), y).sum()
        if value.requires_grad:
            value.backward()
    return {
        name: torch.zeros(len(x), p.numel())
        if getattr(p, "grad_sample", None) is None
        else p.grad_sample.flatten(1)
        for name, p in trainable(plain).items()
    }


def opacus_rows(model, loss, x, y):
    """The same, one row for each example."""
    return torch.cat(list(opacus_parts(model, loss, x, y).values()), dim=1).double()
