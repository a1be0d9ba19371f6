"""Convolutions with standardised weights, and their gradients one example at a time.

Qiao et al., "Micro-batch training with batch-channel normalization and weight standardization"
(2019), in the scaled form of Brock et al. (2021) that De et al. (2022) train privately.

| symbol | here                   | meaning                                                       |
|--------|------------------------|---------------------------------------------------------------|
| W      | `WSConv2d.weight`      | raw weights of one output channel, N of them                  |
| s      | `scale`                | 1 / sqrt(max(N var(W), 0.0001)): after it W has norm one      |
| V      | `unit`                 | s (W - mean(W)), mean zero                                    |
| gamma  | `ChannelAffine.weight` | gain of each output channel                                   |
| beta   | `ChannelAffine.bias`   | shift of each output channel                                  |

Together the two layers compute gamma (V * x) + beta. Standardisation reads weights only, never
examples, so it mixes none.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.privacy.rules import (
    FLOAT32,
    RULES,
    Dense,
    PerExample,
    Rounding,
    Windowed,
    half_bit,
    rule,
    safe_squares,
)
from privet.privacy.rules.forms import at_least_single, tf32
from privet.privacy.rules.windowed import MEASURED_CANCELLATION

FLOOR: Final = 1e-4  # of N var(W): De et al.'s; a channel starts at about one


class WSConv2d(nn.Conv2d):
    """A convolution whose weights are standardised in every forward pass."""

    def reset_parameters(self) -> None:
        """First weights with N var(W) about one, so that s is about one."""
        nn.init.normal_(self.weight, std=self.weight[0].numel() ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """V * x, and the bias where there is one."""
        unit, _ = standardise(self.weight)
        y: Tensor = self._conv_forward(x, unit, self.bias)
        return y


class ChannelAffine(nn.Module):
    """One gain and one shift for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift, at every position alike."""
        gain, shift = (p.reshape(-1, *[1] * (x.dim() - 2)) for p in (self.weight, self.bias))
        return torch.addcmul(shift, gain, x)


def standardise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """V and s of each output channel (the first axis)."""
    flat = weight.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    scale = centred.square().sum(1, keepdim=True).clamp(min=FLOOR).rsqrt()
    return (scale * centred).reshape(weight.shape), scale.squeeze(1)


def pull_back(weight: Tensor, gradients: Tensor) -> Tensor:
    """From gradients for V, examples first, to those for W.

    Exact, and linear in the gradients. With G the gradient for one channel's V,

        dW = s (G - mean(G) - V <G, V>),

    since V has norm one and mean zero. In a channel at the floor s is constant and the last term
    absent. What is taken off is orthogonal to what stays, so norms follow without forming dW:

        |dW|^2 = s^2 (|G|^2 - N mean(G)^2 - <G, V>^2).

    Args:
        weight: W, all channels.
        gradients: (n, *W.shape).
    """
    unit, scale = standardise(weight)
    V, G = unit.flatten(1), gradients.flatten(2)
    moving = scale < FLOOR**-0.5
    with tf32(allowed=False):  # of a sum over units, every unit's share must stay what it is
        along = torch.where(moving, torch.einsum("nci,ci->nc", G, V), 0.0)
    dW = (G - G.mean(2, keepdim=True)).addcmul_(along.unsqueeze(2), V, value=-1.0)
    return dW.mul_(scale.unsqueeze(1)).reshape(gradients.shape)


@final
@dataclass(frozen=True, eq=False)
class PulledBack(PerExample):
    """Gradients for W, by those for V.

    Args:
        plain: G, the gradients for V.
        weight: W.
        output: of the layer; norms are read from it where the gradients are not formed.
        bias: of the layer, which its output contains.
    """

    plain: Windowed
    weight: Tensor
    output: Tensor
    bias: Tensor | None

    def settled(self) -> PerExample:
        """Formed if the gradients for V would be, else by the norms in `pull_back`."""
        if isinstance(plain := self.plain.settled(), Dense):
            return Dense(pull_back(self.weight, plain.formed()))
        return self

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """Sum over channels of s^2 (|G|^2 - N mean(G)^2 - <G, V>^2), never understated.

        What is taken off is lessened by its rounding, for the output that <G, V> comes from is
        rounded; that its float32 sum is rounded more often is within the margin of clipping.
        """
        _, scale = standardise(self.weight)
        scale = scale.double()
        left = at_least_single(self.plain.left)
        by_channel = scale.to(left.dtype).reshape(-1, *[1] * (left.dim() - 2))
        scaled = replace(self.plain, left=left * by_channel, seen=at_least_single(self.plain.seen))
        squares = scaled.squared_norms(rounding)
        with tf32(allowed=False):
            along, uncancelled, offset = self._along()
        unsure = rounding.outputs * (uncancelled + offset)
        sure = (along.abs() - unsure[..., None]).clamp_min(0)
        sure[..., 0] *= scale < FLOOR**-0.5
        taken_off = (sure.square().sum(2) * scale.square()).sum(1)
        uncancelled = (uncancelled * scale).sum(1)
        # Those of the product that was measured are in `squares` already.
        additions, rest = self.plain.positions * half_bit(left), squares - taken_off
        return safe_squares(rest, uncancelled, MEASURED_CANCELLATION, rounding, additions)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Pulling back is linear: once, for the sum."""
        return pull_back(self.weight, self.plain.weighted_sum(weights)[None])[0]

    def formed(self) -> Tensor:
        """Pulled back one by one."""
        return pull_back(self.weight, self.plain.formed())

    def folded(self, rows: int) -> "PulledBack":
        """The rows of a unit become positions."""
        return replace(self, plain=self.plain.folded(rows))

    def without(self, broken: Tensor) -> PerExample:
        """None of the marked ones; the others' norms are known by then."""
        return replace(self, plain=self.plain.without(broken))

    def _along(self) -> tuple[Tensor, Tensor, Tensor]:
        """By unit and channel, in double: <G, V> and <G, 1> / sqrt(N) on the last axis; S; beta.

        <G, V> = sum_t b_t y_t, <G, 1> = sum_t b_t times the sum of the patch at t, and
        S = sum_t |b_t| |a_t|, to which rounding is in proportion. An output with a bias is also
        rounded in proportion to that: beta = sum_t |b_t| |bias|.
        """
        plain, y = self.plain, at_least_single(self.output)
        if self.bias is not None:
            y = y - self.bias.reshape(-1, 1, 1)
        b = at_least_single(plain.left)
        # Every channel of a group sees the same patches.
        by_group = b.reshape(len(b), plain.groups, -1, *b.shape[2:])
        sums, lengths = (_over_patches(plain, power).unsqueeze(2) for power in (1, 2))
        along = _total(b * y), _total(by_group * sums) / math.sqrt(self.weight[0].numel())
        uncancelled = _total(by_group.abs() * lengths.sqrt())
        offset = torch.zeros_like(uncancelled)
        if self.bias is not None:
            offset = _total(b.abs()) * self.bias.abs().double()
        found = (torch.stack(along, 2), uncancelled, offset)
        by_unit, lost, more = (_by_unit(values, plain.rows) for values in found)
        return by_unit, lost, more


