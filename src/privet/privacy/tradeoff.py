"""One calculus: a mechanism as its trade-off function.

The trade-off function f of a mechanism gives, for every test that tries to tell two neighbours
apart, the least false negative rate f(alpha) at false positive rate alpha (Dong, Roth and Su,
2022). One object answers all questions asked of a mechanism:

| question                                     | answer                    |
|----------------------------------------------|---------------------------|
| privacy at epsilon / at delta                | `delta(eps)`, `epsilon(delta)` |
| best membership attack at rate alpha         | power <= 1 - `beta(alpha)`     |
| least probability of an event after a shift  | `shifted(p)` = f(1 - p)        |

The last line is randomized smoothing: for Gaussian noise it is Cohen's Phi(Phi^-1(p) - mu).

Every f here is symmetric and a *lower* bound of the true one: delta, epsilon and beta err only on
the safe side. Gaussian, Laplace, uniform and bare statements are closed forms; anything sampled or
composed is held as a pessimistic privacy loss distribution of dp-accounting.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from privet.errors import InputError

PLD_INTERVAL: Final = 1e-4  # discretisation of the privacy loss; rounding is pessimistic
_FAR: Final = 1e-15  # what may lie beyond the longest loss that is resolved; it counts as infinite
_LARGEST: Final = 700.0
_LONGEST: Final = 50.0
_Floats = NDArray[np.float64]


class TradeOff(ABC):
    """A symmetric trade-off function."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """The least delta at this epsilon >= 0."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at this delta; infinity where there is none."""

    @abstractmethod
    def beta(self, alpha: float) -> float:
        """The least false negative rate of any test at false positive rate alpha."""

    @abstractmethod
    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """A dp-accounting privacy loss distribution that dominates this mechanism."""

    def shifted(self, probability: float) -> float:
        """The least probability that an event keeps after moving to the neighbour."""
        return self.beta(1.0 - probability)


@final
@dataclass(frozen=True)
class Gaussian(TradeOff):
    """mu-GDP: N(0, 1) against N(mu, 1); mu = sensitivity / standard deviation."""

    mu: float

    def __post_init__(self) -> None:
        _check_shift("mu", self.mu)

    def delta(self, epsilon: float) -> float:
        """Balle and Wang (2018), Theorem 8."""
        return gaussian_delta(self.mu, epsilon)

    def epsilon(self, delta: float) -> float:
        """Inverse of `delta`, rounded up."""
        return least_epsilon(self.delta, delta)

    def beta(self, alpha: float) -> float:
        """Phi(Phi^-1(1 - alpha) - mu)."""
        return float(ndtr(-ndtri(alpha) - self.mu))  # 1 - alpha would round a small alpha away

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's Gaussian distribution."""
        from dp_accounting.pld import privacy_loss_distribution as library

        return library.from_gaussian_mechanism(
            1.0 / self.mu, value_discretization_interval=interval
        )


@final
@dataclass(frozen=True)
class Laplace(TradeOff):
    """Lap(0, 1) against Lap(shift, 1); shift = sensitivity / scale, the pure epsilon."""

    shift: float

    def __post_init__(self) -> None:
        _check_shift("shift", self.shift)

    def delta(self, epsilon: float) -> float:
        """1 - exp((epsilon - shift)/2) below the pure epsilon, 0 above."""
        return max(0.0, -math.expm1((epsilon - self.shift) / 2.0))

    def epsilon(self, delta: float) -> float:
        """Closed form."""
        return max(0.0, self.shift + 2.0 * math.log1p(-delta)) if delta < 1 else 0.0

    def beta(self, alpha: float) -> float:
        """F(F^-1(1 - alpha) - shift) for the Laplace distribution function F."""
        if alpha <= 0.0:
            return 1.0
        if alpha >= 1.0:
            return 0.0
        p = 1.0 - alpha
        quantile = math.log(2 * p) if p < 0.5 else -math.log(2 * alpha)
        moved = quantile - self.shift
        return 0.5 * math.exp(moved) if moved < 0 else 1.0 - 0.5 * math.exp(-moved)

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's Laplace distribution."""
        from dp_accounting.pld import privacy_loss_distribution as library

        return library.from_laplace_mechanism(
            1.0 / self.shift, value_discretization_interval=interval
        )


