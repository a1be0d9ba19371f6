"""When the server steps: at a deadline, when a cohort has answered, or when a buffer is full."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from privet.errors import InputError


class Pacing(ABC):
    """When a round ends, and whether what came in is enough for a step.

    Attributes:
        invites: whether the server chooses who takes part; otherwise clients choose themselves.
        by_clock: whether rounds end by the clock alone, and step whoever came. Then no client has
            a say in when the others' updates are counted.
        seconds: how long a round may last.
    """

    invites: bool
    by_clock: bool
    seconds: float

    @abstractmethod
    def full(self, arrived: int, expected: int) -> bool:
        """Whether the round ends before its time; `expected`: how many were asked for."""

    @abstractmethod
    def enough(self, arrived: int) -> bool:
        """Whether there is a step when the time is over."""


@final
@dataclass(frozen=True, kw_only=True)
class Deadline(Pacing):
    """FLSys: clients select themselves; at the deadline, at least `least` updates or no step."""

    seconds: float
    least: int = 0

    invites = False

    def __post_init__(self) -> None:
        _check(seconds=self.seconds, least=self.least)
        _require_end(self.seconds)

    @property
    def by_clock(self) -> bool:  # type: ignore[override]
        """A quorum is a condition on who came."""
        return self.least == 0

    def full(self, arrived: int, expected: int) -> bool:
        """Never: there is no waiting for a client, and no hurry."""
        return False

    def enough(self, arrived: int) -> bool:
        """Whether the quorum is there."""
        return arrived >= self.least


@final
@dataclass(frozen=True, kw_only=True)
class Cohort(Pacing):
    """Synchronous: the server asks `size` clients and waits for all of them, at most `seconds`.

    With `rate` every client that is enrolled is asked with that probability, by a secret coin of
    its own: only this may be accounted as sampling. With `patient` the round lasts its whole time,
    whoever has answered.
    """

    seconds: float
    size: int | None = None
    rate: float | None = None
    least: int = 0
    patient: bool = False

    invites = True

    def __post_init__(self) -> None:
        _check(seconds=self.seconds, least=self.least)
        if self.patient:
            _require_end(self.seconds)
        if (self.size is None) == (self.rate is None):
            raise InputError(
                "how are the clients of a round chosen?",
                got=f"size={self.size}, rate={self.rate}",
                expected="a size of the cohort, or a rate at which clients are sampled",
            )
        if self.size is not None and self.size < 1:
            raise InputError("bad size of a cohort", got=self.size, expected="at least 1")
        if self.rate is not None and not 0 < self.rate <= 1:
            raise InputError("bad sampling rate", got=self.rate, expected="0 < rate <= 1")

    @property
    def by_clock(self) -> bool:  # type: ignore[override]
        """Only if it is patient, asks for no quorum, and no client takes another's place."""
        return self.patient and self.least == 0 and self.rate is not None

    def full(self, arrived: int, expected: int) -> bool:
        """Whether all who were asked have answered."""
        return not self.patient and arrived >= expected > 0

    def enough(self, arrived: int) -> bool:
        """Whether the quorum is there."""
        return arrived >= self.least


@final
@dataclass(frozen=True, kw_only=True)
class Buffer(Pacing):
    """FedBuff: a step as soon as `size` updates are there, whatever version they are of."""

    size: int
    seconds: float = float("inf")

    invites = False
    by_clock = False

    def __post_init__(self) -> None:
        _check(seconds=self.seconds, least=0)
        if self.size < 1:
            raise InputError("bad size of a buffer", got=self.size, expected="at least 1")

    def full(self, arrived: int, expected: int) -> bool:
        """Whether the buffer is."""
        return arrived >= self.size

    def enough(self, arrived: int) -> bool:
        """Whether there is anything, when time is over."""
        return arrived >= 1


def _check(*, seconds: float, least: int) -> None:
    if not seconds > 0:
        raise InputError("bad length of a round", got=seconds, expected="more than 0 seconds")
    if least < 0:
        raise InputError("bad quorum", got=least, expected="at least 0 updates")


def _require_end(seconds: float) -> None:
    """Rounds that nothing but the clock ends would never end."""
    if seconds == float("inf"):
        raise InputError(
            "a deadline that never comes", got=seconds, expected="a finite number of seconds"
        )
