"""Records as the networks of the IGAMT family see them: values, masks, start features, times.

The engine feeds codes (`data.records.coding`), scaled to [0, 1]. Read here, they are

| symbol | here    | meaning                                                                   |
|--------|---------|---------------------------------------------------------------------------|
| x      | `x`     | (n, L, F) in [0, 1]: the middle of each value's bin; 0 where missing      |
| m      | `m`     | (n, L, F): 1 where measured; of the gap: whether there is such a row      |
|        | `start` | (n, S): codes of static columns and outcomes, what a stay is made from    |
| time   | `time`  | (n, L): time since the start, in public bins                              |

F are the temporal columns and, last, the gap to the row before. A row that a network reads has I
numbers: x m (and m, `with_masks`); the start row has shares of numeric columns, one-hot codes of
others. Bounds, bins and sizes are the schema's: public, never the records'.
"""

import math
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.data.records.features import Numeric
from privet.data.records.schema import Schema
from privet.models.row_transformer import Sizes

TIME_BINS: Final = 48  # rows of the table of times
AFTER: Final = 3  # empty rows that are kept where stays are cut: all that a window may see
EARLY: Final = 1 / 256  # of the longest gap: times below are spread out evenly, those above by log


@final
@dataclass(frozen=True, kw_only=True)
class RowSizes:
    """What the networks have to know of a schema.

    Attributes:
        columns: of the schema, as levels.
        start_ordered: of static columns and outcomes: whether codes are bins.
        with_masks: whether a row that is read has its mask beside its values.
    """

    columns: Sizes
    start_ordered: tuple[bool, ...]
    with_masks: bool = False

    @classmethod
    def of(cls, schema: Schema, *, with_masks: bool = False) -> "RowSizes":
        """Of a schema."""
        start = (*schema.static, *schema.outcomes)
        return cls(
            columns=Sizes.of(schema),
            start_ordered=tuple(isinstance(feature, Numeric) for feature in start),
            with_masks=with_masks,
        )

    @property
    def steps(self) -> int:
        """L."""
        return self.columns.steps

    @property
    def features(self) -> int:
        """F: temporal columns and the gap."""
        return len(self.columns.temporal) + 1

    @property
    def levels(self) -> tuple[int, ...]:
        """Of the F columns."""
        return (*self.columns.temporal, self.columns.gap)

    @property
    def start(self) -> tuple[int, ...]:
        """Levels of static columns, then of outcomes."""
        return (*self.columns.static, *self.columns.outcomes)

    @property
    def statics(self) -> int:
        """How many of them are static."""
        return len(self.columns.static)

    @property
    def start_width(self) -> int:
        """Numbers that say what a stay begins with."""
        kinds = zip(self.start, self.start_ordered, strict=True)
        return sum(1 if ordered else levels for levels, ordered in kinds)

    @property
    def row_width(self) -> int:
        """I: numbers of a row that is read."""
        return max(self.features * (2 if self.with_masks else 1), self.start_width)

    @property
    def code_width(self) -> int:
        """Columns of the codes of a stay."""
        return max(len(self.start), self.features)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Stays; see the module's words."""

    x: Tensor
    m: Tensor
    start: Tensor
    time: Tensor

    @property
    def xm(self) -> Tensor:
        """Values where measured, 0 elsewhere."""
        return self.x * self.m

    @property
    def present(self) -> Tensor:
        """(n, L): 1 for rows that are there."""
        return self.m[..., -1]

    @property
    def asked(self) -> Tensor:
        """(n, L): 1 for these rows and the first that is not there, which says that it is over."""
        return F.pad(self.present[:, :-1], (1, 0), value=1.0)


