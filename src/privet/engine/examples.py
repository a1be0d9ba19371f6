"""Private records on a device, grouped by unit, scaled by public bounds as they are used."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError

UNIT: Final = Bounds(low=(0.0,), high=(1.0,))
CONTRIBUTION: Final = 8  # records of one unit in a step, unless another number is asked for
_BLOCK: Final = 1024  # examples sent through a frozen front at a time


class Augmentation(Protocol):
    """Several random views of each example, unit-major; nothing of one enters another."""

    @property
    def views(self) -> int:
        """How many of each."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(n, *shape) -> (n * views, *shape)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What some units contribute: `views` rows each, unit-major, and what each row counts."""

    x: Tensor
    y: Tensor
    views: int = 1
    weights: Tensor | None = None  # None: all rows of a unit count alike

    def seen_through(
        self, augmentation: Augmentation, generator: torch.Generator, block: int | None = None
    ) -> "Rows":
        """Each row replaced by several views of it; see `in_blocks`."""
        seen = self.in_blocks(lambda x, _: augmentation(x, generator), block)
        return self.replaced_by(seen, augmentation.views)

    def in_blocks(self, make: Callable[[Tensor, Tensor], Tensor], block: int | None) -> Tensor:
        """What `make` makes of all rows, as many of each, given `block` of them at a time.

        The last block is filled up with rows of zeros, whose results are dropped. So what one call
        makes of a row cannot depend on how many rows there are: their number is private. (How many
        calls there are is, too: `make` must keep nothing between them.) With None it gets them all
        at once, as they are.
        """
        if block is None or not len(self.x):
            return make(self.x, self.y)
        rows, short = len(self.x), -len(self.x) % block
        x = torch.cat([self.x, self.x.new_zeros(short, *self.x.shape[1:])])
        y = torch.cat([self.y, self.y.new_zeros(short)])
        made = torch.cat(list(map(make, torch.split(x, block), torch.split(y, block))))
        return made[: rows * (len(made) // len(x))]

    def replaced_by(self, views: Tensor, k: int) -> "Rows":
        """Each row replaced by `k` given views of it, which count alike."""
        weights = self.weights
        return Rows(
            x=views,
            y=self.y.repeat_interleave(k),
            views=self.views * k,
            weights=None if weights is None else weights.repeat_interleave(k) / k,
        )

    def shared_out(self, made: Tensor, shares: tuple[float, ...]) -> "Rows":
        """Each row replaced by given ones, which count these shares of what it counted."""
        k = len(shares)
        if k == 1:
            return replace(self, x=made)
        own = self.weights
        if own is None:
            own = torch.full(self.y.shape, 1.0 / self.views, device=self.y.device)
        return Rows(
            x=made,
            y=self.y.repeat_interleave(k),
            views=self.views * k,
            weights=torch.outer(own, own.new_tensor(shares)).flatten(),
        )


class Examples:
    """The records of one split as tensors; integers stay small until a batch is asked for.

    A unit is one record, or all records of one user, of which a step uses at most `contribution`.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        bounds: Bounds | None,
        device: torch.device,
        *,
        grouping: "Grouping | None" = None,
        views: int = 1,
    ) -> None:
        self._x = x.to(device)
        self._y = y.to(device)
        self._bounds = bounds
        self._grouping = grouping
        self.views = views  # of each record, on the second axis of x where there are several
        if bounds is not None:
            shape = (1, -1) if len(bounds.low) > 1 else (1,)
            low = torch.tensor(bounds.low, dtype=torch.float32, device=device)
            high = torch.tensor(bounds.high, dtype=torch.float32, device=device)
            self._low, self._width = low.reshape(shape), (high - low).reshape(shape)

    @classmethod
    def of(
        cls,
        split: Split,
        bounds: Bounds,
        device: torch.device,
        *,
        contribution: int = CONTRIBUTION,
    ) -> Self:
        """From arrays; `contribution` is the most records of one unit that a step uses."""
        if split.x.dtype == np.uint8:
            x: NDArray[Any] = np.ascontiguousarray(split.x)
        else:  # scaled before it is rounded to single precision, as a release scales its inputs
            x, bounds = bounds.clamp_and_scale(split.x), UNIT
        grouping = None
        if split.units is not None:
            grouping = Grouping.of(torch.from_numpy(split.units).to(device), contribution)
        return cls(
            torch.from_numpy(x), torch.from_numpy(split.y), bounds, device, grouping=grouping
        )

    def __len__(self) -> int:
        """The number of units."""
        return len(self._y) if self._grouping is None else len(self._grouping.counts)

    @property
    def contribution(self) -> int:
        """The most records of one unit that a step uses."""
        return 1 if self._grouping is None else self._grouping.contribution

    def rows(self, units: Tensor, generator: torch.Generator) -> Rows:
        """What the chosen units contribute; `generator` chooses among a unit's many records."""
        units = units.to(self._y.device)
        if self._grouping is None:
            rows = Rows(x=self._scaled(units), y=self._y[units])
        else:
            records, weights = self._grouping.records(units, generator)
            rows = Rows(
                x=self._scaled(records),
                y=self._y[records],
                views=self._grouping.contribution,
                weights=weights,
            )
        return rows if self.views == 1 else rows.replaced_by(rows.x.flatten(0, 1), self.views)

    def seen_by(
        self,
        front: nn.Module,
        augmentation: Augmentation | None = None,
        generator: torch.Generator | None = None,
    ) -> "Examples":
        """The same units, their records sent through a frozen network once and for all.

        With an augmentation, so many views of each record are drawn now and used in every step.
        """
        views = 1 if augmentation is None else augmentation.views

        def seen(x: Tensor, _: Tensor) -> Tensor:
            if augmentation is not None and generator is not None:
                x = augmentation(x, generator)
            features: Tensor = front(x)
            return features

        parts = []
        with torch.no_grad():
            for records in torch.split(torch.arange(len(self._y), device=self._y.device), _BLOCK):
                rows = Rows(x=self._scaled(records), y=self._y[records])
                made = rows.in_blocks(seen, _BLOCK)
                parts.append(made if views == 1 else made.reshape(-1, views, *made.shape[1:]))
        return Examples(
            torch.cat(parts),
            self._y,
            None,
            self._y.device,
            grouping=self._grouping,
            views=views,
        )

    def _scaled(self, records: Tensor) -> Tensor:
        chosen = self._x[records]
        if self._bounds is None:  # what a front made: numbers, or tokens
            return chosen
        return ((chosen.float() - self._low) / self._width).clamp(0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """Which records belong to which unit: `order` lists them unit by unit from `starts`."""

    order: Tensor
    starts: Tensor
    counts: Tensor
    contribution: int

    @classmethod
    def of(cls, unit_of_record: Tensor, contribution: int) -> Self:
        """From one unit number for each record; every number from 0 on has a record."""
        if contribution < 1:
            raise InputError("bad contribution", got=contribution, expected="at least 1 record")
        counts = torch.bincount(unit_of_record)
        return cls(
            order=torch.argsort(unit_of_record, stable=True),
            starts=counts.cumsum(0) - counts,
            counts=counts,
            contribution=contribution,
        )

    def records(self, units: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """`contribution` records for each unit, unit-major, and their weights.

        A unit with more records gives a random choice of them, drawn anew each time; one with
        fewer repeats its first with weight zero. The weights of a unit add up to one: its own
        mean, whatever others have.
        """
        counts, k = self.counts[units], self.contribution
        column = torch.arange(k, device=units.device)
        used = column < counts[:, None]
        chosen = torch.where(
            counts[:, None] > k, self._choice(counts, generator), torch.where(used, column, 0)
        )
        weights = used / counts.clamp_max(k)[:, None]
        return self.order[self.starts[units][:, None] + chosen].flatten(), weights.flatten()

    def _choice(self, counts: Tensor, generator: torch.Generator) -> Tensor:
        """`contribution` of the places 0..count-1 for each count above it, all sets alike.

        Floyd's way (Bentley and Floyd, 1987): in turn j a place up to `last`, or `last` itself if
        that one is taken. Memory and draws do not depend on how many records anyone has.
        """
        k = self.contribution
        shape = (len(counts), k)
        draws = torch.rand(shape, generator=generator, device=counts.device, dtype=torch.float64)
        chosen = torch.zeros(shape, dtype=torch.int64, device=counts.device)
        for j in range(k):
            last = counts - k + j
            place = (draws[:, j] * (last + 1)).long()
            taken = (chosen[:, :j] == place[:, None]).any(dim=1)
            chosen[:, j] = torch.where(taken, last, place)
        return chosen


def made_up_batch(data: Dataset, device: torch.device, n: int = 4) -> tuple[Tensor, Tensor]:
    """Inputs and labels that have the data's public shape and nothing else of it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, *data.shape, generator=generator)
    y = torch.randint(0, len(data.classes) or 1, (n,), generator=generator)
    return x.to(device), y.to(device)
