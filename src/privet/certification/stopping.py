"""When an image has enough votes, and what its votes prove by then.

| rule        | bound                | an image stops when                                   |
|-------------|----------------------|-------------------------------------------------------|
| `Reference` | Clopper-Pearson at n | it has n votes (Cohen et al., 2019)                   |
| `Curve`     | `Schedule`           | votes would hardly raise its radius, or it reached    |
|             |                      | the radius of interest                                |
| `Decision`  | `lower_sequence`     | the radius is certified, or out of reach              |

Soundness never rests on a rule: the bound holds at whatever time an image stops, for any reason.
A bad rule costs votes or radius, not truth.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.certification.smoothing_noise import SmoothingNoise
from privet.certification.votes import Counts, Tally
from privet.errors import InputError
from privet.privacy.confidence import (
    Schedule,
    exceeds,
    lower_bound,
    lower_sequence,
    upper_bound,
)

TOLERANCE: Final = 0.02  # noise scales of radius that a curve may leave on the table
_GROWTH: Final = 0.2  # a decision looks again after so many more votes: overshoot at most 20 %
_MOST: Final = 10**9  # votes that anyone would ask for
_HOPE: Final = 0.01  # chance with which a decision may give up an image that could still make it


class Rule(ABC):
    """Plans votes and judges them; `n` is the most that an image gets."""

    n: int
    alpha: float

    @property
    @abstractmethod
    def terms(self) -> dict[str, Any]:
        """What a record says of it, besides n and alpha."""

    @abstractmethod
    def target(self, draws: Counts, share: int) -> Counts:
        """How many votes to have in all when next judged; `share` fill the batch."""

    @abstractmethod
    def judge(self, tally: Tally, which: Counts) -> None:
        """Raise the bounds of these images and mark those that are done."""


@final
@dataclass(frozen=True)
class Reference(Rule):
    """n votes for everyone, one look."""

    n: int
    alpha: float

    @property
    def terms(self) -> dict[str, Any]:
        """Its name."""
        return {"mode": "reference"}

    def target(self, draws: Counts, share: int) -> Counts:
        """All votes."""
        return np.full_like(draws, self.n)

    def judge(self, tally: Tally, which: Counts) -> None:
        """Clopper-Pearson, once all votes are in."""
        full = which[tally.draws[which] >= self.n]
        tally.lower[full] = lower_bound(tally.hits[full], self.n, self.alpha)
        tally.done[full] = True


@final
@dataclass(frozen=True)
class Curve(Rule):
    """As much radius as n votes would give, but for a tolerance.

    The tolerance is in scales of the noise; for radii below one scale it shrinks with the square of
    the radius, because small radii would lose too large a part of themselves otherwise.
    """

    n: int
    alpha: float
    noise: SmoothingNoise
    tolerance: float = TOLERANCE
    radius: float | None = None

    @property
    def terms(self) -> dict[str, Any]:
        """What was asked for."""
        return {"mode": "curve", "radius": self.radius, "tolerance": self.tolerance}

    @cached_property
    def schedule(self) -> Schedule:
        """The looks."""
        return Schedule(self.n, self.alpha)

    def target(self, draws: Counts, share: int) -> Counts:
        """The next look."""
        return self.schedule.next_look(draws)

    def judge(self, tally: Tally, which: Counts) -> None:
        """At looks only: between them the schedule says nothing."""
        which = which[np.isin(tally.draws[which], self.schedule.looks)]
        hits, draws = tally.hits[which], tally.draws[which]
        tally.lower[which] = np.maximum(tally.lower[which], self.schedule.lower(hits, draws))
        radius = radii_of(self.noise, tally.lower[which])
        hoped = radii_of(self.noise, self.schedule.projected(hits, draws))
        part = np.minimum(1.0, radius / self.noise.scale)
        settled = hoped - radius <= self.tolerance * self.noise.scale * part**2
        enough = radius >= (math.inf if self.radius is None else self.radius)
        tally.done[which] = settled | enough | (draws >= self.n)


@final
@dataclass(frozen=True)
class Decision(Rule):
    """Is this one radius certified? Asked after every round of votes.

    An image is given up when the votes still to come could not decide it even at an optimistic
    rate: the 99 % upper bound of its probability, or all in favour. Giving up is always sound.
    """

    n: int
    alpha: float
    noise: SmoothingNoise
    radius: float

    @property
    def terms(self) -> dict[str, Any]:
        """What was asked for."""
        return {"mode": "decision", "radius": self.radius}

    @cached_property
    def p0(self) -> float:
        """The probability to be exceeded."""
        return self.noise.threshold(self.radius)

    def target(self, draws: Counts, share: int) -> Counts:
        """A fifth more than it has, at least 32, at least what fills the batch."""
        step = np.maximum(max(32, share), (_GROWTH * draws).astype(np.int64))
        return np.minimum(self.n, draws + step)

    def judge(self, tally: Tally, which: Counts) -> None:
        """The e-process at p0; the bound itself only for images that stop."""
        hits, draws = tally.hits[which], tally.draws[which]
        certified = exceeds(hits, draws, self.p0, self.alpha)
        stop = certified | (draws >= self.n) | self._hopeless(hits, draws)
        ended = which[stop]
        bound = lower_sequence(hits[stop], draws[stop], self.alpha)
        # The same e-process says that p > p0; the bound may be a rounding error below.
        tally.lower[ended] = np.where(certified[stop], np.maximum(bound, self.p0), bound)
        tally.done[ended] = True

    def _hopeless(self, hits: Counts, draws: Counts) -> NDArray[np.bool_]:
        left = self.n - draws
        best = np.minimum(hits + left * upper_bound(hits, draws, _HOPE), hits + left)
        return ~exceeds(best, self.n, self.p0, self.alpha)


def radii_of(noise: SmoothingNoise, lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The radius for each bound; equal bounds are computed once."""
    values, place = np.unique(lower, return_inverse=True)
    return np.array([noise.radius(float(p)) for p in values], dtype=np.float64)[place]


