"""Which units a step sees, and what that does to the data.

The sampler that runs is the one the accountant assumes: both come from one object. Let every step
add N(0, (zC)^2 I) to a sum in which one unit moves at most C. Over T steps, in cycles of c steps:

| sampler        | a unit joins                                | event                            |
|----------------|---------------------------------------------|----------------------------------|
| poisson        | every step, with probability q              | T x Poisson-sampled(q)           |
| cyclic-poisson | one step in c, with probability c q         | ceil(T/c) x Poisson-sampled(c q) |
| fixed-batches  | one step in c, always                       | ceil(T/c) x Gaussian(z)          |
| shuffled       | one step of each epoch of c, in a new order | ceil(T/c) x Gaussian(z)          |

Proof notes. Poisson: see `accounting`. Cyclic Poisson and fixed batches: every unit is put into one
of c groups by a draw of its own, so the others' groups say nothing about it and its presence moves
nobody; given the groups, all steps but those of its own group are the same with and without it,
and there are at most ceil(T/c) of those. Steps of the group that sample with probability c q are
Poisson-sampled Gaussians, whatever the other steps published in between. (Replace-one neighbours:
the unit that comes takes the place, and so the group, of the one that goes.)

Shuffled: given the order, one unit sits in one step of each epoch, so without any amplification an
epoch costs one Gaussian. This needs both data sets to have the same number of units: one unit more
moves every later unit to another batch. So it is stated for zero-out and replace-one neighbours,
never for add/remove, and never as Poisson: nothing proves that a shuffle hides as much as
independent draws, and audits found leaks several times the epsilon accounted so.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final
from weakref import WeakKeyDictionary

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent
from privet.privacy.randomness import SecretStream


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """`rate` is the expected share of all units in a step; a constant of the plan."""

    rate: float

    name: ClassVar[str]
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    redoable: ClassVar[bool] = False
    """Whether a lost step may be drawn anew, as one step more: not where a unit has its turn."""

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(
                "bad sampling rate",
                got=self.rate,
                expected="0 < rate <= 1",
                fix="choose an expected batch of at most the nominal size",
            )

    @property
    def cycle(self) -> int:
        """A unit joins at most one of the steps of a cycle; 1 where it may join every step."""
        return 1

    @property
    def turn_rate(self) -> float:
        """The probability that a unit joins a step in which it has its turn."""
        return self.rate

    @abstractmethod
    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """Indices of the units in `step`, ascending; repeatable for the same stream and step."""

    def turns(self, steps: int) -> int:
        """In how many of the first `steps` steps one unit can take part."""
        return math.ceil(steps / self.cycle)

    def turn_event(self, noise_multiplier: float) -> DpEvent:
        """What one turn does to a unit."""
        gaussian = dp.GaussianDpEvent(noise_multiplier)
        rate = self.turn_rate
        return gaussian if rate == 1.0 else dp.PoissonSampledDpEvent(rate, gaussian)

    def event(self, noise_multiplier: float, turns: int) -> DpEvent:
        """What that many turns do to the data."""
        return dp.SelfComposedDpEvent(self.turn_event(noise_multiplier), turns)


@final
@dataclass(frozen=True, kw_only=True)
class PoissonSampler(Sampler):
    """Every unit joins every step independently, with probability `rate`.

    Guarantee: inclusion of one unit is independent of all others and of their number, which
    is exactly the hypothesis of `PoissonSampledDpEvent`. Batch sizes vary; a batch may be empty.
    Cost: O(n) random words a step.
    """

    name = "poisson"
    redoable = True

    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """Indices of the units in `step`."""
        return np.flatnonzero(_joins(n, self.rate, step, stream))

    def turn_event(self, noise_multiplier: float) -> DpEvent:
        """A Poisson-sampled Gaussian, also where every unit joins."""
        return dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class _InGroups(Sampler):
    """Units are dealt into `groups` once; step t belongs to group t mod `groups`."""

    groups: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.groups, int) and self.groups >= 1):
            raise InputError(
                "bad number of groups", got=self.groups, expected="a whole number, at least 1"
            )
        if self.rate * self.groups > 1 + 1e-9:
            raise InputError(
                "one step asks for more than a group holds",
                got=f"{self.rate:g} of all units from each of {self.groups} groups",
                expected=f"at most 1/{self.groups}",
                fix="choose a smaller batch, or fewer groups",
            )

    @property
    def cycle(self) -> int:
        """As many steps as groups."""
        return self.groups

    @property
    def turn_rate(self) -> float:
        """Of its own group, a step takes `groups` times the rate."""
        return min(1.0, self.rate * self.groups)

    def _members(self, n: int, step: int, stream: SecretStream) -> NDArray[np.bool_]:
        u = stream.uniform(n, purpose="groups", step=0)
        mine: NDArray[np.bool_] = np.floor(u * self.groups) == step % self.groups
        return mine


@final
@dataclass(frozen=True, kw_only=True)
class CyclicPoissonSampler(_InGroups):
    """Step t draws a Poisson sample from group t mod `groups` alone: what banded noise needs."""

    name = "cyclic-poisson"

    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """Members of the group whose turn it is that also win their own draw."""
        members = self._members(n, step, stream)
        return np.flatnonzero(members & _joins(n, self.turn_rate, step, stream))


@final
@dataclass(frozen=True, kw_only=True)
class FixedBatchSampler(_InGroups):
    """Disjoint batches, dealt once and used in turn; every unit once in each cycle."""

    name = "fixed-batches"

    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """The whole group whose turn it is."""
        return np.flatnonzero(self._members(n, step, stream))

    @property
    def turn_rate(self) -> float:
        """A turn is always taken."""
        return 1.0


@final
@dataclass(frozen=True, kw_only=True)
class ShuffledSampler(_InGroups):
    """A new random order each epoch, cut into `groups` batches of equal size (to one unit)."""

    name = "shuffled"
    adjacencies = (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)

    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """The piece of this epoch's order that belongs to the step."""
        epoch, piece = divmod(step, self.groups)
        return np.sort(np.array_split(_order(stream, n, epoch), self.groups)[piece])

    def pieces(self, n: int, *, epoch: int, stream: SecretStream) -> list[NDArray[np.int64]]:
        """The units of every step of an epoch, for loops that send them to a device at once."""
        return [np.sort(piece) for piece in np.array_split(_order(stream, n, epoch), self.groups)]

    @property
    def turn_rate(self) -> float:
        """A turn is always taken."""
        return 1.0


