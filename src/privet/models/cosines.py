"""Random cosine features (Rahimi and Recht, 2007), fixed by a public seed, and a linear head.

    phi(x) = cos(W (2x - 1) + b),   W ~ N(0, s^2 / d),  b ~ U[0, 2 pi]

Inner products of phi approximate a Gaussian kernel. Nothing is learned in front of the head, so
records are asked once where the head is found from their moments (`training.functional_head`). They
do not suppose that neighbouring pixels belong together: they serve permuted images as well.
"""

import math
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.models.fronted import Fronted
from privet.models.registry import Shape, family

SEED: Final = 0  # public
WIDTH: Final = 1024


@final
class Cosines(nn.Module):
    """The features of examples of one size; entries in [-1, 1]."""

    def __init__(self, inputs: int, features: int, spread: float) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(SEED)
        directions = torch.randn(features, inputs, generator=drawn) * spread / math.sqrt(inputs)
        phases = 2.0 * math.pi * torch.rand(features, generator=drawn)
        self.register_buffer("directions", directions, persistent=False)
        self.register_buffer("phases", phases, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each example."""
        centred = 2.0 * x.flatten(1) - 1.0
        return torch.cos(centred @ self.get_buffer("directions").T + self.get_buffer("phases"))


@family("cosines-S", r"cosines-(\d+)")
def cosines(shape: Shape, n_classes: int, spread: int) -> nn.Module:
    """Random cosines of spread S (about 2 to 4), fixed, and a linear head."""
    front = Cosines(math.prod(shape), WIDTH, float(spread))
    return Fronted(front, nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, n_classes)))
