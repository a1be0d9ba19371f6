"""Where drawn values fall into bins, and how often cells are filled: as settled after training.

A value is drawn around what a decoder says of it, and falls into one of its column's bins. Without
this module a bin's edges are its own: then the noise in what is said comes on top of the spread
that was learned, and values are too wide. Here the edges are cut points, chosen so that every bin
is filled as often as it should be (`synthesis.settling`): an ordered probit with free thresholds.

| symbol | here   | meaning                                                                      |
|--------|--------|------------------------------------------------------------------------------|
| c      | `cuts` | (F + 1, most bins - 1): a value is in the bin 1 + (how many cuts lie below)  |
| o      | `odds` | (F + 1,): added to the logit of a cell's chance to be filled                 |

Places 0 .. F - 1 are the temporal columns and the gap; place F is the gap of a stay's first row,
which is the time since the start, often none at all. Of the gap, odds are those of one row more.

Guarantee: none by itself; a monotone map for each column, the same for all stays.
"""

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn

FAR: Final = 1e6  # no value that is drawn lies beyond


@final
class Levels(nn.Module):
    """Cut points and odds; begins with the bins' own edges, and with odds as they are said.

    Args:
        levels: bins of the F columns, the gap last.
    """

    cuts: Tensor
    odds: Tensor
    counts: Tensor

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = (*levels, levels[-1])
        cuts = torch.full((len(self.levels), max(self.levels) - 1), FAR)
        for place, bins in enumerate(self.levels):
            cuts[place, : bins - 1] = torch.arange(1, bins) / bins
        self.register_buffer("cuts", cuts)
        self.register_buffer("odds", torch.zeros(len(self.levels)))
        self.register_buffer("counts", torch.tensor(self.levels), persistent=False)

    def of_row(self, row: int) -> list[int]:
        """Places of a row's F columns."""
        last = len(self.levels) - 1
        return [*range(last - 1), last if row == 0 else last - 1]

    def chances(self, m: Tensor, row: int) -> Tensor:
        """(n, F) chances as they are said -> as they are drawn by."""
        return torch.sigmoid(torch.logit(m, eps=1e-6) + self.odds[self.of_row(row)])

    def binned(self, x: Tensor, row: int) -> Tensor:
        """(n, F) values -> the middles of their bins; gradients pass as if they had not moved."""
        places = self.of_row(row)
        below = (x.detach()[..., None] > self.cuts[places]).sum(-1).to(x.dtype)
        return (below + 0.5) / self.counts[places] + (x - x.detach())
