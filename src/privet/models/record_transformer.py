"""Transformers of the IGAMT family: an encoder of rows and a decoder that looks at its memory.

Blocks are post-norm, as published: sub-layer, add, LayerNorm. In the decoder a row sees itself and
the rows before; of the memory z (n, L, k) it sees all rows, or (`aligned`) those up to its own, so
that what comes later than the last row of a stay has no say. Every layer is called once in a pass.

`begin` and `step` run the decoder row by row, with the keys and values of earlier rows kept, and
keep the graph: what comes out can be differentiated.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def in_heads(x: Tensor, heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """(n, T, parts d) -> `parts` tensors (n, heads, T, d / heads)."""
    n, steps, width = x.shape
    split = x.reshape(n, steps, parts, heads, width // (parts * heads))
    return split.permute(2, 0, 3, 1, 4).unbind(0)


def joined(seen: Tensor) -> Tensor:
    """The heads side by side again."""
    return seen.transpose(1, 2).flatten(2)


class Thinking(nn.Module):
    """The feed-forward part of a block."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.think = nn.Linear(width, inner)
        self.conclude = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, T, d) -> the same."""
        normal: Tensor = self.norm(x + self.conclude(F.relu(self.think(x))))
        return normal


class EncoderBlock(nn.Module):
    """Every row looks at every row."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.thinking = Thinking(width, inner)

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        """(n, T, d); `seen` (n, 1, 1, T) says which rows may be looked at."""
        query, key, value = in_heads(self.ask(x), self.heads, 3)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        thought: Tensor = self.thinking(self.norm(x + self.answer(joined(found))))
        return thought


@final
class TransformerEncoder(nn.Module):
    """Embedded rows (n, L, d) -> (n, L, d)."""

    def __init__(self, width: int, layers: int, heads: int, inner: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, inner) for _ in range(layers))

    def forward(self, embedded: Tensor, present: Tensor | None = None) -> Tensor:
        """`present` (n, L): rows that are there; None to look at padding, too, as published."""
        seen = None
        if present is not None:
            seen = F.pad(present[:, 1:], (1, 0), value=1.0).bool()[:, None, None]
        for block in self.blocks:
            embedded = block(embedded, seen)
        return embedded


@dataclass(eq=False)
class _Kept:
    """Keys and values of one block: of the memory, and of the rows so far."""

    memory: tuple[Tensor, Tensor]
    keys: list[Tensor]
    values: list[Tensor]


class DecoderBlock(nn.Module):
    """A row looks at itself and those before, then at the memory."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.ask_memory = nn.Linear(width, width)
        self.remember = nn.Linear(width, 2 * width)
        self.answer_memory = nn.Linear(width, width)
        self.memory_norm = nn.LayerNorm(width)
        self.thinking = Thinking(width, inner)

    def forward(self, x: Tensor, memory: Tensor, *, aligned: bool) -> Tensor:
        """(n, T, d), (n, L, d) -> (n, T, d)."""
        query, key, value = in_heads(self.ask(x), self.heads, 3)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = self.norm(x + self.answer(joined(found)))
        (query,) = in_heads(self.ask_memory(x), self.heads)
        key, value = in_heads(self.remember(memory), self.heads, 2)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=aligned)
        return self._concluded(x, found)

    def begin(self, memory: Tensor) -> _Kept:
        """Before the first row."""
        key, value = in_heads(self.remember(memory), self.heads, 2)
        return _Kept(memory=(key, value), keys=[], values=[])

    def step(self, x: Tensor, kept: _Kept, *, aligned: bool) -> Tensor:
        """One row more, (n, 1, d); `kept` learns of it."""
        query, key, value = in_heads(self.ask(x), self.heads, 3)
        kept.keys.append(key)
        kept.values.append(value)
        keys, values = torch.cat(kept.keys, 2), torch.cat(kept.values, 2)
        found = F.scaled_dot_product_attention(query, keys, values)
        x = self.norm(x + self.answer(joined(found)))
        (query,) = in_heads(self.ask_memory(x), self.heads)
        upto = len(kept.keys) if aligned else kept.memory[0].shape[2]
        key, value = (part[:, :, :upto] for part in kept.memory)
        found = F.scaled_dot_product_attention(query, key, value)
        return self._concluded(x, found)

    def _concluded(self, x: Tensor, found: Tensor) -> Tensor:
        thought: Tensor = self.thinking(self.memory_norm(x + self.answer_memory(joined(found))))
        return thought


@final
class TransformerDecoder(nn.Module):
    """Embedded rows (n, T, d) and a memory (n, L, d) -> (n, T, d)."""

    def __init__(
        self, width: int, layers: int, heads: int, inner: int, *, aligned: bool = False
    ) -> None:
        super().__init__()
        self.aligned = aligned
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, inner) for _ in range(layers))

    def forward(self, embedded: Tensor, memory: Tensor) -> Tensor:
        """All rows at once."""
        for block in self.blocks:
            embedded = block(embedded, memory, aligned=self.aligned)
        return embedded

    def begin(self, memory: Tensor) -> list[_Kept]:
        """Before the first row."""
        return [block.begin(memory) for block in self._layers]

    def step(self, embedded: Tensor, state: list[_Kept]) -> tuple[Tensor, list[_Kept]]:
        """One row more, (n, 1, d)."""
        for block, kept in zip(self._layers, state, strict=True):
            embedded = block.step(embedded, kept, aligned=self.aligned)
        return embedded, state

    @property
    def _layers(self) -> list[DecoderBlock]:
        return [block for block in self.blocks if isinstance(block, DecoderBlock)]
