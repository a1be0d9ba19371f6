"""Many phones in one process, by events: whoever is due does one short thing.

One thread, one heap. A phone that sleeps costs its place in the heap and what it remembers; records
and weights are in files and are mapped while it trains.
"""

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import final

from privet.federation.phone.clock import FastClock
from privet.federation.phone.hub import Phone


@final
class Fleet:
    """Phones on one clock.

    Args:
        phones: all of them.
        clock: theirs.
        enough: whether a phone has done what was asked of it.
    """

    def __init__(
        self,
        phones: Sequence[Phone],
        clock: FastClock,
        *,
        enough: Callable[[Phone], bool] = lambda phone: phone.over,
    ) -> None:
        self.phones, self.clock, self.enough = phones, clock, enough

    def run(self, stop: threading.Event) -> bool:
        """Until all have done enough, or `stop` is set; whether all have."""
        due = [(0.0, place) for place in range(len(self.phones))]
        while due:
            moment, place = heapq.heappop(due)
            if self.clock.wait(moment, stop):
                return False
            phone = self.phones[place]
            again = phone.act(self.clock.now())
            if not self.enough(phone):
                heapq.heappush(due, (again, place))
        return True
