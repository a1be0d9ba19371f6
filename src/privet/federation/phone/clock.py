"""A phone's clock: the wall's, or one that runs so many times faster.

The phone's policies, traces and retention go by it. The server goes by the wall: what it says of
seconds is turned into the phone's, and back. A phone that is started again finds its clock where it
would stand, since the clock's beginning is kept in the phone's folder.
"""

import threading
import time
from pathlib import Path
from typing import Final, Protocol, Self, final

from privet.errors import InputError
from privet.files import read_json, write_json

FILE: Final = "clock.json"


class Clock(Protocol):
    """What a phone needs to know of time."""

    def now(self) -> float:
        """Seconds."""

    def of_wall(self, seconds: float) -> float:
        """So many seconds of the wall, in its own."""


@final
class FastClock:
    """Seconds since its beginning, `speedup` in each of the wall's.

    With a beginning of 0 and no speedup it is the time of day, as a real phone has it.
    """

    def __init__(self, *, speedup: float = 1.0, began: float = 0.0) -> None:
        if not 0 < speedup < float("inf"):
            raise InputError("bad speedup", got=speedup, expected="above 0", fix="try 60")
        self.speedup, self.began = speedup, began

    @classmethod
    def kept_in(cls, folder: Path, *, speedup: float) -> Self:
        """The clock of a virtual phone, which begins at 0 when it is first started."""
        path = folder / FILE
        if not path.exists():
            write_json(path, {"began": time.time(), "speedup": speedup}, private=True)
        kept = read_json(path)
        if kept["speedup"] != speedup:
            raise InputError(
                "this phone's clock runs at another speed",
                got=speedup,
                expected=f"--speedup {kept['speedup']:g}",
                fix="another --folder",
            )
        return cls(speedup=speedup, began=float(kept["began"]))

    def now(self) -> float:
        """By this clock."""
        return (time.time() - self.began) * self.speedup

    def of_wall(self, seconds: float) -> float:
        """They are more, here."""
        return seconds * self.speedup

    def wait(self, until: float, stop: threading.Event) -> bool:
        """Sleep until then, or until `stop`; whether it was that."""
        left = (until - self.now()) / self.speedup
        return stop.wait(min(max(0.0, left), threading.TIMEOUT_MAX))
