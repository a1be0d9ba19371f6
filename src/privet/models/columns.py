"""Layers for rows of columns, with the clipping rules of their parameters.

Shift         a number added to each entry of the last axes
PerColumn     a small product for each column, by itself
Triangular    a product in which an output sees only the inputs before it

A `gain` makes a layer learn faster than others under one learning rate: what it computes is so many
times its weights.
"""

from typing import final

import torch
from torch import Tensor, nn

from privet.privacy.rules.forms import Dense, PerExample
from privet.privacy.rules.registry import rule


@final
class Shift(nn.Module):
    """y = x + gain weight + a fixed offset, over the last axes; begins as the offset."""

    offset: Tensor

    def __init__(self, *shape: int, offset: Tensor | None = None, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        offset = torch.zeros(shape) if offset is None else offset
        self.register_buffer("offset", offset, persistent=False)
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """(n, ..., *shape) -> the same."""
        return x + (self.gain * self.weight + self.offset)


@final
class PerColumn(nn.Module):
    """y_f = gain W_f x_f for each column f; begins as nothing."""

    def __init__(self, columns: int, inputs: int, outputs: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(torch.zeros(columns, outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """(n, ..., columns, inputs) -> (n, ..., columns, outputs)."""
        return torch.einsum("...fi,foi->...fo", x, self.gain * self.weight)


@final
class Triangular(nn.Module):
    """y = gain (W * allowed) x: an output sees the inputs that it may; begins as nothing.

    `allowed` has a row for each output; a boolean.
    """

    allowed: Tensor

    def __init__(self, allowed: Tensor, *, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        self.register_buffer("allowed", allowed.float(), persistent=False)
        self.weight = nn.Parameter(torch.zeros(allowed.shape))

    def matrix(self) -> Tensor:
        """What inputs are multiplied with."""
        return self.gain * self.weight * self.allowed

    def forward(self, x: Tensor) -> Tensor:
        """(n, ..., inputs) -> (n, ..., outputs)."""
        return x @ self.matrix().T


@rule(Shift)
def shift(layer: Shift, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """The sum over all places of an example."""
    axes = tuple(range(1, b.dim() - layer.weight.dim()))
    return {"weight": Dense(layer.gain * (b.sum(axes) if axes else b))}


@rule(PerColumn)
def per_column(layer: PerColumn, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Outer products of each column, summed over an example's places."""
    a, b = (v.reshape(len(v), -1, *v.shape[-2:]) for v in (a.to(b.dtype), b))
    return {"weight": Dense(layer.gain * torch.einsum("ntfo,ntfi->nfoi", b, a))}


@rule(Triangular)
def triangular(layer: Triangular, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """Outer products where the output may see the input."""
    a, b = (v.reshape(len(v), -1, v.shape[-1]) for v in (a.to(b.dtype), b))
    return {"weight": Dense(torch.bmm(b.transpose(1, 2), a) * (layer.gain * layer.allowed))}
