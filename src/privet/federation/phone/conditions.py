"""What a phone can know of its moment: power, network, use, heat."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, final

from privet.errors import InputError


class Network(StrEnum):
    """What there is to talk through."""

    NONE = "none"
    METERED = "metered"
    UNMETERED = "unmetered"


class Mode(StrEnum):
    """How the system lets a program compute; FLSys, Table 4.7."""

    FOREGROUND = "foreground"  # the screen is on, and the app in front has a core
    CHARGER = "charger"  # in the background, charging
    BATTERY = "battery"  # in the background, on battery: throttled


@final
@dataclass(frozen=True, kw_only=True)
class Conditions:
    """One moment.

    Attributes:
        charging: whether it hangs on a charger.
        battery: what is left, 0 to 1.
        network: what there is.
        idle: whether nobody uses it.
        hot: whether it throttles for heat.
        foreground: whether the training app is in front.
        saver: whether the user has asked the system to save the battery.
    """

    charging: bool = True
    battery: float = 1.0
    network: Network = Network.UNMETERED
    idle: bool = True
    hot: bool = False
    foreground: bool = False
    saver: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.battery <= 1:
            raise InputError("bad state of a battery", got=self.battery, expected="0..1")

    @property
    def mode(self) -> Mode:
        """How it computes now."""
        if self.foreground:
            return Mode.FOREGROUND
        return Mode.CHARGER if self.charging else Mode.BATTERY

    @property
    def connected(self) -> bool:
        """Whether there is any network."""
        return self.network is not Network.NONE


class Surroundings(Protocol):
    """Where a phone learns its conditions from, and what its work costs it."""

    def at(self, now: float) -> Conditions:
        """Of this moment; moments only go forward."""

    def next_change(self, now: float) -> float:
        """When it is worth looking again; infinity: never."""

    def spend(self, records: int, mode: Mode) -> float:
        """So many records are trained on: the seconds that takes; the battery pays."""

    def seconds_for(self, records: int, mode: Mode) -> float:
        """What `spend` would take, without doing it."""

    def seconds_down(self, size: int) -> float:
        """To fetch so many bytes."""

    def seconds_up(self, size: int) -> float:
        """To send so many bytes."""


@final
class Mains:
    """A machine that hangs on mains and a wire: nothing takes longer than it takes."""

    def at(self, now: float) -> Conditions:
        """Always the best there are."""
        del now
        return Conditions()

    def next_change(self, now: float) -> float:
        """Never."""
        del now
        return float("inf")

    def spend(self, records: int, mode: Mode) -> float:
        """No time beside that of computing."""
        return self.seconds_for(records, mode)

    def seconds_for(self, records: int, mode: Mode) -> float:
        """None is known before."""
        del records, mode
        return 0.0

    def seconds_down(self, size: int) -> float:
        """As long as it takes."""
        del size
        return 0.0

    def seconds_up(self, size: int) -> float:
        """As long as it takes."""
        del size
        return 0.0
