"""Recurrent coders of the baselines: one latent vector for each stay.

The encoder's last state, after the last row that is there, is what it says of a stay. The decoder
begins with what the latent vector tells it, and is told it again with every row.
"""

from typing import final

import torch
from torch import Tensor, nn


@final
class GruEncoder(nn.Module):
    """Embedded rows (n, L, d) -> (n, d)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, layers, batch_first=True)

    def forward(self, embedded: Tensor, present: Tensor | None = None) -> Tensor:
        """`present` (n, L): rows that are there; None to read padding, too."""
        hidden: Tensor = self.gru(embedded)[0]
        if present is None:
            return hidden[:, -1]
        last = (present.sum(1) - 1).clamp_min(0).long()
        return hidden[torch.arange(len(hidden), device=hidden.device), last]


@final
class GruDecoder(nn.Module):
    """Embedded rows (n, T, d) and a memory (n, d) -> (n, T, d)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.first = nn.Linear(width, width)
        self.gru = nn.GRU(width, width, layers, batch_first=True)

    def forward(self, embedded: Tensor, memory: Tensor) -> Tensor:
        """All rows at once."""
        hidden: Tensor = self.gru(embedded + memory[:, None], self._first(memory))[0]
        return hidden

    def begin(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Before the first row: what is told again, and the state."""
        return memory, self._first(memory)

    def step(
        self, embedded: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One row more, (n, 1, d)."""
        memory, before = state
        hidden, after = self.gru(embedded + memory[:, None], before)
        return hidden, (memory, after)

    def _first(self, memory: Tensor) -> Tensor:
        first: Tensor = torch.tanh(self.first(memory))
        return first.expand(self.layers, *first.shape).contiguous()
