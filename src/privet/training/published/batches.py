"""Fixed disjoint batches, and which of them a step uses: Algorithms A and B.

| papers   | here          | meaning                                                    |
|----------|---------------|------------------------------------------------------------|
| B_1, ... | `Dealt`       | batches of m records each, dealt once; the rest is unused  |
| A        | `InTurn`      | batch t is benign, batch t + 1 the source of attacks       |
| B        | `ByTrainers`  | local trainer i holds a pair of fixed roles                |
| script N | `trainers`    | trainers that a step picks, at random                      |
| script M | `shards`      | parts of a pair, whose gradients are averaged              |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.randomness import SecretStream
from privet.privacy.sampling import Sampler

Indices = NDArray[np.int64]
Pair = tuple[Indices, Indices]
"""Records that stay benign, and records that adversarial examples are made of."""


@final
@dataclass(frozen=True, kw_only=True)
class Dealt(Sampler):
    """Batches of exactly `batch` records, dealt once in an order that the stream decides."""

    batch: int
    groups: int

    name = "fixed-batches"
    adjacencies = (Adjacency.REPLACE_ONE,)

    @classmethod
    def of(cls, nominal_size: int, batch: int) -> "Dealt":
        """As many as the declared size holds: at least two, since one is attacked."""
        groups = nominal_size // batch
        if groups < 2:
            raise InputError(
                "a batch for benign and another for adversarial examples is needed",
                got=f"batches of {batch} of {nominal_size} records",
                fix=f"--batch at most {nominal_size // 2}",
            )
        return cls(rate=batch / nominal_size, batch=batch, groups=groups)

    @property
    def cycle(self) -> int:
        """As many steps as batches."""
        return self.groups

    @property
    def turn_rate(self) -> float:
        """A turn is always taken."""
        return 1.0

    def batches(self, n: int, stream: SecretStream) -> Indices:
        """All, one in each row."""
        if n < self.batch * self.groups:
            raise InputError(
                "fewer records than were declared",
                got=n,
                expected=f"{self.groups} batches of {self.batch}",
                fix="declare the size that the data has",
            )
        order = np.argsort(stream.uniform(n, purpose="order", step=0), kind="stable")
        return order[: self.batch * self.groups].reshape(self.groups, self.batch)

    def draw(self, n: int, *, step: int, stream: SecretStream) -> Indices:
        """The batch whose turn it is, ascending."""
        return np.sort(self.batches(n, stream)[step % self.groups])


class Pairing(Protocol):
    """Which batches a step uses; a function of the step and of public draws."""

    @property
    def parts(self) -> int:
        """Pairs in a step."""

    @property
    def each_epoch(self) -> float:
        """Steps in which every benign batch is used once, on average."""

    def pairs(self, batches: Indices, step: int, stream: SecretStream) -> Sequence[Pair]:
        """Whose gradients the step averages."""


@final
@dataclass(frozen=True, kw_only=True)
class InTurn:
    """Algorithm A: a batch is benign in one step, and the source of attacks in the one before."""

    groups: int

    @property
    def parts(self) -> int:
        """One."""
        return 1

    @property
    def each_epoch(self) -> float:
        """One step a batch."""
        return float(self.groups)

    def pairs(self, batches: Indices, step: int, stream: SecretStream) -> Sequence[Pair]:
        """The batch whose turn it is, and the next."""
        return [(batches[step % len(batches)], batches[(step + 1) % len(batches)])]


@final
@dataclass(frozen=True, kw_only=True)
class ByTrainers:
    """Algorithm B: some of groups / 2 local trainers, each with its own two batches."""

    groups: int
    trainers: int
    shards: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.trainers <= self.groups // 2:
            raise InputError(
                "bad number of trainers in a step",
                got=self.trainers,
                expected=f"1 to {self.groups // 2}: each holds two of {self.groups} batches",
                fix="fewer --trainers, or a smaller --batch",
            )

    @property
    def parts(self) -> int:
        """Shards of all that are picked."""
        return self.trainers * self.shards

    @property
    def each_epoch(self) -> float:
        """So many of the trainers in a step."""
        return (self.groups // 2) / self.trainers

    def pairs(self, batches: Indices, step: int, stream: SecretStream) -> Sequence[Pair]:
        """The parts of the picked trainers' pairs."""
        luck = stream.uniform(self.groups // 2, purpose="trainers", step=step)
        picked = np.sort(np.argsort(luck, kind="stable")[: self.trainers])
        return [part for i in picked for part in self._shared(batches[2 * i], batches[2 * i + 1])]

    def _shared(self, benign: Indices, source: Indices) -> list[Pair]:
        parts = zip(
            np.array_split(benign, self.shards), np.array_split(source, self.shards), strict=True
        )
        return list(parts)
