"""Which phones can train at a moment of the virtual clock, and which begin to when.

The stretches of all phones lie in one row, in the order in which they begin; the clock passes each
of them once. So a moment costs what begins in it, not a look at every phone.
"""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.federation.traces import Phone

NEVER: Final = -np.inf


@final
class Availability:
    """The stretches of phones, read from front to back.

    `until` says of each phone when the stretch ends in which it is, or was last.
    """

    def __init__(self, phones: Sequence[Phone]) -> None:
        lengths = np.fromiter((len(phone.stretches) for phone in phones), np.int64, len(phones))
        pairs = [pair for phone in phones for pair in phone.stretches]
        times = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        self._order = np.argsort(times[:, 0], kind="stable")
        self._starts, self._stops = times[self._order].T
        self._owners = np.repeat(np.arange(len(phones)), lengths)[self._order]
        self.until: NDArray[np.float64] = np.full(len(phones), NEVER)
        self._passed = 0
        self._next = self._begin_of(0)
        self.told = 0

    def __len__(self) -> int:
        """How many stretches there are."""
        return len(self._starts)

    def pass_to(self, now: float) -> None:
        """The clock stands at `now`: every stretch that begins by then has begun."""
        if now < self._next:
            return
        end = int(np.searchsorted(self._starts, now, side="right"))
        chosen = slice(self._passed, end)
        self.until[self._owners[chosen]] = self._stops[chosen]  # the last of a phone counts
        self._passed, self._next = end, self._begin_of(end)

    def _begin_of(self, place: int) -> float:
        return float(self._starts[place]) if place < len(self._starts) else np.inf

    def peek(self) -> tuple[float, int] | None:
        """When the next stretch begins that nobody was told of, and its number among all."""
        if self.told == len(self._starts):
            return None
        return float(self._starts[self.told]), int(self._order[self.told])

    def take(self) -> int:
        """Whose it is; it has been told now."""
        self.told += 1
        return int(self._owners[self.told - 1])
