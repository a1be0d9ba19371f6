"""When phones can train, and how fast they are: a generator; `trace_files` reads others.

A phone can train while it charges and has a network that costs nothing (FLSys: Ready-To-Config).
The generator draws, for each phone: a time zone's night of charging, 22:00 with a deviation of an
hour and a half, for 7.5 hours with a deviation of one; with probability 0.4 a second charge by day,
8:00 to 20:00, for half an hour to two hours; days are drawn one by one. A network is missing in one
night of ten. Speeds are log-normal with a spread of a factor of two around the median, in records a
second; links 1.25 MB/s down and 0.5 MB/s up, likewise. The rates are ours, of the order of what
FLSys measured on two phones (650 records x 5 epochs in 3.6 to 3.9 minutes on the charger); they are
no measurement of a population.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from privet.federation.draws import Kind, drawn_from

DAY: Final = 86_400.0
HOUR: Final = 3_600.0
ALWAYS: Final = ((0.0, float("inf")),)

Stretches = Sequence[tuple[float, float]]


@final
@dataclass(frozen=True, kw_only=True)
class Phone:
    """One client's device.

    Attributes:
        stretches: when it can train, seconds since the start, in order, apart from one another.
        speed: records it trains on in a second.
        down, up: bytes a second.
    """

    stretches: Stretches = ALWAYS
    speed: float = float("inf")
    down: float = float("inf")
    up: float = float("inf")

    def seconds(self, records: int, size: int) -> float:
        """To fetch a model of `size` bytes, train on so many records, and send it back."""
        return size / self.down + records / self.speed + size / self.up


def always(clients: int) -> list[Phone]:
    """Machines that are always there and take no time."""
    return [Phone() for _ in range(clients)]


def drawn(keys: Iterable[int], *, days: int, seed: int) -> list[Phone]:
    """Phones by the generator above, each by its client's key alone."""
    return [_phone(drawn_from(seed, Kind.PHONE, int(key)), days) for key in keys]


def _phone(draw: np.random.Generator, days: int) -> Phone:
    zone = draw.uniform(0, 24) * HOUR
    stretches: list[tuple[float, float]] = []
    for day in range(-1, days + 1):
        night = day * DAY + zone + draw.normal(22.0, 1.5) * HOUR
        length = max(1.0, draw.normal(7.5, 1.0)) * HOUR
        if draw.random() < 0.9:
            stretches.append((night, night + length))
        noon = day * DAY + zone + draw.uniform(8.0, 20.0) * HOUR
        by_day = draw.uniform(0.5, 2.0) * HOUR
        if draw.random() < 0.4:
            stretches.append((noon, noon + by_day))
    speed, down, up = np.exp(draw.normal(0.0, np.log(2.0), 3)).tolist()
    return Phone(
        stretches=_merged(stretches, days * DAY),
        speed=14.0 * speed,
        down=1.25e6 * down,
        up=0.5e6 * up,
    )


def _merged(stretches: list[tuple[float, float]], end: float) -> Stretches:
    """In order, overlapping ones joined, cut off at both ends of time."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted(stretches):
        start, stop = max(0.0, start), min(end, stop)
        if stop <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)