@final
@dataclass(frozen=True)
class Uniform(TradeOff):
    """U[0, 1] against U[shift, 1 + shift]; shift = sensitivity / width.

    The densities are equal where both live, so the best test rejects the part of one that the
    other never reaches and guesses on the rest: f(alpha) = max(0, 1 - shift - alpha). This is
    (0, shift)-differential privacy, exactly.
    """

    shift: float

    def __post_init__(self) -> None:
        _check_shift("shift", self.shift)

    def delta(self, epsilon: float) -> float:
        """The mass that the neighbour never reaches, at every epsilon."""
        return min(1.0, self.shift)

    def epsilon(self, delta: float) -> float:
        """0 from delta = shift on, infinity below."""
        return 0.0 if delta >= self.delta(0.0) else math.inf

    def beta(self, alpha: float) -> float:
        """1 - shift - alpha, at least 0."""
        return max(0.0, 1.0 - self.shift - alpha)

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's distribution of (0, shift)-differential privacy, which is this one."""
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as library

        return library.from_privacy_parameters(
            common.DifferentialPrivacyParameters(0.0, self.delta(0.0)),
            value_discretization_interval=interval,
        )


@final
@dataclass(frozen=True)
class Stated(TradeOff):
    """(epsilon, delta)-differential privacy and no more: what a bare statement says.

    f(alpha) = max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha)).
    """

    stated_epsilon: float
    stated_delta: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.stated_epsilon < math.inf and 0 <= self.stated_delta < 1):
            raise InputError(
                "bad privacy statement",
                got=f"epsilon={self.stated_epsilon}, delta={self.stated_delta}",
                expected="0 <= epsilon < infinity and 0 <= delta < 1",
            )

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence of the worst pair (Kairouz, Oh and Viswanath, 2015)."""
        if epsilon >= self.stated_epsilon:
            return self.stated_delta
        ratio = (1.0 + math.exp(epsilon)) / (1.0 + math.exp(self.stated_epsilon))
        return 1.0 - (1.0 - self.stated_delta) * ratio

    def epsilon(self, delta: float) -> float:
        """Inverse of `delta`."""
        if delta < self.stated_delta:
            return math.inf
        odds = (1.0 - delta) / (1.0 - self.stated_delta) * (1.0 + math.exp(self.stated_epsilon))
        return min(self.stated_epsilon, math.log(odds - 1.0)) if odds > 2.0 else 0.0

    def beta(self, alpha: float) -> float:
        """Two lines."""
        falling = 1.0 - self.stated_delta - math.exp(self.stated_epsilon) * alpha
        mirrored = math.exp(-self.stated_epsilon) * (1.0 - self.stated_delta - alpha)
        return max(0.0, falling, mirrored)

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's distribution of a statement."""
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as library

        return library.from_privacy_parameters(
            common.DifferentialPrivacyParameters(self.stated_epsilon, self.stated_delta),
            value_discretization_interval=interval,
        )