@final
class RecordRows(nn.Module):
    """Reads codes, and writes them; nothing is learned."""

    levels: Tensor
    gap_times: Tensor
    start_levels: Tensor

    def __init__(self, sizes: RowSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.register_buffer("levels", torch.tensor(sizes.levels), persistent=False)
        self.register_buffer("gap_times", torch.tensor(sizes.columns.gap_times), persistent=False)
        self.register_buffer(
            "start_levels", torch.tensor(sizes.start, dtype=torch.long), persistent=False
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of values and masks."""
        return self.gap_times.dtype

    def read(self, codes: Tensor, *, cut: bool = False) -> Rows:
        """(n, 1 + L, W) in [0, 1]; codes beyond the levels count as the last.

        With `cut`, on a CPU, L is that of the longest stay and `AFTER`: for networks in which rows
        after a stay's end have no say, nor how many they are.
        """
        whole = (codes * 255.0).round().long()
        if cut and not codes.is_cuda:  # there, shapes that hang on the records are not replayed
            longest = (whole[:, 1:, 0] > 0).long().cumprod(1).sum(1).amax() if len(codes) else 0
            whole = whole[:, : 1 + int(longest) + AFTER]
        start = torch.minimum(whole[:, 0, : len(self.start_levels)], self.start_levels)
        rows = torch.cat([whole[:, 1:, 1 : self.sizes.features], whole[:, 1:, :1]], 2)
        rows = torch.minimum(rows, self.levels)
        present = (rows[..., -1] > 0).long().cumprod(1)
        rows = rows * present[..., None]
        return Rows(
            x=self.shares(rows),
            m=(rows > 0).to(self.dtype),
            start=start,
            time=self.time_index(self.gap_times[rows[..., -1]].cumsum(1)),
        )

    def shares(self, rows: Tensor) -> Tensor:
        """The middle of the bin of each code, in [0, 1]; 0 for code 0."""
        return torch.where(rows > 0, (rows.to(self.dtype) - 0.5) / self.levels, 0.0)

    def binned(self, x: Tensor) -> Tensor:
        """Values at the middle of their bins; gradients pass as if they had not moved."""
        middles = (x.detach() * self.levels).ceil().clamp_min(1.0)
        return x + ((middles - 0.5) / self.levels - x).detach()

    def codes(self, x: Tensor, m: Tensor, start: Tensor) -> Tensor:
        """Bytes (n, 1 + L, W) of stays; over at the first row without a gap, but for the first."""
        missing = self.sizes.steps - x.shape[1]
        x, m = (F.pad(part, (0, 0, 0, missing)) for part in (x, m))
        rows = torch.minimum((x * self.levels).ceil().long().clamp_min(1), self.levels)
        there = m[..., -1].bool()
        there = F.pad(there[:, 1:], (1, 0), value=True).cumprod(1).bool()
        measured = m.bool() & there[..., None]
        measured[..., -1] = there
        rows = rows * measured
        codes = rows.new_zeros(len(rows), 1 + self.sizes.steps, self.sizes.code_width)
        codes[:, 0, : start.shape[1]] = start
        codes[:, 1:, 0] = rows[..., -1]
        codes[:, 1:, 1 : self.sizes.features] = rows[..., :-1]
        return codes.to(torch.uint8)

    def start_row(self, start: Tensor) -> Tensor:
        """(n, S) codes -> (n, I): shares, one-hot codes, zeros; nothing for what is missing."""
        parts = [self.gap_times.new_zeros(len(start), 0)]
        for place, (levels, ordered) in enumerate(
            zip(self.sizes.start, self.sizes.start_ordered, strict=True)
        ):
            code = start[:, place]
            if ordered:
                share = (code.to(self.dtype) - 0.5) / levels
                parts.append(torch.where(code > 0, share, 0.0)[:, None])
            else:
                parts.append(F.one_hot(code, levels + 1)[:, 1:].to(self.dtype))
        joined = torch.cat(parts, 1)
        return F.pad(joined, (0, self.sizes.row_width - joined.shape[1]))

    def row(self, x: Tensor, m: Tensor) -> Tensor:
        """(n, T, F) twice -> (n, T, I): what is read of rows."""
        parts = torch.cat([x * m, m], -1) if self.sizes.with_masks else x * m
        return F.pad(parts, (0, self.sizes.row_width - parts.shape[-1]))

    def inputs(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """What a decoder reads before each row: the start row, then the rows but the last."""
        before = self.row(rows.x[:, :-1], rows.m[:, :-1])
        shifted = torch.cat([self.start_row(rows.start)[:, None], before], 1)
        return shifted, F.pad(rows.time[:, :-1], (1, 0))

    def targets(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """What an encoder reads: the rows, and their times."""
        return self.row(rows.x, rows.m), rows.time

    def gap_time(self, share: Tensor) -> Tensor:
        """What a gap at this share takes, in longest gaps."""
        return self.gap_times[(share.detach() * self.sizes.columns.gap).ceil().long().clamp(0)]

    def time_index(self, elapsed: Tensor) -> Tensor:
        """The bin of a time since the start, in longest gaps; beyond the horizon: the last."""
        width = math.log1p(self.sizes.columns.horizon / EARLY)
        share = torch.log1p(elapsed / EARLY) / width
        return (share * TIME_BINS).long().clamp(0, TIME_BINS - 1)
