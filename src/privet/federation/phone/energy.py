"""How fast a phone trains in which mode, and what that takes from its battery.

Two phones were measured by FLSys (Table 4.7): a round of 650 records, five times each. Their means:

|                           | Pixel 3a | Pixel 3 |
|---------------------------|----------|---------|
| foreground, minutes       |  1.23    |  0.70   |
| on the charger, minutes   |  3.94    |  3.58   |
| on battery, minutes       | 85.82    | 79.96   |
| battery of a round, mAh   |  9.72    |  3.79   |
| battery, mAh              | 3000     | 2915    |

From these literals follow a speed in each mode and the charge of a record; nothing else about a
phone is measured. Of the throttling on battery only the mean is kept; its deviation is about 40 %.
A charger gives more than training takes, so on the charger the battery loses nothing.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, final

from privet.errors import InputError
from privet.federation.phone.conditions import Mode

RECORDS_OF_A_ROUND: Final = 650 * 5
MINUTE: Final = 60.0
HOURS_TO_FULL: Final = 2.0  # on a charger; ours
HOURS_IDLE: Final = 48.0  # from full to empty when nothing is trained; ours


@final
@dataclass(frozen=True, kw_only=True)
class Profile:
    """A kind of phone.

    Attributes:
        name: what it is called.
        minutes: of the round above, in each mode.
        charge: of the round above, mAh.
        capacity: of the battery, mAh.
    """

    name: str
    minutes: MappingProxyType[Mode, float]
    charge: float
    capacity: float

    def speed(self, mode: Mode) -> float:
        """Records a second."""
        return RECORDS_OF_A_ROUND / (self.minutes[mode] * MINUTE)

    def share_of_battery(self, records: int, mode: Mode) -> float:
        """What so many records take of a full battery."""
        if mode is Mode.CHARGER:
            return 0.0
        return records * self.charge / RECORDS_OF_A_ROUND / self.capacity

    def rounds_of_a_battery(self) -> float:
        """How many of the rounds above a full battery lasts."""
        return self.capacity / self.charge

    def at_speed(self, on_charger: float) -> "Profile":
        """The same phone, so many records a second on the charger, other modes in proportion."""
        if not on_charger > 0:
            raise InputError("bad speed of a phone", got=on_charger, expected="above 0 records/s")
        factor = self.speed(Mode.CHARGER) / on_charger
        minutes = {mode: taken * factor for mode, taken in self.minutes.items()}
        return replace(self, minutes=MappingProxyType(minutes))


def _measured(
    name: str, foreground: float, charger: float, battery: float, charge: float, capacity: float
) -> Profile:
    minutes = {Mode.FOREGROUND: foreground, Mode.CHARGER: charger, Mode.BATTERY: battery}
    return Profile(name=name, minutes=MappingProxyType(minutes), charge=charge, capacity=capacity)


PIXEL_3A: Final = _measured("Pixel 3a", 1.23, 3.94, 85.82, 9.72, 3000.0)
PIXEL_3: Final = _measured("Pixel 3", 0.70, 3.58, 79.96, 3.79, 2915.0)
PROFILES: Final = MappingProxyType({one.name: one for one in (PIXEL_3A, PIXEL_3)})


@final
class Battery:
    """What is left of a charge, 0 to 1, as time goes by and work is done."""

    def __init__(self, left: float = 1.0) -> None:
        self.left = left

    def pass_by(self, seconds: float, *, charging: bool) -> None:
        """Nothing is done for so long."""
        hours = seconds / 3600.0
        change = hours / HOURS_TO_FULL if charging else -hours / HOURS_IDLE
        self.left = min(1.0, max(0.0, self.left + change))

    def pay(self, share: float) -> None:
        """Work takes this."""
        self.left = max(0.0, self.left - share)
