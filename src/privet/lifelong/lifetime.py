"""What a stream of tasks does to one unit over its whole lifetime.

| spec      | here                  | meaning                                                   |
|-----------|-----------------------|-----------------------------------------------------------|
| q_j, T_j  | `Own.rate`, `.steps`  | of the steps of task j on its own records                 |
| sigma_D   | `Own.multiplier`      | of their noise, in clip norms                             |
| r_i       | `Recall.rate_at(i)`   | at which task i reads a unit that is in the memory        |
| T_i       | `Recall.steps`        | in how many of its steps, at most                         |
| sigma_M   | `Recall.multiplier`   | of the noise on what is read                              |
| p         | `Recall.admission`    | chance of a unit to be kept for the memory                |
| m         | `Recall.horizon`      | tasks for which the memory is kept; then it is closed     |

Guarantee. Add or remove one unit of the stream. Who sees every iterate of every task, hence every
version, for all tasks up to the horizon and, without reads, for any number beyond, learns no more
than the event of its lifetime accounts:

- disjoint, a unit of task j:  own_j x Coin_p( reads_(j+1) x ... x reads_H )
- shared, a unit of any tasks: own_1 x ... x own_H x Coin_p( reads_2 x ... x reads_H )

Proof. (1) A task before the unit's first does not depend on it. (2) Each step of task i releases
two sums with noise of their own: one over a Poisson sample of its records, one over a Poisson
sample of the units in the memory; each unit adds at most the clip norm to either (its records in
the memory count as one, by the engine's units). So a step is dominated by a sampled Gaussian pair
for each of the two, given all that was released before. (3) Whether a unit is in the memory hangs
on one coin of its own, tossed once for its lifetime and independent of all else; given the coin,
pairs compose. Without the coin's outcome the pair is the mixture of the composed one and nothing
(`tradeoff.sampled_once`); own steps do not depend on the coin, and compose with it. (4) Projection,
averaging, penalties and optimisers see released sums alone. (5) Rates, numbers of steps, noise and
normalisers follow from declared sizes. A task that has fewer steps than the plan reads less: less
is revealed. For disjoint streams the figure is the largest over the tasks.

The rate halves whenever the number of tasks behind doubles: the batch that is read stays about as
large while the memory grows. The Renyi divergence of a read is about proportional to the rate's
square, so that of k reads in each of 1, 2, 4, ... tasks adds up to less than twice that of the
first: the cost stays bounded for every number of tasks. In a shared stream the memory does not
grow, and neither does the rate fall.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Self, final

import dp_accounting as dp

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, epsilon_of, sampled_gaussian


@final
@dataclass(frozen=True, kw_only=True)
class Own:
    """The steps of a task on its own records."""

    rate: float
    steps: int
    multiplier: float

    @property
    def event(self) -> DpEvent:
        """What they do to a unit of the task."""
        return sampled_gaussian(self.multiplier, self.rate, self.steps)


@final
@dataclass(frozen=True, kw_only=True)
class Recall:
    """How later tasks read the memory; fixed before the first task, for all of them.

    `first_rate` is that of the second task, the first that has a memory.
    """

    first_rate: float
    steps: int
    multiplier: float
    admission: float
    horizon: int
    shared: bool

    def __post_init__(self) -> None:
        for name in ("first_rate", "admission"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(
                    f"bad {name}", got=getattr(self, name), expected="above 0, at most 1"
                )
        if self.horizon < 2:
            raise InputError(
                "a memory needs a later task that reads it",
                got=f"horizon {self.horizon}",
                expected="at least 2",
            )

    def rate_at(self, task: int) -> float:
        """At which task number `task` (from 1) reads; 0 where it reads nothing."""
        if not 2 <= task <= self.horizon:
            return 0.0
        if self.shared:
            return self.first_rate
        return self.first_rate / 2.0 ** math.floor(math.log2(task - 1))

    def reads(self, first: int, last: int) -> DpEvent | None:
        """What tasks `first` to `last` do to a unit that is in the memory; None for nothing."""
        rates = (self.rate_at(task) for task in range(first, last + 1))
        parts = [
            sampled_gaussian(self.multiplier, rate, self.steps * len(list(tasks)))
            for rate, tasks in groupby(rate for rate in rates if rate > 0)
        ]
        return dp.ComposedDpEvent(parts) if parts else None

    def behind_coin(self, first: int, last: int) -> DpEvent | None:
        """The same for a unit of which nobody knows whether it is in the memory."""
        reads = self.reads(first, last)
        if reads is None or self.admission == 1:
            return reads
        return dp.PoissonSampledDpEvent(self.admission, reads)


@final
@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """The tasks that were learned so far, and the plan for those to come.

    `planned` has all tasks of a shared stream, whose units pay for every one of them, from the
    first version on; it is empty where tasks are disjoint.
    """

    tasks: tuple[Own, ...]
    recall: Recall | None
    shared: bool
    planned: tuple[Own, ...] = ()

    def after(self, own: Own) -> Self:
        """With one task more."""
        return replace(self, tasks=(*self.tasks, own))

    def event(self, task: int, *, known: bool = False, until: int | None = None) -> DpEvent:
        """What happens to a unit of a task; of a shared stream, to one that is in every task.

        Args:
            task: its number, from 1.
            known: whether it is known to be in the memory: the bound for a unit that was put there.
            until: the last task that is counted; default: all that the plan allows.
        """
        all_of_them = (*self.tasks, *self.planned[len(self.tasks) :])
        own = all_of_them if self.shared else self.tasks[task - 1 : task]
        parts = [one.event for one in own]
        if self.recall is not None:
            first = 2 if self.shared else task + 1
            last = self.recall.horizon if until is None else until
            read = self.recall.reads if known else self.recall.behind_coin
            later = read(first, last)
            parts += [] if later is None else [later]
        return parts[0] if len(parts) == 1 else dp.ComposedDpEvent(parts)

    def candidates(self) -> Iterator[int]:
        """Tasks one of which has the costliest lifetime.

        Of tasks with the same steps the first: what is read of it is read of a later one, less
        what came before.
        """
        if self.shared:
            yield len(self.tasks)
            return
        seen: set[Own] = set()
        for number, own in enumerate(self.tasks, start=1):
            if own not in seen:
                seen.add(own)
                yield number

    def worst(self, delta: float) -> tuple[int, DpEvent]:
        """The task whose units pay most, and what they pay."""
        tasks = list(self.candidates())
        if len(tasks) > 1:
            tasks.sort(key=lambda task: self.epsilon(task, delta))
        return tasks[-1], self.event(tasks[-1])

    def epsilon(self, task: int, delta: float, **how: Any) -> float:
        """Of the lifetime of a unit, add/remove neighbours; `how` as in `event`, and `interval`."""
        interval = {"interval": how.pop("interval")} if "interval" in how else {}
        return epsilon_of(self.event(task, **how), delta, Adjacency.ADD_REMOVE, **interval)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; a malformed record is bad input."""
        try:
            recall = record["recall"]
            return cls(
                tasks=tuple(Own(**own) for own in record["tasks"]),
                recall=None if recall is None else Recall(**recall),
                shared=bool(record["shared"]),
                planned=tuple(Own(**own) for own in record["planned"]),
            )
        except (KeyError, TypeError) as error:
            raise InputError("malformed record of a lifetime", got=repr(error)) from None
