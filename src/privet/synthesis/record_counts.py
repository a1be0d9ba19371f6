"""How many cells of a stay are in each bin: what the private histograms are sums of.

    h_i[k, c] = rows of stay i in which column k has the code c             c = 0: it is empty

Columns are those of `record_levels`: temporal ones over all rows; the gap over all but the first
row, where code 0 is the row after the last; and the gap of the first row. Counts of gaps weigh as
much as those of all other columns together: there are no more than one of them in a row.
"""

import math
from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.models.record_rows import RowSizes

BINS: Final = 7  # over which the values of one column of a stay are taken to be spread


@final
class Counts:
    """Counts of stays, side by side in one vector.

    Args:
        sizes: of the columns.
    """

    def __init__(self, sizes: RowSizes) -> None:
        self._sizes = sizes
        self.widths = [1 + bins for bins in (*sizes.levels, sizes.levels[-1])]
        self.gap_weight = math.sqrt(max(1, sizes.features - 1))

    @property
    def width(self) -> int:
        """Of the vector."""
        return sum(self.widths)

    @property
    def bound(self) -> float:
        """The norm of a stay of half as many rows as there may be, each column in `BINS` bins.

        Longer ones are shortened to it where counts are clipped so.
        """
        others = self._sizes.features - 1
        return self._sizes.steps / 2 * math.sqrt((others + self.gap_weight**2) / BINS)

    def of(self, x: Tensor, m: Tensor) -> Tensor:
        """(n, T, F) values in the middle of their bins, and masks -> (n, width), gaps weighted."""
        levels = torch.tensor(self._sizes.levels, device=x.device)
        codes = (x * levels + 0.5).round().long() * m.long()
        there = m[..., -1]
        asked = F.pad(there[:, :-1], (1, 0), value=1.0)
        parts = [
            _tally(codes[..., place], there, bins)
            for place, bins in enumerate(self._sizes.levels[:-1])
        ]
        gap, bins = codes[..., -1], self._sizes.levels[-1]
        parts.append(self.gap_weight * _tally(gap[:, 1:], asked[:, 1:], bins))
        parts.append(self.gap_weight * _tally(gap[:, :1], asked[:, :1], bins))
        return torch.cat(parts, 1)

    def split(self, counts: Tensor) -> list[Tensor]:
        """Of one vector, (width,): the counts of each column, gaps no longer weighted."""
        *others, gap, first = torch.split(counts, self.widths)
        return [*others, gap / self.gap_weight, first / self.gap_weight]

    def noises(self, noise: float) -> list[float]:
        """Deviations of the entries of each column, where those of the vector have this one."""
        weights = [1.0] * (len(self.widths) - 2) + [self.gap_weight] * 2
        return [noise / weight for weight in weights]


def _tally(codes: Tensor, counted: Tensor, bins: int) -> Tensor:
    """(n, T) twice -> (n, bins + 1)."""
    return (F.one_hot(codes, bins + 1) * counted[..., None]).sum(1)