@final
@dataclass(frozen=True, eq=False)
class Numerical(TradeOff):
    """Any sampled or composed mechanism, held as a pessimistic privacy loss distribution."""

    distribution: Any = field(repr=False)

    def delta(self, epsilon: float) -> float:
        """Pessimistic: never below the true delta."""
        return float(self.distribution.get_delta_for_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Pessimistic: never below the true epsilon."""
        return float(self.distribution.get_epsilon_for_delta(delta))

    def beta(self, alpha: float) -> float:
        """The supporting lines of the privacy profile (Dong et al., Proposition 6)."""
        epsilons, deltas = self._profile
        rising = 1.0 - deltas - np.exp(epsilons) * alpha
        falling = np.exp(-epsilons) * (1.0 - deltas - alpha)
        return float(max(0.0, rising.max(), falling.max()))

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """The distribution itself, on the grid that it was made on."""
        return self.distribution

    @cached_property
    def _profile(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # A finite set of supporting lines gives a lower bound of f, which is the safe side.
        top = min(self.epsilon(1e-12), 60.0)
        top = top if math.isfinite(top) else 60.0
        epsilons = np.linspace(0.0, max(top, 1e-6), 1000)
        return epsilons, np.asarray(self.distribution.get_delta_for_epsilon(epsilons))


def poisson_subsampled(
    noise_multiplier: float,
    rate: float,
    *,
    replace_one: bool = False,
    interval: float = PLD_INTERVAL,
) -> TradeOff:
    """One Gaussian step on a Poisson sample; see `accounting` for why these pairs dominate."""
    import dp_accounting as dp
    from dp_accounting.pld import privacy_loss_distribution as library

    relation = dp.NeighboringRelation
    return Numerical(
        library.from_gaussian_mechanism(
            noise_multiplier,
            sampling_prob=rate,
            value_discretization_interval=interval,
            neighboring_relation=relation.REPLACE_ONE
            if replace_one
            else relation.ADD_OR_REMOVE_ONE,
        )
    )


def sampled_once(part: TradeOff, rate: float, interval: float = PLD_INTERVAL) -> TradeOff:
    """A mechanism, composed or not, that a unit takes part in by a secret coin of its own.

    The coin is tossed once, with chance `rate`, and holds for all of it: a unit that was admitted
    to a memory is there whenever the memory is read. Add/remove neighbours.

    With P and Q the outcomes with and without the unit, the coin makes P' = (1 - p) Q + p P. For
    a = e^eps (Balle et al., 2018, and by the same algebra in the other direction)

        H_a(P', Q) = p H_b(P, Q),                 b = 1 + (a - 1)/p
        H_a(Q, P') = (1 - a(1 - p)) H_c(Q, P),    c = a p / (1 - a(1 - p));  0 from a = 1/(1-p) on

    Both grow with the profile of `part`, so an upper bound of it gives upper bounds. Between the
    points of the grid lines connect them, which lie above (Doroshenko et al., 2022).
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    if not 0 < rate <= 1:
        raise InputError("bad chance", got=rate, expected="above 0, at most 1")
    if rate == 1:
        return part
    whole = part.pld(interval)
    longest = min(whole.get_epsilon_for_delta(_FAR), _LONGEST)
    most = math.ceil(math.log1p(rate * math.expm1(longest)) / interval)
    least = math.floor(math.log1p(-rate) / interval)
    removed, added = range(least, most + 1), range(-most, -least + 1)
    remove, beyond = _connected(_with_coin(whole, rate, _grid(removed, interval)), interval)
    add, beyond_add = _connected(_against_coin(whole, rate, _grid(added, interval)), interval)
    return Numerical(
        library.PrivacyLossDistribution.create_from_rounded_probability(
            dict(zip(removed, remove.tolist(), strict=True)),
            beyond,
            interval,
            rounded_probability_mass_function_add=dict(zip(added, add.tolist(), strict=True)),
            infinity_mass_add=beyond_add,
            symmetric=False,
        )
    )


def _grid(places: range, interval: float) -> _Floats:
    return np.asarray(places, dtype=np.float64) * interval


def _with_coin(whole: Any, rate: float, epsilons: _Floats) -> _Floats:
    """H_a(P', Q); 1 - a where a is at most 1 - p, as small as P'/Q can be."""
    inner = 1.0 + np.expm1(epsilons) / rate
    found = -np.expm1(epsilons)
    some = inner > 0
    found[some] = rate * _profile(whole, np.log(inner[some]))
    return np.clip(found, np.maximum(0.0, -np.expm1(epsilons)), 1.0)


def _against_coin(whole: Any, rate: float, epsilons: _Floats) -> _Floats:
    """H_a(Q, P')."""
    left = 1.0 - np.exp(epsilons) * (1.0 - rate)
    found = np.zeros_like(epsilons)
    some = left > 0
    inner = epsilons[some] + math.log(rate) - np.log(left[some])
    found[some] = left[some] * _profile(whole, inner)
    return np.clip(found, np.maximum(0.0, -np.expm1(epsilons)), 1.0)


def _profile(whole: Any, epsilons: _Floats) -> _Floats:
    """delta(eps) of the worse direction of a distribution, also where eps is negative."""
    sizes = np.abs(epsilons)
    # dp-accounting's own sum runs point by point in Python, for half a minute on a fine grid.
    ways = {id(part): part for part in (whole._pmf_remove, whole._pmf_add)}.values()
    forward = np.max([_hockey_stick(part.to_dense_pmf(), sizes) for part in ways], axis=0)
    # H_a(P, Q) = 1 - a + a H_(1/a)(Q, P)
    mirrored = -np.expm1(epsilons) + np.exp(epsilons) * forward
    return np.asarray(np.where(epsilons < 0, mirrored, forward))


def _hockey_stick(masses: Any, epsilons: _Floats) -> _Floats:
    """The sum of (1 - e^(eps - loss)) over larger losses, and all mass beyond; eps >= 0."""
    losses = (masses._lower_loss + np.arange(masses.size)) * masses._discretization
    positive = losses > 0  # the others never count, and e^-loss would overflow
    losses, chances = losses[positive], masses._probs[positive]
    upper = np.append(np.cumsum(chances[::-1])[::-1], 0.0)
    lower = np.append(np.cumsum((chances * np.exp(-losses))[::-1])[::-1], 0.0)
    first = np.searchsorted(losses, epsilons, side="right")
    # Far out e^eps overflows, where nothing is left of the sum.
    grown = np.exp(np.minimum(epsilons, _LARGEST)) * lower[first]
    return np.asarray(masses._infinity_mass + np.maximum(upper[first] - grown, 0.0))


def _connected(deltas: _Floats, interval: float) -> tuple[_Floats, float]:
    """Masses of losses on a grid whose profile has these points, straight in e^eps between them.

    And the mass beyond.
    """
    fall = -np.diff(deltas, prepend=1.0)
    left = fall / -math.expm1(-interval)
    left[0] = fall[0]  # before the first point the profile is straight from minus infinity on
    right = np.append(fall[1:], 0.0) / math.expm1(interval)
    return np.clip(left - right, 0.0, None), float(deltas[-1])


def compose(parts: Sequence[TradeOff], interval: float = PLD_INTERVAL) -> TradeOff:
    """The trade-off function of releasing all parts, each planned beforehand."""
    if not parts:
        raise InputError("nothing to compose", got="no parts", expected="at least one mechanism")
    if all(isinstance(part, Gaussian) for part in parts):
        return Gaussian(math.hypot(*(part.mu for part in parts if isinstance(part, Gaussian))))
    if len(parts) == 1:
        return parts[0]
    total = parts[0].pld(interval)
    for part in parts[1:]:
        total = total.compose(part.pld(interval))
    return Numerical(total)


def self_compose(part: TradeOff, count: int, interval: float = PLD_INTERVAL) -> TradeOff:
    """`count` independent runs of one mechanism."""
    if count < 1:
        raise InputError("bad number of repetitions", got=count, expected="at least 1")
    if isinstance(part, Gaussian):
        return Gaussian(part.mu * math.sqrt(count))
    return part if count == 1 else Numerical(part.pld(interval).self_compose(count))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP, stable in the tails."""
    log_first = float(log_ndtr(mu / 2.0 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))
    # e^a - e^b = e^a (1 - e^(b-a)), a >= b.
    return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first))


def least_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """The least epsilon >= 0 at which a falling `delta_of` is at most `delta`, rounded up."""
    if delta <= 0.0:
        return math.inf  # delta_of only rounds to 0, far out
    if delta_of(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high) > delta:
        high *= 2.0
        if high > 1e6:
            return math.inf
    root = float(brentq(lambda e: delta_of(e) - delta, 0.0, high, xtol=1e-12, rtol=1e-12))
    return root * (1 + 1e-9)


def _check_shift(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
