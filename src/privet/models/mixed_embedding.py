"""What a network reads of a row: values, place, time and who it is about, as one vector.

    h_t = W_in row_t + pos(t) + E_time[time_t] + sum over categorical start columns of E_c[code_c]

pos is fixed: sines and cosines. Each part but the first can be left out.
"""

import math
from typing import final

import torch
from torch import Tensor, nn

from privet.models.record_rows import TIME_BINS, RowSizes


@final
class MixedEmbedding(nn.Module):
    """The sum of all that is known of a row.

    Args:
        sizes: of the columns.
        width: d, even.
        place: whether pos is added.
        time: whether E_time is.
        categories: whether the tables of categorical static columns and outcomes are.
    """

    places: Tensor
    offsets: Tensor

    def __init__(
        self,
        sizes: RowSizes,
        width: int,
        *,
        place: bool = True,
        time: bool = True,
        categories: bool = True,
    ) -> None:
        super().__init__()
        self.read = nn.Linear(sizes.row_width, width)
        self.has_place = place
        self.register_buffer("places", sinusoids(sizes.steps, width), persistent=False)
        self.time = nn.Embedding(TIME_BINS, width) if time else None
        self.unordered = [j for j, ordered in enumerate(sizes.start_ordered) if not ordered]
        counts = torch.tensor([0, *(sizes.start[j] + 1 for j in self.unordered)])
        self.register_buffer("offsets", counts.cumsum(0)[:-1], persistent=False)
        some = categories and self.unordered
        self.categories = nn.Embedding(int(counts.sum()), width) if some else None

    def forward(self, rows: Tensor, time: Tensor, start: Tensor, *, first: int = 0) -> Tensor:
        """(n, T, I), (n, T), (n, S) -> (n, T, d); `first` is the place of the first row."""
        hidden: Tensor = self.read(rows)
        if self.has_place:
            hidden = hidden + self.places[first : first + rows.shape[1]]
        if self.time is not None:
            hidden = hidden + self.time(time)
        if self.categories is not None:
            hidden = hidden + self.about(start)
        return hidden

    def about(self, start: Tensor) -> Tensor:
        """(n, 1, d): what the categories say, of every row; all tables lie in one."""
        assert self.categories is not None
        chosen: Tensor = self.categories(start[:, self.unordered] + self.offsets)
        return chosen.sum(1, keepdim=True)


def sinusoids(steps: int, width: int) -> Tensor:
    """(steps, width): sines in even places, cosines in odd ones, slower from pair to pair."""
    pair = torch.arange(width) // 2
    angle = torch.arange(steps)[:, None] / 10000.0 ** (2 * pair / width)
    return torch.sin(angle + (torch.arange(width) % 2) * (math.pi / 2))
