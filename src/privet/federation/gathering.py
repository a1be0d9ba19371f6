"""How the updates of one step become one change: as they come, or all together at its end.

A mean forgets every update as soon as it is added, so memory does not grow with the number of
clients. A rule that must compare updates with one another keeps them all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor

from privet.errors import InputError

Combine = Callable[[Tensor], Tensor]
"""From the updates of a step, one a row, to one change."""


class Gathering(ABC):
    """The updates of one step, while they come in."""

    streaming: bool
    """Whether an update is forgotten once it is added."""

    def __init__(self) -> None:
        self.count = 0

    @abstractmethod
    def add(self, change: Tensor, weight: float) -> None:
        """One update, with its weight."""

    @abstractmethod
    def result(self) -> Tensor:
        """The change that they make together."""

    @abstractmethod
    def clear(self) -> None:
        """Forget them; the next step begins."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a killed process needs to go on."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


@final
class StreamingMean(Gathering):
    """sum w_i Delta_i / divisor, added up in double precision in the order of arrival.

    Without a divisor it is the sum of the weights, as in FLSys: the mean of whoever came. A private
    sum needs a divisor that does not depend on who came.
    """

    streaming = True

    def __init__(self, size: int, *, divisor: float | None = None) -> None:
        super().__init__()
        if divisor is not None and not 0 < divisor < float("inf"):
            raise InputError("bad divisor", got=divisor, expected="a positive, finite number")
        self.divisor = divisor
        self.total = torch.zeros(size, dtype=torch.float64)
        self.weight = 0.0

    def add(self, change: Tensor, weight: float) -> None:
        """One update, forgotten at once."""
        self.total = self.total.to(change.device)  # updates of many clients need not travel
        self.total.add_(change.detach(), alpha=weight)
        self.weight += weight
        self.count += 1

    def add_sum(self, total: Tensor, count: int) -> None:
        """The sum of so many updates, each of weight 1."""
        self.total = self.total.to(total.device)
        self.total.add_(total.detach())
        self.weight += count
        self.count += count

    def result(self) -> Tensor:
        """The mean; zero if nobody came."""
        divisor = self.divisor if self.divisor is not None else self.weight
        return self.total / divisor if divisor else self.total.clone()

    def clear(self) -> None:
        """Begin again at zero."""
        self.total.zero_()
        self.weight, self.count = 0.0, 0

    def state(self) -> dict[str, Any]:
        """The sum so far."""
        return {"total": self.total.clone(), "weight": self.weight, "count": self.count}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with a sum."""
        self.total.copy_(state["total"])
        self.weight, self.count = float(state["weight"]), int(state["count"])


@final
class Kept(Gathering):
    """All updates of a step, k vectors of memory, combined at its end. Weights have no say."""

    streaming = False

    def __init__(self, combine: Combine) -> None:
        super().__init__()
        self.combine = combine
        self.changes: list[Tensor] = []

    def add(self, change: Tensor, weight: float) -> None:
        """One more row."""
        self.changes.append(change.detach().clone())
        self.count += 1

    def result(self) -> Tensor:
        """What the rule makes of all rows."""
        here = self.changes[-1].device  # rows of before a restart lie elsewhere
        return self.combine(torch.stack([row.to(here) for row in self.changes])).double()

    def clear(self) -> None:
        """Forget all rows."""
        self.changes, self.count = [], 0

    def state(self) -> dict[str, Any]:
        """The rows."""
        return {"changes": [change.clone() for change in self.changes]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with these rows."""
        self.changes = [change.clone() for change in state["changes"]]
        self.count = len(self.changes)
