"""The gradients of one parameter for all examples, in a form that need not hold them one by one.

| form     | gradient of example n             | norm                         | weighted sum   |
|----------|-----------------------------------|------------------------------|----------------|
| Dense    | formed                            | of the rows                  | weights @ rows |
| RankOne  | b a^T                             | |b| |a|                      | one product    |
| OuterSum | sum_t b_t a_t^T, group by group   | Gram sum                     | one product    |
| LookUp   | row v_t gets g_t, added up over t | of the added-up rows         | scattered      |
| Stacked  | others, one below another         | squares add up               | stacked        |

An OuterSum is formed instead where that costs less (`settled`). The sizes of one example decide on
it, never how many there are: two ways measure by two rules, and an example that changed the way of
others would change what they add.

Guarantee: where an example's factor is clip norm / norm, what the weighted sum adds for it is no
longer than the clip norm, up to the rounding margin. Dense and LookUp measure the very numbers that
they add. RankOne's norm is a product and cannot cancel. A Gram sum can: sum_ts (b_t.b_s)(a_t.a_s)
may be far below S^2, S = sum_t |b_t| |a_t|, while the float32 product that adds the example up has
an error in proportion to S. Therefore the Gram sum is taken in double precision (relative error
below 1e-12 at the cancellation that is allowed), the norm has (`Rounding.sums` + t
`Rounding.additions`) S added to it, and it is taken to be at least S / `MOST_CANCELLATION`: however
much cancels, the terms of an example stay within that many clip norms. A term takes part in at most
t additions, each off by at most half of the last bit (2^-24 of its result), in whatever order and
on whatever processor; equal terms, one after another, come near that. (So it is for an example by
itself. Several are added up in one product, and that this behaves as in real numbers is an
assumption on the card.) At the lengths t for which
Gram sums are chosen, random signs cancel less, so honest examples are clipped by their norm.

The factors may come in half precision (see `precision`). What is formed from them has single
precision before it is measured, and so has every sum.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_CANCELLATION: Final = 32.0
SHORT_SUM: Final = 2**9  # entries: at most 64 additions one after another, in each of 8 lanes
GRAM_COST: Final = 4.0  # of a multiplication in the two double-precision Gram matrices
# Entries of one gradient, by kind of device; beyond, memory counts more than time.
MOST_FORMED: Final = {"cpu": 2**20, "cuda": 2**21}
# Entries of the Gram matrices and of the doubles they come from: a cache on a CPU, a share of
# memory on a GPU, where many small pieces cost more than they save.
GRAM_AT_ONCE: Final = {"cpu": 2**23, "cuda": 2**27}


@final
@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What rounding may add to a gradient that is not formed, in proportion to S.

    Attributes:
        sums: by the products that add gradients up.
        outputs: by a layer's output where norms are read from it, in proportion to |a_t|.
        additions: by each addition of these products, in halves of the last bit.
    """

    sums: float
    outputs: float
    additions: float = 1.0


FLOAT32: Final = Rounding(sums=2.0**-22, outputs=2.0**-22)  # four float32 roundings


class PerExample(ABC):
    """The gradients of one parameter for all examples of a batch."""

    @abstractmethod
    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """Squared L2 norm for each example, in double precision; not less than what is added."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum over examples of weight times gradient."""

    @abstractmethod
    def formed(self) -> Tensor:
        """All gradients, examples on the first axis."""

    @abstractmethod
    def folded(self, rows: int) -> "PerExample":
        """Rows to units: the sum over each run of `rows` rows."""

    def settled(self) -> "PerExample":
        """The form that costs less to measure and add up: this one, or the formed gradients."""
        return self

    @property
    def held(self) -> int:
        """Numbers that are formed for each example, beyond the layer's input and output."""
        return 0

    @abstractmethod
    def without(self, broken: Tensor) -> "PerExample":
        """The same, with the gradients of the marked examples set to zero."""