def make_rule(
    mode: str,
    noise: SmoothingNoise,
    *,
    n: int,
    alpha: float,
    radius: float | None,
    tolerance: float,
    reference: bool,
) -> Rule:
    """The rule for a mode; refuses what does not go together."""
    if mode not in ("curve", "decision"):
        raise InputError("unknown mode", got=mode, expected="curve or decision")
    if radius is not None and not 0.0 <= radius < math.inf:
        raise InputError("bad radius", got=radius, expected="a finite number, 0 or more")
    if not tolerance >= 0.0:
        raise InputError("bad tolerance", got=tolerance, expected="0 or more, in scales of noise")
    if reference:
        return Reference(n, alpha)
    if mode == "curve":
        return Curve(n, alpha, noise, tolerance, radius)
    if radius is None:
        raise InputError("no radius to decide", fix="say radius=, in units of the input")
    rule = Decision(n, alpha, noise, radius)
    _require_provable(rule)
    return rule


def _require_provable(rule: Decision) -> None:
    """Refuse a radius that even votes of one mind could not certify."""
    if exceeds(rule.n, rule.n, rule.p0, rule.alpha):
        return
    most = rule.noise.radius(float(lower_sequence(rule.n, rule.n, rule.alpha)))
    enough = _votes_enough(rule.p0, rule.alpha)
    raise InputError(
        f"a radius that n={rule.n} votes cannot prove at alpha {rule.alpha:g} by a decision",
        got=f"{rule.radius:g}",
        expected=f"at most {_rounded_down(most):g}" if most > 0.0 else "other votes or noise",
        fix="a larger scale of noise; a billion votes would not prove it under this one"
        if enough is None
        else f"n={enough} would be enough",
    )


def _votes_enough(p0: float, alpha: float) -> int | None:
    """The least number of votes which, all in favour, establish p > p0; None beyond `_MOST`.

    With every such vote the e-process grows: each q above p0 gains the factor q / p0.
    """
    low, high = 0, 1
    while not exceeds(high, high, p0, alpha):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exceeds(middle, middle, p0, alpha) else (middle, high)
    return high


def _rounded_down(value: float) -> float:
    """To three digits, so that the number that is shown can be asked for."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / step * (1.0 - 1e-12)) * step
