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

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.privacy.rules import RULES, Dense, PerExample, rule

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
    along = torch.where(moving, torch.einsum("nci,ci->nc", G, V), 0.0)
    dW = (G - G.mean(2, keepdim=True)).addcmul_(along.unsqueeze(2), V, value=-1.0)
    return dW.mul_(scale.unsqueeze(1)).reshape(gradients.shape)


@final
@dataclass(frozen=True, eq=False)
class PulledBack(PerExample):
    """Gradients for W, by those for V.

    They are formed as soon as the rows of each unit are added up (which comes first: pulling back
    is linear), so that the gradients for V, and what they are made of, can go.
    """

    plain: PerExample
    weight: Tensor

    def folded(self, rows: int) -> Dense:
        """Formed, one a unit."""
        return Dense(pull_back(self.weight, self.plain.folded(rows).formed()))

    def formed(self) -> Tensor:
        """One a row."""
        return self.folded(1).gradients

    def squared_norms(self) -> Tensor:
        """Of the formed gradients."""
        return self.folded(1).squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Of the formed gradients."""
        return self.folded(1).weighted_sum(weights)

    def without(self, broken: Tensor) -> PerExample:
        """Of the formed gradients."""
        return self.folded(1).without(broken)


@rule(WSConv2d)
def ws_conv2d(layer: WSConv2d, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """The gradients of a plain convolution, pulled back through standardisation."""
    gradients = RULES[nn.Conv2d](layer, a, b)
    return {**gradients, "weight": PulledBack(gradients["weight"], layer.weight.detach())}


@rule(ChannelAffine)
def channel_affine(layer: ChannelAffine, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Sums over positions."""
    positions = tuple(range(2, a.dim()))

    def total(values: Tensor) -> Dense:
        return Dense(values.sum(positions) if positions else values)

    return {"weight": total(a * b), "bias": total(b)}
