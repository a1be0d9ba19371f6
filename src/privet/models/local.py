"""Fronts for records that were randomised one by one (`training.local_records`).

| symbol | here       | meaning                                                        |
|--------|------------|----------------------------------------------------------------|
| P      | `pool`     | cells a side that an image is averaged to; 0: left as it is    |
| d'     | `cells_of` | numbers that are left: P^2, or all of them                     |
| c      | `norm`     | the L1 norm to which a longer record is shortened              |
| v      |            | cells times d' / (4 c): four times the mean of a full one is 1 |
| s      | `noise`    | scale of the Laplace noise that the head has learned under     |
| m(v)   | `expected` | mean of v + Laplace(s), cut off at 0 and 1                     |

A head behind this front learns from noisy cells that are cut off at 0 and 1. Of an image that is
judged it is shown their mean m(v): on another scale its biases would be wrong. m rises everywhere,
so that no gradient is hidden from an attacker.
"""

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.fronted import Fronted
from privet.models.registry import Shape, builder_of, family
from privet.privacy.local import FULL

MOST_CELLS: Final = 8  # a side, unless more are asked for
USUAL_MEAN: Final = 1 / 8  # of a cell: what brings a record to the usual norm


class Shortened(nn.Module):
    """Means over cells and channels, shortened to the norm c, as the head expects them."""

    def __init__(self, shape: Shape, pool: int) -> None:
        super().__init__()
        self.pool = pool
        self.seen = seen_shape(shape, pool)
        self.register_buffer("norm", torch.tensor(usual_norm(shape, pool)))
        self.register_buffer("noise", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) -> (n, 1, P, P), or as it is."""
        cells, norm = pooled(x, self.pool), self.get_buffer("norm")
        lengths = cells.abs().flatten(1).sum(1).clamp_min(float(norm))
        gain = math.prod(self.seen) / (FULL * lengths)
        return expected(
            cells * gain.view(-1, *[1] * (cells.dim() - 1)), float(self.get_buffer("noise"))
        )


@family("local-P-HEAD", r"local-(\d+)-([a-z][\w-]*)")
def local(shape: Shape, n_classes: int, pool: int, head: str) -> nn.Module:
    """For `stobatch-ldp`: network HEAD on means over P x P cells (0: inputs as they are)."""
    return Fronted(Shortened(shape, pool), builder_of(head)(seen_shape(shape, pool), n_classes))


def pooled(x: Tensor, pool: int) -> Tensor:
    """Means over cells and channels of images; anything else as it is."""
    return x if pool == 0 else F.adaptive_avg_pool2d(x.mean(1, keepdim=True), pool)


def expected(v: Tensor, noise: float) -> Tensor:
    """The integral over r in [0, 1] of P(v + Laplace(s) > r), for v at least 0."""
    above, below = torch.exp(-(v - 1.0).abs() / noise), torch.exp(-v / noise)
    within = v + noise / 2.0 * (below - above)
    return torch.where(v <= 1.0, within, 1.0 - noise / 2.0 * (above - below))


def seen_shape(shape: Shape, pool: int) -> Shape:
    """What the head is given."""
    if pool == 0:
        return shape
    if len(shape) != 3 or pool > min(shape[1:]):
        raise InputError(
            "records that cannot be averaged to cells",
            got=f"{pool} cells a side of shape {shape}",
            expected="images of at least as many pixels a side",
            fix="a smaller --pool; for tables leave it out",
        )
    return 1, pool, pool


def usual_pool(shape: Shape) -> int:
    """The most cells a side, up to 8, of which each has as many pixels; 0 where it is no image."""
    if len(shape) != 3:
        return 0
    most = min(MOST_CELLS, *shape[1:])
    return next((p for p in range(most, 2, -1) if all(side % p == 0 for side in shape[1:])), most)


def usual_norm(shape: Shape, pool: int) -> float:
    """One that most records exceed: shortened ones are all as long, and as well hidden."""
    return USUAL_MEAN * math.prod(seen_shape(shape, pool))
