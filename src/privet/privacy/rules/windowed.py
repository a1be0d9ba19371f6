"""Gradients of a convolution's kernel, one a unit, without holding what the kernel sees everywhere.

| symbol | here            | meaning                                                          |
|--------|-----------------|------------------------------------------------------------------|
| T      | `positions`     | positions of the kernel for a unit                               |
| b_t    | `left`          | gradient of the output at position t (o numbers a group)         |
| a_t    | `_patches`      | the K numbers a group that the kernel sees at position t         |
| p      | `_gram`         | places of the padded input that patches are made of              |

The gradient of a unit is sum_t b_t a_t^T. Patches of all units at once would take K / c times the
memory of the input, and on a CPU most of the time goes into writing them. So they are made for a
few units at a time, where they stay in the cache. Of three ways on, the one is taken that costs
least by count (`_costs`), never by the clock: a repeated step must come out the same.

| way      | norm                             | weighted sum                   | memory           |
|----------|----------------------------------|--------------------------------|------------------|
| formed   | of the formed gradients          | weights @ gradients            | n o K            |
| Gram     | sum_ts (b_t.b_s) (a_t.a_s)       | the weight gradient of a plain | T^2, p^2 a unit  |
| measured | formed a few at a time, let go   | convolution, of weighted b     | a few o K        |

(a_t.a_s) is a sum over the kernel of products of places: one Gram matrix of the places, shifted.

Guarantee: as in `forms`. Where the sum is computed by other products than the norm, S = sum_t |b_t|
|a_t| is added to the norm in the size of float32 roundings, and the norm is taken to be at least a
share of S, as there.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import torch
from torch import Tensor

from privet.privacy.rules.forms import (
    FLOAT32,
    GRAM_AT_ONCE,
    GRAM_COST,
    MOST_CANCELLATION,
    MOST_FORMED,
    Dense,
    PerExample,
    Rounding,
    at_least_single,
    half_bit,
    limit,
    product_of,
    safe_squares,
    zero_rows,
)

# Numbers in the patches of the units that are treated at once: a CPU's cache, a share of a GPU.
PATCHES_AT_ONCE: Final = {"cpu": 2**19, "cuda": 2**28}
TRAFFIC_COST: Final = 16.0  # of writing or reading a number, in multiplications
MEASURED_CANCELLATION: Final = 1024.0  # as in `forms`, but T may be in the thousands here


@final
@dataclass(frozen=True, eq=False)
class Windowed(PerExample):
    """Gradients of a kernel that slides over `seen`; `left` has one vector for each position.

    Args:
        left: (units * rows, groups * o, *grid).
        seen: (units * rows, groups * c, *size), already padded.
        shape: of the parameter: (groups * o, c, *kernel).
        stride: of the kernel.
        dilation: of the kernel.
        groups: that do not see each other.
        rows: that make up a unit.
    """

    left: Tensor
    seen: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    rows: int = 1

    @property
    def units(self) -> int:
        """How many gradients there are."""
        return len(self.left) // self.rows

    @property
    def positions(self) -> int:
        """T."""
        return self.rows * math.prod(self._grid)

    def settled(self) -> PerExample:
        """The formed gradients where they cost less than a Gram sum and are not too large."""
        formed, by_gram, _ = self._costs()
        if self.shape.numel() > limit(MOST_FORMED, self.left) or by_gram < formed:
            return self
        return self._dense()

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """By a Gram sum or by forming, whichever costs less."""
        _, by_gram, measured = self._costs()
        if by_gram <= measured:
            pieces = self._pieces(limit(GRAM_AT_ONCE, self.left) // self._gram_entries)
            return torch.cat([piece._gram_norms(rounding) for piece in pieces])
        pieces = self._pieces(limit(PATCHES_AT_ONCE, self.left) // self._patch_entries)
        return torch.cat([piece._measured_norms(rounding) for piece in pieces])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The weight gradient of a plain convolution whose output gradients are weighted."""
        left = at_least_single(self.left)
        by_row = weights.to(left.dtype).repeat_interleave(self.rows)
        left = left * by_row.reshape(-1, *[1] * (left.dim() - 1))
        zeros = [0] * len(self._grid)
        gradient: Tensor
        _, gradient, _ = torch.ops.aten.convolution_backward(
            left,
            at_least_single(self._reached),
            left.new_empty(1).expand(self.shape),
            None,
            self.stride,
            zeros,
            self.dilation,
            False,
            zeros,
            self.groups,
            (False, True, False),
        )
        return gradient

    def formed(self) -> Tensor:
        """A few units at a time."""
        return self._dense().gradients

    def folded(self, rows: int) -> "Windowed":
        """The rows of a unit become positions."""
        return self if rows == 1 else replace(self, rows=self.rows * rows)

    def without(self, broken: Tensor) -> "Windowed":
        """Zero both factors of the marked units."""
        marked = broken.repeat_interleave(self.rows)
        return replace(self, left=zero_rows(self.left, marked), seen=zero_rows(self.seen, marked))

    @property
    def _grid(self) -> torch.Size:
        return self.left.shape[2:]

    @property
    def _kernel(self) -> torch.Size:
        return self.shape[2:]

    @property
    def _patch_entries(self) -> int:
        return self.positions * self.groups * math.prod(self.shape[1:])

    @property
    def _gram_entries(self) -> int:
        places = self.rows * math.prod(self.seen.shape[2:])
        return self.groups * places * max(places, self.seen.shape[1])

    @cached_property
    def _reached(self) -> Tensor:
        """`seen` as far as the kernel reaches on the grid, and not beyond."""
        ends = [
            (g - 1) * s + d * (k - 1) + 1
            for g, s, d, k in zip(self._grid, self.stride, self.dilation, self._kernel, strict=True)
        ]
        reached = self.seen
        for axis, end in enumerate(ends, start=2):
            reached = reached.narrow(axis, 0, end)
        return reached

    @property
    def _channels_last(self) -> bool:
        """Whether patches are copied in longer runs with the channels of a place side by side."""
        run = self._kernel[-1] * self.shape[1] if self.dilation[-1] == 1 else self.shape[1]
        return run >= (self._grid[-1] if self.stride[-1] == 1 else 1)

    def _costs(self) -> tuple[float, float, float]:
        """Of norm and sum beyond one product with all patches: formed, Gram, measured."""
        entries, T = self.shape.numel(), self.positions
        places = self.rows * math.prod(self._reached.shape[2:])
        gram = T * T * self.left.shape[1] + places * places * self.seen.shape[1]
        gram += T * T * math.prod(self._kernel) * self.groups
        return 3 * TRAFFIC_COST * entries, GRAM_COST * gram, 1.0 * T * entries

    def _pieces(self, units: int) -> Iterator["Windowed"]:
        """So many units at a time, at least one."""
        at_once = self.rows * max(1, units)
        parts = zip(torch.split(self.left, at_once), torch.split(self.seen, at_once), strict=True)
        return (replace(self, left=left, seen=seen) for left, seen in parts)

    def _windows(self) -> Tensor:
        """A view of `seen`: (units, rows, groups, c, *grid, *kernel)."""
        values = self.seen
        for axis, count in enumerate(self._grid):
            reach = self.dilation[axis] * (self._kernel[axis] - 1) + 1
            windows = values.unfold(2 + axis, reach, self.stride[axis])
            values = windows[..., :: self.dilation[axis]].narrow(2 + axis, 0, count)
        return values.reshape(self.units, self.rows, self.groups, -1, *values.shape[2:])

    def _factors(self, buffer: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The b as (units, groups, o, T) and a as (units, groups, T, K), in `buffer` if given."""
        axes = len(self._grid)
        grid, kernel = range(4, 4 + axes), range(4 + axes, 4 + 2 * axes)
        b = self.left.reshape(self.units, self.rows, self.groups, -1, *self._grid)
        outer = (self.units, self.groups)
        if self._channels_last:
            a = _copied(self._windows().permute(0, 2, 1, *grid, *kernel, 3), buffer)
            b = b.permute(0, 2, 1, *grid, 3).reshape(*outer, self.positions, -1)
            return b.transpose(2, 3), a.view(*outer, self.positions, -1)
        a = _copied(self._windows().permute(0, 2, 3, *kernel, 1, *grid), buffer)
        b = b.permute(0, 2, 3, 1, *grid).reshape(*outer, -1, self.positions)
        return b, a.view(*outer, -1, self.positions).transpose(2, 3)

    def _dense(self) -> Dense:
        """All gradients; where they come piece by piece, measured while they are in the cache."""
        at_once = max(1, limit(PATCHES_AT_ONCE, self.left) // self._patch_entries)
        if at_once >= self.units:
            return Dense(self._in_shape(product_of(*self._factors())))
        o = self.shape[0] // self.groups
        flat = self.left.new_empty(self.units, self.groups, o, math.prod(self.shape[1:]))
        buffer = self.left.new_empty(at_once * self._patch_entries)
        flat = at_least_single(flat)
        squares = []
        for piece, part in zip(self._pieces(at_once), torch.split(flat, at_once), strict=True):
            torch.matmul(*map(at_least_single, piece._factors(buffer)), out=part)
            squares.append(Dense(part).squared_norms())
        return Dense(self._in_shape(flat), torch.cat(squares))

    def _in_shape(self, flat: Tensor) -> Tensor:
        """From (units, groups, o, K) to the parameter's shape, without moving anything."""
        if not self._channels_last:
            return flat.reshape(self.units, *self.shape)
        return flat.reshape(self.units, self.shape[0], *self._kernel, self.shape[1]).movedim(-1, 2)

    def _measured_norms(self, rounding: Rounding) -> Tensor:
        """Squared norms of gradients that are formed and let go."""
        b, a = self._factors()
        lengths = (
            torch.linalg.vector_norm(b, dim=2, dtype=torch.float64),
            torch.linalg.vector_norm(a, dim=3, dtype=torch.float64),
        )
        uncancelled = (lengths[0] * lengths[1]).sum((1, 2))
        squares = Dense(product_of(b, a)).squared_norms()
        twice = 2 * self.positions * half_bit(self.left)
        return safe_squares(squares, uncancelled, MEASURED_CANCELLATION, rounding, twice)

    def _gram_norms(self, rounding: Rounding) -> Tensor:
        """Squared norms of each unit, its groups one by one."""
        axes = range(4, 4 + len(self._grid))
        b = self.left.reshape(self.units, self.rows, self.groups, -1, *self._grid).double()
        b = b.permute(0, 2, 1, *axes, 3).flatten(2, -2)
        products = (b @ b.transpose(2, 3)) * self._patch_gram()
        uncancelled = products.diagonal(dim1=2, dim2=3).sqrt().sum(2)
        squares = products.sum((2, 3))
        additions = self.positions * half_bit(self.left)
        return safe_squares(squares, uncancelled, MOST_CANCELLATION, rounding, additions).sum(1)

    def _patch_gram(self) -> Tensor:
        """a_t.a_s for all pairs, (units, groups, T, T), in double precision."""
        seen, axes = self._reached, len(self._grid)
        size = seen.shape[2:]
        places = seen.reshape(self.units, self.rows, self.groups, -1, *size).double()
        places = places.permute(0, 2, 1, *range(4, 4 + axes), 3).flatten(2, -2)
        products = places @ places.transpose(2, 3)
        products = products.reshape(*products.shape[:2], self.rows, *size, self.rows, *size)
        total = torch.zeros((), dtype=torch.float64, device=seen.device)
        for offsets in itertools.product(*map(range, self._kernel)):
            at = [
                slice(d * i, d * i + s * (g - 1) + 1, s)
                for i, d, s, g in zip(offsets, self.dilation, self.stride, self._grid, strict=True)
            ]
            total = total + products[(slice(None), slice(None), slice(None), *at, slice(None), *at)]
        return total.reshape(self.units, self.groups, self.positions, self.positions)


def _copied(view: Tensor, buffer: Tensor | None) -> Tensor:
    """A contiguous copy; into memory that was used before, where it is given.

    Fresh memory has to be handed over by the operating system page by page, which costs a CPU more
    than the copy.
    """
    if buffer is None:
        return view.contiguous()
    return buffer[: view.numel()].view(view.shape).copy_(view)
