"""A unit is what is clipped as one: an example with its augmented views, or a user's records.

Rows come unit by unit: row i * views + k is view k of unit i. The unit's loss is the weighted sum
over its rows, sum_k weights[i * views + k] * loss(row), by default the mean; its gradient is
clipped once. A row of weight 0 is a gap: whatever stands in it (padding, NaN) is replaced before
the model sees it, so that batches of one size can hold any number of units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.errors import InputError

PerExampleLoss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> one loss for each row, shape (rows,)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each example."""
    return F.cross_entropy(outputs, targets, reduction="none")


def per_example_losses(loss: PerExampleLoss, outputs: Tensor, y: Tensor) -> Tensor:
    """The losses, after checking that there is one for each row."""
    losses = loss(outputs, y)
    if losses.shape != (len(y),):
        raise InputError(
            "the loss does not return one value for each example",
            got=f"shape {tuple(losses.shape)} for {len(y)} examples",
            expected=f"shape ({len(y)},)",
            fix='use reduction="none"',
        )
    return losses


@final
@dataclass(frozen=True, eq=False)
class Units:
    """A batch of units; without weights, the rows of a unit count alike."""

    x: Tensor
    y: Tensor
    views: int
    weights: Tensor | None

    @classmethod
    def of(cls, x: Tensor, y: Tensor, *, views: int = 1, weights: Tensor | None = None) -> Self:
        """Check the shapes, fill the gaps."""
        if views < 1 or len(x) % views or len(y) != len(x):
            raise InputError(
                "the rows are not whole units",
                got=f"{len(x)} rows of x, {len(y)} of y, {views} views a unit",
                expected="the same number of rows, a multiple of the views",
            )
        if weights is None:
            return cls(x, y, views, None)
        if weights.shape != (len(x),):
            raise InputError(
                "bad weights of rows", got=f"shape {tuple(weights.shape)}", expected=f"({len(x)},)"
            )
        gaps = weights == 0
        return cls(_filled(x, gaps), _filled(y, gaps), views, weights)

    def __len__(self) -> int:
        return len(self.x) // self.views

    def weighted(self, losses: Tensor) -> Tensor:
        """Each row's share in its unit's loss."""
        if self.weights is None:
            return losses if self.views == 1 else losses / self.views
        return losses * self.weights.to(losses.dtype)

    def split(self) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and the weights with units on the first axis and views on the second."""
        weights = self.weighted(torch.ones(len(self.x), device=self.x.device))
        parts = (self.x, self.y, weights)
        x, y, w = (part.reshape(len(self), self.views, *part.shape[1:]) for part in parts)
        return x, y, w


def _filled(values: Tensor, gaps: Tensor) -> Tensor:
    """Zeros in the gaps: a token, a class and a picture that every model can read."""
    mask = gaps.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(mask, torch.zeros_like(values), values)
