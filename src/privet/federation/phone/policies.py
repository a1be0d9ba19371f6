"""What a phone does under which conditions; FLSys, section 4.3.

| FLSys    | here            | decides                                                     |
|----------|-----------------|-------------------------------------------------------------|
| RTCp     | `ready`         | whether it tells the server that it is ready                |
| STTp     | `starts`        | whether it trains after all, once it knows the deadline     |
|          | `goes_on`       | whether a training goes on                                  |
| download | `downloads`     | whether it fetches now                                      |
| upload   | `uploads`       | whether it sends now                                        |
| order    | `order_of`      | which model comes first                                     |

None of these is told to the server. What an answer depends on the records for is their number
alone, never which classes there are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from privet.errors import InputError
from privet.federation.phone.conditions import Conditions, Network


@final
@dataclass(frozen=True, kw_only=True)
class Policies:
    """The user's wishes; by default FLSys's: charging, on a network that costs nothing.

    Attributes:
        only_charging: train only on the charger.
        least_battery: off the charger, train only above this.
        only_unmetered: use only networks that cost nothing.
        only_idle: train only while nobody uses the phone.
        least_records: train only on at least so many, whatever a model asks for.
        margin: of the time that training took before, so often must be left to begin.
    """

    only_charging: bool = True
    least_battery: float = 0.3
    only_unmetered: bool = True
    only_idle: bool = False
    least_records: int = 1
    margin: float = 1.25

    def __post_init__(self) -> None:
        if not 0 <= self.least_battery <= 1:
            raise InputError("bad least battery", got=self.least_battery, expected="0..1")
        if self.least_records < 1:
            raise InputError("bad least records", got=self.least_records, expected="at least 1")
        if not self.margin >= 1:
            raise InputError("bad margin of time", got=self.margin, expected="at least 1")

    def ready(self, now: Conditions, *, records: int, asked_for: int) -> bool:
        """RTCp: power, network, and enough records."""
        return self.lacking(now, records=records, asked_for=asked_for) is None

    def lacking(self, now: Conditions, *, records: int, asked_for: int) -> str | None:
        """What a phone waits for before it is ready, for its user; None: nothing."""
        needed = max(self.least_records, asked_for)
        if records < needed:
            return f"it needs {needed} records or more"
        if not self.goes_on(now):
            return "the phone may not train now (charger, heat, use)"
        return None if self.downloads(now) else "no network that may be used"

    def starts(self, *, seconds_left: float, expected: float) -> bool:
        """STTp: whether there is time, by what fetching, training and sending is expected to be."""
        return expected * self.margin <= seconds_left

    def goes_on(self, now: Conditions) -> bool:
        """Whether a training may run in this moment."""
        if now.hot or (self.only_idle and not now.idle):
            return False
        return now.charging or (not self.only_charging and now.battery >= self.least_battery)

    def downloads(self, now: Conditions) -> bool:
        """Whether a version may be fetched."""
        return self._may_talk(now)

    def uploads(self, now: Conditions) -> bool:
        """Whether an update may be sent."""
        return self._may_talk(now)

    def saves(self, now: Conditions) -> bool:
        """Whether sensors run at the least rate that will do, and are flushed less often."""
        low = not now.charging and now.battery < self.least_battery
        return now.saver or low

    def _may_talk(self, now: Conditions) -> bool:
        if self.only_unmetered:
            return now.network is Network.UNMETERED
        return now.connected


@final
@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A model that waits for its turn to train.

    Attributes:
        model: its name.
        uses: how often its apps asked it lately.
        deadline: of the round that it is accepted for.
        took: seconds that its last training took; 0: none yet.
    """

    model: str
    uses: int
    deadline: float
    took: float


def order_of(waiting: Iterable[Waiting]) -> list[Waiting]:
    """One after the other: what is used most, then whose round ends first, then the shortest."""
    return sorted(waiting, key=lambda one: (-one.uses, one.deadline, one.took, one.model))