SAMPLERS: Final = (PoissonSampler.name, CyclicPoissonSampler.name, FixedBatchSampler.name,
                   ShuffledSampler.name)  # fmt: skip


def make_sampler(name: str, *, rate: float, cycle: int = 1) -> Sampler:
    """A sampler by name; `cycle` is the number of groups where there are any."""
    match name:
        case PoissonSampler.name:
            if cycle != 1:
                raise InputError(
                    "Poisson sampling knows no groups", got=f"{cycle} groups", expected="1"
                )
            return PoissonSampler(rate=rate)
        case CyclicPoissonSampler.name:
            return CyclicPoissonSampler(rate=rate, groups=cycle)
        case FixedBatchSampler.name:
            return FixedBatchSampler(rate=rate, groups=cycle)
        case ShuffledSampler.name:
            return ShuffledSampler(rate=rate, groups=cycle)
    raise InputError("unknown sampler", got=f"'{name}'", expected=f"one of {', '.join(SAMPLERS)}")


def sampler_for(
    name: str, *, batch: int, nominal_size: int, cycle: int | None = None, bands: int = 0
) -> Sampler:
    """The sampler whose steps hold `batch` units, expected, of `nominal_size`.

    `cycle` defaults to the number of bands of the noise for cyclic Poisson sampling, and to the
    number of batches in the nominal data otherwise. Disjoint batches follow from the cycle alone.
    """
    rate = batch / nominal_size
    if name == PoissonSampler.name:
        return make_sampler(name, rate=rate, cycle=cycle or 1)
    in_data = max(1, nominal_size // batch)
    if name == CyclicPoissonSampler.name:
        return make_sampler(name, rate=rate, cycle=cycle or bands or in_data)
    cycle = cycle or in_data
    return make_sampler(name, rate=1.0 / cycle, cycle=cycle)


def sampler_of(mechanism: Mapping[str, Any]) -> Sampler:
    """The sampler that a trust card states."""
    return make_sampler(
        mechanism["sampler"], rate=mechanism["sampling_rate"], cycle=mechanism.get("cycle", 1)
    )


# All steps of an epoch ask for one order, which takes longer than a step. The latest of each stream
# is kept, and goes with the stream: nothing secret outlives a run here.
_orders: WeakKeyDictionary[SecretStream, tuple[int, int, NDArray[np.int64]]] = WeakKeyDictionary()


def _order(stream: SecretStream, n: int, epoch: int) -> NDArray[np.int64]:
    kept = _orders.get(stream)
    if kept is None or kept[:2] != (n, epoch):
        u = stream.uniform(n, purpose="order", step=epoch)
        kept = _orders[stream] = (n, epoch, np.argsort(u, kind="stable"))
    return kept[2]


def _joins(n: int, rate: float, step: int, stream: SecretStream) -> NDArray[np.bool_]:
    # u is a multiple of 2**-53 below 1, so P(u < rate) is rate rounded up to 2**-53.
    return stream.uniform(n, purpose="sampling", step=step) < rate
