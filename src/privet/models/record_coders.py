"""Encoder, decoder and last layer of the IGAMT family, and the two ways to run a decoder.

| symbol         | here                            | meaning                                      |
|----------------|---------------------------------|----------------------------------------------|
| Enc            | `Encoder`                       | stays -> z (n, L, k) or (n, k); or its law   |
| Dec            | `DecoderBody` and `LastLayer`   | z and the rows before -> the next row        |
| Dec_i          | a second `DecoderBody`          | the imitator: shares the last layer          |
| x-hat, m-hat   | `teacher_forced`                | each row from the true rows before           |
| x-tilde, x-bar | `unrolled`                      | each row from the rows made before           |

Guarantee: none by itself; a stay's outputs are functions of that stay and the weights.
"""

from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.models.mixed_embedding import MixedEmbedding
from privet.models.record_gru import GruDecoder, GruEncoder
from privet.models.record_levels import Levels
from privet.models.record_rows import RecordRows, Rows, RowSizes
from privet.models.record_transformer import TransformerDecoder, TransformerEncoder

TRANSFORMER: Final = "transformer"
GRU: Final = "gru"
CODERS: Final = (TRANSFORMER, GRU)
HEAD_WIDTH: Final = 16
LOG_VARIANCES: Final = (-8.0, 4.0)


