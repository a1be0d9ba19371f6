"""Made-up phones of 60 users: five activities, so that nothing is needed but the program.

What makes real recordings hard is made here too. Every user has a gait, places to carry the phone,
a sampling rate that wavers, and a mix of activities of their own; some never cycle or run. Cars
stand at lights, cyclists coast, walkers stop, who sits fidgets, and a few labels are wrong, since
users set them. Nothing of it was fitted to recordings: accuracies on it say nothing about people.

| symbol | here       | meaning                                                                 |
|--------|------------|-------------------------------------------------------------------------|
| g      | `_gravity` | direction of gravity in the phone's axes, of length 1                   |
| f      | `steps`... | repetitions a second, a user's own                                      |
| r      | `rate`     | samples a second, 20 to 50; intervals waver by a tenth                  |
| a(t)   |            | g + motion along g and across it + noise of the sensor, in units of 1 g |

Everything hangs on a constant seed and the user's number, so a user's signals are the same whoever
else is there.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.activities.by_user import WHOLE_RANGE, About, in_ranges
from privet.data.activities.sessions import Segment, Session

NAME: Final = "activities"
RANGE: Final = 2.0  # g
BOUTS: Final = 14  # of a user
SAMPLES: Final = 500  # of a bout
MISLABELLED: Final = 0.03

ABOUT: Final = About(
    name=NAME,
    classes=("walking", "sitting", "in car", "cycling", "running"),
    bounds=WHOLE_RANGE,
    users=tuple(range(1, 61)),
    test_users=tuple(range(4, 61, 4)),
    licence="Apache-2.0",
    source="simulated: privet.data.activities.simulated",
)

_SEED: Final = 20_200_401
_SHARES: Final = (0.30, 0.28, 0.24, 0.11, 0.07)  # of activities, on average over users
_CONCENTRATION: Final = 4.0  # of Dirichlet: how alike users' mixes are
# Gravity in the axes of a phone in a pocket, in the hand, on a table, on a mount; and where the
# phone is in each activity.
_PLACES: Final = np.array([[0.1, -0.9, 0.3], [0.0, 0.6, 0.7], [0.0, 0.0, 1.0], [0.2, 0.9, 0.3]])
_CARRIED: Final = (
    (0.6, 0.4, 0.0, 0.0),
    (0.3, 0.3, 0.4, 0.0),
    (0.3, 0.2, 0.1, 0.4),
    (0.7, 0.0, 0.0, 0.3),
    (0.7, 0.3, 0.0, 0.0),
)

Signal = NDArray[np.float64]
Draw = np.random.Generator


@cache
def everyone() -> tuple[Session, ...]:
    """The sessions of all users, a session a bout."""
    return tuple(sessions_of(ABOUT.users))


def sessions_of(users: Iterable[int]) -> Iterator[Session]:
    """Those of these users; there is one for every number."""
    return (session for user in users for session in _of(user))


def _of(user: int) -> list[Session]:
    draw = np.random.default_rng((_SEED, user))
    mix = draw.dirichlet(_CONCENTRATION * np.array(_SHARES))
    person = _Person(draw)
    return [_bout(draw, person, user, int(draw.choice(len(mix), p=mix))) for _ in range(BOUTS)]


class _Person:
    """What stays the same from bout to bout."""

    def __init__(self, draw: Draw) -> None:
        self.rate = draw.choice([20.0, 25.0, 50.0])
        self.steps, self.strides = draw.normal(1.85, 0.18), draw.normal(2.6, 0.25)
        self.pedals = draw.normal(1.25, 0.25)
        self.vigour = np.exp(draw.normal(0.0, 0.3))
        self.held = _PLACES + draw.normal(0.0, 0.35, _PLACES.shape)  # how, in each place
        self.sharpness = draw.uniform(0.2, 0.7)  # how much of a step is its second harmonic


def _bout(draw: Draw, person: _Person, user: int, activity: int) -> Session:
    rate = person.rate * draw.uniform(0.95, 1.05)
    times = np.cumsum(draw.uniform(0.9, 1.1, SAMPLES)) / rate
    g = _gravity(draw, person, activity)
    along, across = _MOTIONS[activity](draw, person, times)
    aside = np.cross(g, _unit(draw.normal(size=3)))
    signal = g * (1.0 + along)[:, None] + aside * across[:, None]
    signal += draw.normal(0.0, 0.015, signal.shape)
    wrong = draw.random() < MISLABELLED
    label = int(draw.integers(len(_MOTIONS))) if wrong else activity
    return Session(
        user=user,
        rate=round(rate),
        signal=in_ranges(signal, (RANGE,) * 3),
        segments=(Segment(label=label, start=0, stop=SAMPLES),),
    )


def _walking(draw: Draw, person: _Person, t: Signal) -> tuple[Signal, Signal]:
    f, size = person.steps * draw.uniform(0.85, 1.12), 0.40 * person.vigour
    going = _stretches(draw, t, on=9.0, off=1.5)
    up = size * going * _steps(draw, t, f, person.sharpness)
    return up, 0.5 * size * going * _steps(draw, t, f / 2, 0.2)


def _sitting(draw: Draw, person: _Person, t: Signal) -> tuple[Signal, Signal]:
    fidgets = _stretches(draw, t, on=0.8, off=6.0)
    restless = 0.12 * person.vigour * fidgets
    return restless * _wander(draw, t, 0.2), restless * _wander(draw, t, 0.3)


def _in_car(draw: Draw, person: _Person, t: Signal) -> tuple[Signal, Signal]:
    del person
    driving = _stretches(draw, t, on=8.0, off=3.0)
    engine = draw.uniform(0.01, 0.04)
    shaken = draw.normal(0.0, 1.0, t.shape) * (engine + 0.05 * driving)
    return shaken + 0.05 * driving * _wander(draw, t, 0.5), 0.15 * driving * _wander(draw, t, 1.5)


def _cycling(draw: Draw, person: _Person, t: Signal) -> tuple[Signal, Signal]:
    f, size = person.pedals * draw.uniform(0.85, 1.15), 0.20 * person.vigour
    pedalling = _stretches(draw, t, on=7.0, off=2.5)
    road = draw.uniform(0.06, 0.22) * draw.normal(0.0, 1.0, t.shape)
    turns = size * pedalling * _steps(draw, t, f, 0.3)
    return road + 0.6 * turns, turns + 0.05 * _wander(draw, t, 1.0)


def _running(draw: Draw, person: _Person, t: Signal) -> tuple[Signal, Signal]:
    f, size = person.strides * draw.uniform(0.9, 1.1), 0.90 * person.vigour
    going = _stretches(draw, t, on=8.0, off=2.0)
    # Between runs people walk.
    walk = 0.40 * person.vigour * (1 - going) * _steps(draw, t, person.steps, person.sharpness)
    up = size * going * _steps(draw, t, f, person.sharpness) + walk
    return up, 0.4 * size * going * _steps(draw, t, f / 2, 0.2)


Motion = Callable[[Draw, _Person, Signal], tuple[Signal, Signal]]
_MOTIONS: Final[tuple[Motion, ...]] = (_walking, _sitting, _in_car, _cycling, _running)


def _steps(draw: Draw, t: Signal, f: float, second: float) -> Signal:
    """A wave and its second harmonic, of a pace that drifts."""
    phase = 2 * np.pi * f * (t + 0.05 * _wander(draw, t, 2.0)) + draw.uniform(0, 2 * np.pi)
    return np.asarray(np.sin(phase) + second * np.sin(2 * phase + 0.7))


def _stretches(draw: Draw, t: Signal, *, on: float, off: float) -> Signal:
    """1 and 0 in turns, of so many seconds on average; it may begin with either."""
    going = bool(draw.random() < on / (on + off))
    level, at = np.zeros(len(t)), float(t[0])
    while at < t[-1]:
        lasts = draw.exponential(on if going else off) + 0.3
        level[(t >= at) & (t < at + lasts)] = float(going)
        at, going = at + lasts, not going
    return level


def _wander(draw: Draw, t: Signal, seconds: float) -> Signal:
    """Noise of variance about 1 that remembers so many seconds."""
    step = float(np.diff(t).mean())
    kernel = np.exp(-np.arange(0, 4 * seconds, step) / seconds)
    drawn = draw.normal(size=len(t) + len(kernel) - 1)
    return np.asarray(np.convolve(drawn, kernel, mode="valid") / np.linalg.norm(kernel))


def _gravity(draw: Draw, person: _Person, activity: int) -> Signal:
    place = draw.choice(len(_PLACES), p=_CARRIED[activity])
    return _unit(person.held[place] + draw.normal(0.0, 0.15, 3))


def _unit(v: Signal) -> Signal:
    return np.asarray(v / np.linalg.norm(v))
