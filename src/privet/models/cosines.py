"""Random cosine features (Rahimi and Recht, 2007), fixed by a public seed, and a linear head.

    phi(x) = sqrt(2) (cos, sin)(W (2x - 1)),   W ~ N(0, s^2 / d), N rows

Inner products of phi, over 2N, approximate a Gaussian kernel. A cosine and a sine of each direction
give every example the same length, |phi|^2 = 2N: where a bound on the length sets the noise, none
of it is wasted. Nothing is learned in front of the head, so records are asked once where the head
is found from their moments (`training.functional_head`). They do not suppose that neighbouring
pixels belong together: they serve permuted images as well.
"""

import math
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.models.fronted import Fronted
from privet.models.registry import Shape, family

SEED: Final = 0  # public


@final
class Cosines(nn.Module):
    """The features of examples of one size, two for each direction."""

    def __init__(self, inputs: int, directions: int, spread: float) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(SEED)
        rows = torch.randn(directions, inputs, generator=drawn) * spread / math.sqrt(inputs)
        self.register_buffer("directions", rows, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each example."""
        angles = (2.0 * x.flatten(1) - 1.0) @ self.get_buffer("directions").T
        return math.sqrt(2.0) * torch.cat([angles.cos(), angles.sin()], 1)


@family("cosines-S-N", r"cosines-(\d+(?:\.\d+)?)-([1-9]\d*)")
def cosines(shape: Shape, n_classes: int, spread: int | str, directions: int) -> nn.Module:
    """Cosines and sines of N random directions of spread S (about 2), fixed; a linear head."""
    front = Cosines(math.prod(shape), directions, float(spread))
    return Fronted(front, nn.Sequential(nn.Flatten(), nn.Linear(2 * directions, n_classes)))
