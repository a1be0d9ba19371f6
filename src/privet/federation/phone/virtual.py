"""The surroundings of a phone made of traces: when it charges, how fast it is, what that costs.

In a stretch of its trace a phone charges and has a network that costs nothing; outside it runs on
battery, with a network that costs. Its speed in the trace is that on the charger; in the foreground
and on battery it is faster and slower in the proportions of its `energy.Profile`. A phone without a
finite speed trains as fast as the machine does.
"""

import math
from bisect import bisect_right
from typing import final

from privet.federation.phone.conditions import Conditions, Mode, Network
from privet.federation.phone.energy import PIXEL_3A, Battery, Profile
from privet.federation.traces import Phone


@final
class Traced:
    """One phone's.

    Args:
        phone: its trace.
        profile: in which proportions its modes stand, and what they cost.
        foreground: whether the training app stays in front.
        battery: what is left at the beginning, 0 to 1.
    """

    def __init__(
        self,
        phone: Phone,
        *,
        profile: Profile = PIXEL_3A,
        foreground: bool = False,
        battery: float = 1.0,
    ) -> None:
        self.phone, self.foreground = phone, foreground
        self.battery = Battery(battery)
        finite = math.isfinite(phone.speed)
        self.profile = profile.at_speed(phone.speed) if finite else profile
        self._speeds = {mode: self.profile.speed(mode) if finite else math.inf for mode in Mode}
        self._starts = [start for start, _ in phone.stretches]
        self._edges = [edge for stretch in phone.stretches for edge in stretch]
        self._at = 0.0

    def at(self, now: float) -> Conditions:
        """By the trace; the battery has gone on until now."""
        self._pass_to(now)
        charging = self._charges(now)
        return Conditions(
            charging=charging,
            battery=self.battery.left,
            network=Network.UNMETERED if charging else Network.METERED,
            idle=not self.foreground,
            foreground=self.foreground,
        )

    def next_change(self, now: float) -> float:
        """The next end of a stretch."""
        place = bisect_right(self._edges, now)
        return self._edges[place] if place < len(self._edges) else math.inf

    def spend(self, records: int, mode: Mode) -> float:
        """The seconds; the battery pays where nothing charges it."""
        self.battery.pay(self.profile.share_of_battery(records, mode))
        return self.seconds_for(records, mode)

    def seconds_for(self, records: int, mode: Mode) -> float:
        """By the speed of the mode."""
        return records / self._speeds[mode]

    def seconds_down(self, size: int) -> float:
        """By the trace."""
        return size / self.phone.down

    def seconds_up(self, size: int) -> float:
        """By the trace."""
        return size / self.phone.up

    def _charges(self, moment: float) -> bool:
        place = bisect_right(self._starts, moment) - 1
        return place >= 0 and moment < self.phone.stretches[place][1]

    def _pass_to(self, now: float) -> None:
        """Stretch by stretch, since the last look."""
        while self._at < now:
            end = min(now, self.next_change(self._at))
            self.battery.pass_by(end - self._at, charging=self._charges(self._at))
            self._at = end