@rule(WSConv2d, with_output=True)
def ws_conv2d(layer: WSConv2d, a: Tensor, b: Tensor, y: Tensor) -> dict[str, PerExample]:
    """The gradients of a plain convolution, pulled back through standardisation."""
    forms = RULES[nn.Conv2d](layer, a, b)
    plain = forms["weight"]
    assert isinstance(plain, Windowed)
    bias = None if layer.bias is None else layer.bias.detach()
    return forms | {"weight": PulledBack(plain, layer.weight.detach(), y, bias)}


def _over_patches(plain: Windowed, power: int) -> Tensor:
    """Sum of the values (or of their squares) of the patch at each position, for each group."""
    seen = at_least_single(plain.seen)
    channels = seen.reshape(len(seen), plain.groups, -1, *seen.shape[2:]).pow(power).sum(2)
    ones = channels.new_ones(plain.groups, 1, *plain.shape[2:])
    return F.conv2d(channels, ones, None, plain.stride, 0, plain.dilation, plain.groups)


def _total(values: Tensor) -> Tensor:
    """Sums over positions, by row and channel."""
    return values.sum((-2, -1), dtype=torch.float64).flatten(1)


def _by_unit(values: Tensor, rows: int) -> Tensor:
    """Sums over the rows of each unit."""
    return values.reshape(-1, rows, *values.shape[1:]).sum(1)


@rule(ChannelAffine)
def channel_affine(layer: ChannelAffine, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Sums over positions."""
    positions = tuple(range(2, a.dim()))

    def total(values: Tensor) -> Dense:
        return Dense(values.sum(positions) if positions else values)

    return {"weight": total(a * b), "bias": total(b)}