@final
@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the networks of one family member are like.

    Attributes:
        sizes: of the columns.
        coder: 'transformer' or 'gru'.
        width: d.
        layers: of encoder and decoder, each.
        latent: k, the width of z.
        time: whether rows have a time embedding.
        mixed: whether they have the embeddings of categories.
        aligned: whether row t sees the memory up to its own row, and no padding; as published: no.
    """

    sizes: RowSizes
    coder: str = TRANSFORMER
    width: int = 64
    layers: int = 1
    latent: int = 64
    time: bool = True
    mixed: bool = True
    aligned: bool = False

    @property
    def latent_steps(self) -> int | None:
        """Rows of z; None where it is one vector."""
        return self.sizes.steps if self.coder == TRANSFORMER else None

    def embedding(self) -> MixedEmbedding:
        """A new one; a recurrent network knows a row's place by itself."""
        return MixedEmbedding(
            self.sizes,
            self.width,
            place=self.coder == TRANSFORMER,
            time=self.time,
            categories=self.mixed,
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Said:
    """What a decoder says of every row, as logits (n, T, F)."""

    x_logits: Tensor
    m_logits: Tensor

    @property
    def x(self) -> Tensor:
        """x-hat."""
        return torch.sigmoid(self.x_logits)

    @property
    def m(self) -> Tensor:
        """m-hat."""
        return torch.sigmoid(self.m_logits)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """Stays that were made: values and masks (n, L, F), and the chances of the masks.

    `drawn` are the values before they fell into bins; those of what is fed back as it is are `x`.
    """

    x: Tensor
    m: Tensor
    chance: Tensor
    drawn: Tensor | None = None

    @property
    def xm(self) -> Tensor:
        """Values where measured."""
        return self.x * self.m


@final
class LastLayer(nn.Module):
    """W_x and W_m: from hidden states to values and masks."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.x = nn.Linear(width, features)
        self.m = nn.Linear(width, features)

    def forward(self, hidden: Tensor) -> Said:
        """(n, T, d) -> logits (n, T, F) of values and masks."""
        return Said(x_logits=self.x(hidden), m_logits=self.m(hidden))


@final
class Encoder(nn.Module):
    """Enc. Variational, it gives a mean and a log-variance for each latent number.

    Args:
        shape: of the network.
        embedding: of the rows; a decoder may share it.
        variational: whether z is a law.
        bounded: whether z (its mean) lies within -1 and 1, as what a generator makes does.
    """

    def __init__(
        self,
        shape: Shape,
        embedding: MixedEmbedding,
        *,
        variational: bool = False,
        bounded: bool = True,
    ) -> None:
        super().__init__()
        self.aligned, self.variational, self.bounded = shape.aligned, variational, bounded
        self.embedding = embedding
        self.encoder: nn.Module = (
            TransformerEncoder(shape.width, shape.layers, heads(shape.width), 2 * shape.width)
            if shape.coder == TRANSFORMER
            else GruEncoder(shape.width, shape.layers)
        )
        self.tell = nn.Linear(shape.width, shape.latent * (2 if variational else 1))

    def forward(self, reader: RecordRows, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """z, or its mean; and the log-variance of a law."""
        embedded = self.embedding(*reader.targets(rows), rows.start)
        told = self.tell(self.encoder(embedded, rows.present if self.aligned else None))
        mean, log_variance = told.chunk(2, -1) if self.variational else (told, None)
        if log_variance is not None:
            log_variance = log_variance.clamp(*LOG_VARIANCES)
        return torch.tanh(mean) if self.bounded else mean, log_variance


@final
class DecoderBody(nn.Module):
    """Dec, or the imitator, without the last layer."""

    def __init__(self, shape: Shape, embedding: MixedEmbedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.lift = nn.Linear(shape.latent, shape.width)
        self.decoder: TransformerDecoder | GruDecoder = (
            TransformerDecoder(
                shape.width,
                shape.layers,
                heads(shape.width),
                2 * shape.width,
                aligned=shape.aligned,
            )
            if shape.coder == TRANSFORMER
            else GruDecoder(shape.width, shape.layers)
        )

    def forward(self, reader: RecordRows, rows: Rows, z: Tensor) -> Tensor:
        """Hidden states (n, L, d) of all rows, each from the true rows before."""
        embedded = self.embedding(*reader.inputs(rows), rows.start)
        hidden: Tensor = self.decoder(embedded, self.lift(z))
        return hidden

    def begin(self, z: Tensor) -> Any:
        """Before the first row."""
        return self.decoder.begin(self.lift(z))

    def step(
        self, row: Tensor, time: Tensor, start: Tensor, state: Any, *, place: int
    ) -> tuple[Tensor, Any]:
        """One row more: (n, 1, I), (n, 1) -> (n, 1, d)."""
        embedded = self.embedding(row, time, start, first=place)
        return self.decoder.step(embedded, state)


def heads(width: int) -> int:
    """Of a network of this width."""
    return max(1, width // HEAD_WIDTH)


def teacher_forced(
    body: DecoderBody, last: LastLayer, reader: RecordRows, rows: Rows, z: Tensor
) -> Said:
    """x-hat and m-hat: each row is said from the true rows before it, and z."""
    said: Said = last(body(reader, rows, z))
    return said


def unrolled(
    body: DecoderBody,
    last: LastLayer,
    reader: RecordRows,
    start: Tensor,
    z: Tensor,
    *,
    generator: torch.Generator | None = None,
    spread: Tensor | None = None,
    levels: Levels | None = None,
) -> Made:
    """Stays from z and their start: each row is said from the rows made before it.

    The graph is kept. Without a generator values and chances are fed back as they are, as
    published. With one, masks are drawn, rows after the first without a gap are empty, values
    move to the middle of their bins, as those of records that are read, and gradients pass all that
    as if it had not been done (straight through); `spread` (2, F) are then deviations of values
    around what is said, in the first row and in others, and `levels` say which bins they fall into.
    How much more often cells are measured than is said they say in any case.
    """
    row, state = reader.start_row(start)[:, None], body.begin(z)
    elapsed = z.new_zeros(len(start))
    going = torch.ones_like(elapsed)[:, None]
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for place in range(reader.sizes.steps):
        time = reader.time_index(elapsed)[:, None]
        hidden, state = body.step(row, time, start, state, place=place)
        said = last(hidden[:, 0])
        x, m = said.x, said.m
        if levels is not None:
            m = levels.chances(m, place)
        drawn, chance = x, m
        if generator is not None:
            drawn, m = _drawn(x, m, going, place, generator, spread)
            inside = drawn.clamp(0.0, 1.0)
            x = reader.binned(inside) if levels is None else levels.binned(drawn, place)
            going = m[:, -1:]
        parts.append((x, m, chance, drawn))
        if generator is not None and not going.is_cuda and not going.any():
            break
        elapsed = elapsed + reader.gap_time(x[:, -1]) * m[:, -1].detach()
        row = reader.row(x, m)[:, None]
    missing = reader.sizes.steps - len(parts)
    x, m, chance, drawn = (
        F.pad(torch.stack(part, 1), (0, 0, 0, missing)) for part in zip(*parts, strict=True)
    )
    return Made(x=x, m=m, chance=chance, drawn=drawn)


def _drawn(
    x: Tensor,
    m: Tensor,
    going: Tensor,
    place: int,
    generator: torch.Generator,
    spread: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Values with their spread, and masks by their chances; nothing of stays that are over."""
    level = torch.rand(m.shape, generator=generator, device=generator.device).to(m)
    drawn = (level < m).to(m.dtype)
    if place == 0:  # a stay that was never written down is none
        drawn[:, -1] = 1.0
    m = (drawn + (m - m.detach())) * going  # in this order: exactly what was drawn
    m = torch.cat([m[:, :-1] * m[:, -1:], m[:, -1:]], 1)
    if spread is not None:
        spread = spread[min(place, 1)]
        moved = torch.randn(x.shape, generator=generator, device=generator.device).to(x)
        x = x + spread * moved
    return x, m