@final
@dataclass(frozen=True, eq=False)
class Dense(PerExample):
    """Formed gradients, shape (n, *parameter), in any order in memory.

    `squares` are their squared norms where these were measured when they were formed.
    """

    gradients: Tensor
    squares: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradients", at_least_single(self.gradients))

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """Sums of squares, and on top what float32 squares may have lost to underflow.

        In short float32 sums, added up in double precision: one float32 sum over a million entries
        may be off by more than the margin.
        """
        if self.squares is not None:
            return self.squares
        rows = self._rows()[0].contiguous()  # across examples, a sum would have one lane, not 8
        whole = rows.shape[1] // SHORT_SUM * SHORT_SUM
        short = rows[:, :whole].reshape(len(rows), -1, SHORT_SUM), rows[:, whole:].unsqueeze(1)
        norms = torch.cat([torch.linalg.vector_norm(part, dim=2) for part in short], 1)
        return norms.double().square().sum(1) + rows.shape[1] * torch.finfo(rows.dtype).tiny

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix-vector product, in full precision: these numbers were measured as they are."""
        rows, order = self._rows()
        stored = [self.gradients.shape[1 + axis] for axis in order]
        back = [order.index(axis) for axis in range(len(order))]
        with tf32(allowed=False):
            return (weights.to(rows.dtype) @ rows).reshape(stored).permute(back)

    def formed(self) -> Tensor:
        """Already there."""
        return self.gradients

    @property
    def held(self) -> int:
        """All of them."""
        return self.gradients.shape[1:].numel()

    def folded(self, rows: int) -> "PerExample":
        """Add up the rows."""
        return self if rows == 1 else Dense(_by_unit(self.gradients, rows).sum(1))

    def without(self, broken: Tensor) -> "PerExample":
        """Zero the marked rows."""
        return Dense(zero_rows(self.gradients, broken))

    def _rows(self) -> tuple[Tensor, list[int]]:
        """One row an example, as they lie in memory, and the order of the parameter's axes there.

        A kernel's gradients may lie with the channels last; sorted anew they would be copied.
        """
        strides = self.gradients.stride()[1:]
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        return self.gradients.permute(0, *[1 + axis for axis in order]).flatten(1), order


@final
@dataclass(frozen=True, eq=False)
class RankOne(PerExample):
    """Gradients b_n a_n^T, never formed; b has shape (n, o), a has (n, i)."""

    b: Tensor
    a: Tensor

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """|b_n|^2 |a_n|^2, in double precision: one square may underflow, the product not."""
        b: Tensor = torch.linalg.vector_norm(self.b, dim=1, dtype=torch.float64)
        a: Tensor = torch.linalg.vector_norm(self.a, dim=1, dtype=torch.float64)
        return (b * a * (1.0 + rounding.sums)).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix product, as in a plain backward pass."""
        b = at_least_single(self.b)
        return (b * weights.to(b.dtype)[:, None]).T @ at_least_single(self.a)

    def formed(self) -> Tensor:
        """The outer products."""
        return torch.einsum("no,ni->noi", self.b, self.a)

    def folded(self, rows: int) -> "PerExample":
        """The rows of a unit become positions."""
        return self if rows == 1 else self.as_outer_sum().folded(rows)

    def as_outer_sum(self) -> "OuterSum":
        """With one group and one position."""
        shape = torch.Size((self.b.shape[1], self.a.shape[1]))
        return OuterSum(self.b[:, None, None], self.a[:, None, None], shape)

    def without(self, broken: Tensor) -> "PerExample":
        """Zero both factors of the marked examples."""
        return RankOne(zero_rows(self.b, broken), zero_rows(self.a, broken))


@final
@dataclass(frozen=True, eq=False)
class OuterSum(PerExample):
    """Gradients sum_t b_t a_t^T for each group; b is (n, groups, t, o), a is (n, groups, t, i).

    `shape` is the parameter's, with groups * o * i entries.
    """

    b: Tensor
    a: Tensor
    shape: torch.Size

    @property
    def forming_pays(self) -> bool:
        """Whether t o i multiplications (and o i memory) cost less than t^2 (o + i)."""
        _, groups, t, o = self.b.shape
        i = self.a.shape[3]
        if groups * o * i > limit(MOST_FORMED, self.b) and t * t < o * i:
            return False
        return o * i <= GRAM_COST * t * (o + i)

    def settled(self) -> PerExample:
        """By whichever way is cheaper; what was formed lets go of its factors."""
        return Dense(self.formed()) if self.forming_pays else self

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """By Gram sums, a few examples at once."""
        _, groups, t, o = self.b.shape
        at_once = max(1, limit(GRAM_AT_ONCE, self.b) // (groups * t * max(t, o + self.a.shape[3])))
        parts = zip(torch.split(self.b, at_once), torch.split(self.a, at_once), strict=True)
        return torch.cat([_gram_norms(b, a, rounding) for b, a in parts])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One product over examples and positions together."""
        b = at_least_single(self.b)
        b = b * weights.to(b.dtype)[:, None, None, None]
        joined = _joined(b).transpose(1, 2) @ _joined(at_least_single(self.a))
        return joined.reshape(self.shape)

    def formed(self) -> Tensor:
        """One small product for each example and group."""
        gradients = product_of(self.b.transpose(2, 3), self.a)
        return gradients.reshape(len(self.b), *self.shape)

    def folded(self, rows: int) -> "PerExample":
        """The rows of a unit become positions."""
        if rows == 1:
            return self
        return OuterSum(_to_positions(self.b, rows), _to_positions(self.a, rows), self.shape)

    def as_outer_sum(self) -> "OuterSum":
        """Itself."""
        return self

    def without(self, broken: Tensor) -> "PerExample":
        """Zero both factors of the marked examples."""
        return OuterSum(zero_rows(self.b, broken), zero_rows(self.a, broken), self.shape)


def limit(limits: Mapping[str, int], values: Tensor) -> int:
    """The limit that holds on the device of `values`."""
    return limits.get(values.device.type, limits["cpu"])


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Matrix products and cuDNN's convolutions with or without TF32, whatever PyTorch is set to."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


def at_least_single(values: Tensor) -> Tensor:
    """Half precision to single; nothing else changes."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def half_bit(values: Tensor) -> float:
    """What one addition of such numbers may be off by, in single precision at the coarsest."""
    return torch.finfo(at_least_single(values.new_empty(0)).dtype).eps / 2


def product_of(b: Tensor, a: Tensor) -> Tensor:
    """The product of (n, groups, rows, columns) matrices, in single precision at the coarsest."""
    if b.dtype != a.dtype:
        b, a = at_least_single(b), at_least_single(a)
    if b.dtype != torch.bfloat16:
        return b @ a
    if b.device.type != "cuda":
        return b.float() @ a.float()
    flat: Tensor = torch.bmm(b.flatten(0, 1), a.flatten(0, 1), out_dtype=torch.float32)
    return flat.reshape(*b.shape[:3], a.shape[3])


def _gram_norms(b: Tensor, a: Tensor, rounding: Rounding) -> Tensor:
    """|sum_t b_t a_t^T|^2 = sum_ts (b_t.b_s)(a_t.a_s), no less than what cancellation allows."""
    additions = b.shape[2] * half_bit(b)
    b, a = b.double(), a.double()
    products = (b @ b.transpose(2, 3)) * (a @ a.transpose(2, 3))
    uncancelled = products.diagonal(dim1=2, dim2=3).sqrt().sum(2)  # S = sum_t |b_t| |a_t|
    squares = products.sum((2, 3))
    return safe_squares(squares, uncancelled, MOST_CANCELLATION, rounding, additions).sum(1)


def safe_squares(
    squares: Tensor,
    uncancelled: Tensor,
    most_cancellation: float,
    rounding: Rounding,
    additions: float,
) -> Tensor:
    """Squared norms of gradients that will be added up by other products than were measured.

    `uncancelled` is S; what rounding may add is in proportion to it, and to the `additions` behind
    one number, in half bits: of the product that adds up, and of the one that was measured unless
    it was exact.
    """
    norms = torch.maximum(squares.clamp_min(0).sqrt(), uncancelled / most_cancellation)
    return (norms + (rounding.sums + additions * rounding.additions) * uncancelled).square()


@final
@dataclass(frozen=True, eq=False)
class LookUp(PerExample):
    """Gradients of a table: row `indices[n, t]` of example n gets `gradients[n, t]`.

    All shapes are fixed by n and t, not by how many rows are touched: a step can be traced, and a
    GPU need not wait. Where `added_up`, an example's gradients for a row stand, added up, at the
    first position that holds its index, and zeros at the others.
    """

    indices: Tensor
    gradients: Tensor
    table_rows: int
    added_up: bool = False

    def settled(self) -> PerExample:
        """Added up, once: a second sum may be rounded another way than the one measured."""
        return self._settled

    @cached_property
    def _settled(self) -> "LookUp":
        if self.added_up:
            return self
        gradients = at_least_single(self.gradients)
        places = _by_example(_first_places(self.indices), self.indices.shape[1])
        sums = gradients.new_zeros(len(places), gradients.shape[2])
        sums.index_add_(0, places, gradients.flatten(0, 1))
        return LookUp(self.indices, sums.view_as(gradients), self.table_rows, added_up=True)

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """Of the added-up rows."""
        sums = self._settled.gradients
        norms: Tensor = torch.linalg.vector_norm(sums, dim=(1, 2), dtype=torch.float64)
        return norms.square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The added-up rows, weighted, into the table."""
        sums = self._settled.gradients
        weighted = weights.to(sums.dtype)[:, None, None] * sums
        table = sums.new_zeros(self.table_rows, sums.shape[2])
        return table.index_add_(0, self.indices.flatten(), weighted.flatten(0, 1))

    def formed(self) -> Tensor:
        """A whole table for each example."""
        sums = self._settled.gradients
        tables = sums.new_zeros(len(sums), self.table_rows, sums.shape[2])
        rows = _by_example(self.indices, self.table_rows)
        tables.flatten(0, 1).index_add_(0, rows, sums.flatten(0, 1))
        return tables

    def folded(self, rows: int) -> "PerExample":
        """The rows of a unit become positions."""
        if rows == 1:
            return self
        indices = _by_unit(self.indices, rows).flatten(1, 2)
        return LookUp(indices, _by_unit(self.gradients, rows).flatten(1, 2), self.table_rows)

    def as_outer_sum(self) -> OuterSum:
        """With unit vectors for b: to be added to the gradients of a product with the table."""
        b = F.one_hot(self.indices, self.table_rows).to(self.gradients.dtype)
        shape = torch.Size((self.table_rows, self.gradients.shape[2]))
        return OuterSum(b[:, None], self.gradients[:, None], shape)

    def without(self, broken: Tensor) -> "PerExample":
        """Zero the marked examples; the other sums stay those that were measured."""
        settled = self._settled
        return replace(settled, gradients=zero_rows(settled.gradients, broken))


def _first_places(indices: Tensor) -> Tensor:
    """For each position of an example, (n, t), the first that holds the same index.

    Sorted, equal indices are runs, the first of each in front.
    """
    ordered, order = indices.sort(dim=1, stable=True)
    starts = ordered != ordered.roll(1, 1)
    positions = torch.arange(indices.shape[1], device=indices.device)
    first = order.gather(1, (starts * positions).cummax(1).values)  # of the run so far
    return torch.empty_like(order).scatter(1, order, first)


def _by_example(places: Tensor, count: int) -> Tensor:
    """Places among `count` of one example, (n, t), as places among those of all, (n * t)."""
    examples = torch.arange(len(places), device=places.device)
    return (examples[:, None] * count + places).flatten()


@final
@dataclass(frozen=True, eq=False)
class Stacked(PerExample):
    """Parts of one parameter below one another (along its first axis)."""

    parts: tuple[PerExample, ...]

    def squared_norms(self, rounding: Rounding = FLOAT32) -> Tensor:
        """Squares add up."""
        return torch.stack([part.squared_norms(rounding) for part in self.parts]).sum(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Each part's."""
        return torch.cat([part.weighted_sum(weights) for part in self.parts])

    def formed(self) -> Tensor:
        """Each part's."""
        return torch.cat([part.formed() for part in self.parts], dim=1)

    def folded(self, rows: int) -> "PerExample":
        """Each part's."""
        return Stacked(tuple(part.folded(rows) for part in self.parts))

    @property
    def held(self) -> int:
        """All parts'."""
        return sum(part.held for part in self.parts)

    def settled(self) -> PerExample:
        """Each part's."""
        return Stacked(tuple(part.settled() for part in self.parts))

    def without(self, broken: Tensor) -> "PerExample":
        """Each part's."""
        return Stacked(tuple(part.without(broken) for part in self.parts))


def sum_of(parts: Sequence[PerExample]) -> PerExample:
    """The gradient of a parameter that is used several times: one, and its norm needs the sum."""
    if len(parts) == 1:
        return parts[0]
    tables = [part for part in parts if isinstance(part, LookUp)]
    if len(tables) == len(parts):
        indices = torch.cat([part.indices for part in tables], dim=1)
        gradients = torch.cat([part.gradients for part in tables], dim=1)
        return LookUp(indices, gradients, tables[0].table_rows)
    stacks = [part.parts for part in parts if isinstance(part, Stacked)]
    if len(stacks) == len(parts):
        return Stacked(tuple(sum_of(level) for level in zip(*stacks, strict=True)))
    outer = [p.as_outer_sum() for p in parts if isinstance(p, RankOne | OuterSum | LookUp)]
    if len(outer) == len(parts) and len({part.b.shape[1] for part in outer}) == 1:
        b = torch.cat([part.b for part in outer], dim=2)
        return OuterSum(b, torch.cat([part.a for part in outer], dim=2), outer[0].shape)
    return Dense(torch.stack([part.formed() for part in parts]).sum(0))


def _by_unit(rows: Tensor, count: int) -> Tensor:
    return rows.reshape(-1, count, *rows.shape[1:])


def _to_positions(rows: Tensor, count: int) -> Tensor:
    """(n, groups, t, k) to (n / count, groups, count * t, k)."""
    return _by_unit(rows, count).transpose(1, 2).flatten(2, 3)


def _joined(values: Tensor) -> Tensor:
    """(n, groups, t, k) to (groups, n * t, k)."""
    return values.transpose(0, 1).flatten(1, 2)


def zero_rows(values: Tensor, broken: Tensor) -> Tensor:
    """`values` with zeros in the marked rows, whatever stood there."""
    mask = broken.reshape(-1, *[1] * (values.dim() - 1))
    return torch.where(mask, torch.zeros_like(values), values)
