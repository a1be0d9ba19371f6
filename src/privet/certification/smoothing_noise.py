"""Noise that smooths a classifier, and the radius that each kind of noise certifies.

The smoothed classifier g(x) is the class that f(x + noise) takes with the greatest probability. If
class A has probability at least p_lower at x and no other class more than p_upper, then g keeps A
on a ball around x. How large a ball is a question of the trade-off function f_r of the noise
against itself moved by r (`privet.privacy.tradeoff`): no event loses or gains more than it allows.

| noise          | norm | largest certified radius          | paper              |
|----------------|------|-----------------------------------|--------------------|
| Gaussian sigma | l2   | sigma/2 (Phi^-1(pA) - Phi^-1(pB)) | Cohen et al., 2019 |
| Laplace b      | l1   | b/2 (F^-1(pA) - F^-1(pB))         | Teng et al., 2020  |
| uniform [-h,h] | l1   | h (pA - pB)                       | Yang et al., 2020  |

Phi and F are the distribution functions of N(0, 1) and of Laplace noise with scale 1.

With one bound only, pB = 1 - pA: sigma Phi^-1(pA), -b ln(2(1 - pA)), 2h(pA - 1/2).

Teng et al. state max{b/2 ln(pA/pB), -b ln(1 - pA + pB)} for Laplace noise. It is the same for
pA <= 1/2 and for pB = 1 - pA; in between theirs is smaller, because it does not use that the two
half-lines which lose and gain the most lie at opposite ends.

Proof for all rows. Let the input move by d, |d| <= r in the noise's norm. A test between the two
inputs that says "not moved" on the event f(x + noise) = A has false positive rate at most
1 - p_lower, so A keeps probability at least f_r(1 - p_lower). For another class B, the complement
of B has probability at least 1 - p_upper and keeps f_r(p_upper); so B reaches at most
1 - f_r(p_upper). While the first exceeds the second, A stays on top. Both are monotone in r, so
the largest r is a root, found numerically and then tried. The docstrings of the noises prove that
f_r is right for every move of length r in every dimension.

Noise that is not drawn exactly. If the law of the drawn noise is within t of the ideal one in total
variation (`total_variation`), every probability is within t of the ideal one, at x and elsewhere.
So A keeps f_r(1 - p_lower + t) - t and B reaches at most 1 - f_r(p_upper + t) + t.

Rounding: a radius is reduced by one part in 10^9 and by 10^-12 of the noise's scale. This exceeds
the errors of the distribution functions, so a radius is never above the true one.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import torch
from scipy.optimize import brentq
from torch import Tensor

from privet.classifiers import Classifier
from privet.errors import InputError
from privet.privacy import tradeoff
from privet.privacy.tradeoff import TradeOff

SLACK: Final = 1e-9  # relative, far above rounding errors and far below any use of a radius
_FAR: Final = 2.0**20  # in scales of the noise: beyond, only certainty reaches


class SmoothingNoise(ABC):
    """Independent noise on every coordinate of the input, or of a layer (`hidden`)."""

    name: ClassVar[str]
    norm: ClassVar[str]

    @property
    @abstractmethod
    def scale(self) -> float:
        """The one parameter: in units of the input."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Fresh noise in float32, on the generator's device."""

    @abstractmethod
    def tradeoff(self, radius: float) -> TradeOff:
        """The noise against itself after the worst move of this length in its norm."""

    @property
    def total_variation(self) -> float:
        """Between the ideal noise of one input and what is drawn for it, at most."""
        return 0.0

    @property
    def details(self) -> dict[str, Any]:
        """What else a record has to say of it; JSON values only."""
        return {}

    def fitted(self, classifier: Classifier, x: Tensor) -> "SmoothingNoise":
        """The noise for these inputs and this classifier, where a radius depends on them."""
        return self

    def noisy(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Inputs with fresh noise."""
        return x + self.draw(tuple(x.shape), generator)

    def scores(self, classifier: Classifier, x: Tensor, generator: torch.Generator) -> Tensor:
        """What the classifier says of inputs with fresh noise."""
        return classifier.scores(self.noisy(x, generator))

    def radius(self, p_lower: float, p_upper: float | None = None) -> float:
        """The largest radius at which the top class stays on top; 0 where there is none.

        Args:
            p_lower: a lower bound of the top class's probability.
            p_upper: an upper bound of every other's; default: what p_lower leaves over.
        """
        p_upper = 1.0 - p_lower if p_upper is None else p_upper
        _check_probabilities(p_lower, p_upper)
        if not self._lead(0.0, p_lower, p_upper) > 0.0:
            return 0.0
        high = self.scale
        while self._lead(high, p_lower, p_upper) > 0.0:
            high *= 2.0
            if high > _FAR * self.scale:
                return math.inf  # p_lower is 1
        root = brentq(self._lead, 0.0, high, (p_lower, p_upper), xtol=1e-13 * self.scale)
        radius = max(0.0, float(root) * (1.0 - SLACK) - 1e-12 * self.scale)
        while self._lead(radius, p_lower, p_upper) <= 0.0:  # never take the solver's word
            radius = radius * (1.0 - 1e-6) if radius > 1e-12 * self.scale else 0.0
            if radius == 0.0:
                break
        return radius

    def threshold(self, radius: float) -> float:
        """The probability above which `radius` is certified; rounded up.

        f_r(1 - p + t) - t > 1/2 holds where 1 - p + t < f_r(1/2 + t), for f_r is its own inverse.
        """
        _check_radius(radius)
        error = self.total_variation
        if radius == 0.0:
            return min(1.0, 0.5 + 2.0 * error)
        # A little further out, by more than `radius` rounds down: what passes gets its radius.
        moved = radius * (1.0 + 2.0 * SLACK) + 4e-12 * self.scale
        kept = self.tradeoff(moved).beta(min(1.0, 0.5 + error))
        return min(1.0, (1.0 - kept + error) * (1.0 + 1e-15))

    def in_norm(self, norm: str, radius: float, dimension: int) -> float:
        """The radius of a ball in another norm that lies inside; rounded down.

        |d|_2 <= sqrt(D) |d|_inf, |d|_1 <= D |d|_inf, |d|_1 <= sqrt(D) |d|_2, |d|_2 <= |d|_1.
        """
        divisors = {
            ("l2", "l2"): 1.0,
            ("l2", "linf"): math.sqrt(dimension),
            ("l2", "l1"): 1.0,
            ("l1", "l1"): 1.0,
            ("l1", "l2"): math.sqrt(dimension),
            ("l1", "linf"): float(dimension),
        }
        if (self.norm, norm) not in divisors:
            raise InputError("unknown norm", got=norm, expected="l1, l2 or linf")
        if norm == self.norm:
            return radius
        return math.nextafter(radius / divisors[self.norm, norm], 0.0)

    def _lead(self, radius: float, p_lower: float, p_upper: float) -> float:
        """By how much the top class leads after the worst move; falls in the radius."""
        error = self.total_variation
        if radius == 0.0:
            return p_lower - p_upper - 4.0 * error
        f = self.tradeoff(radius)
        lower, upper = max(0.0, p_lower - error), min(1.0, p_upper + error)
        # Both terms are good to some 1e-16: a lead that small is none.
        return f.shifted(lower) - (1.0 - f.beta(upper)) - 2.0 * error - 1e-15


@final
@dataclass(frozen=True)
class Gaussian(SmoothingNoise):
    """N(0, sigma^2) on every coordinate; certifies l2.

    A move d with |d|_2 = r changes the mean of a spherical Gaussian. Turn the axes so that d lies
    on the first; the others carry no information. What remains is N(0, 1) against N(r/sigma, 1).
    """

    sigma: float
    name: ClassVar[str] = "gaussian"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        check_scale("sigma", self.sigma)

    @property
    def scale(self) -> float:
        """Sigma, the standard deviation."""
        return self.sigma

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Normal draws."""
        return torch.randn(shape, generator=generator, device=generator.device).mul_(self.sigma)

    def tradeoff(self, radius: float) -> TradeOff:
        """mu-GDP with mu = radius / sigma."""
        return tradeoff.Gaussian(radius / self.sigma)


@final
@dataclass(frozen=True)
class Laplace(SmoothingNoise):
    """Density exp(-|z|/b) / 2b on every coordinate; certifies l1.

    In one dimension the trade-off function is that of Lap(0, 1) against Lap(r/b, 1). It is the
    worst in any dimension too. Move by t d, t from 0 to 1, |d|_1 = r, and let p(t) be the
    probability of an event A (or the mean of a function in [0, 1]). Then
    p'(t) = sum_i d_i E[1_A sign(Z_i)] / b, for the density's logarithm has slope -sign(z_i)/b, and
    as sign(Z_i) is 1 or -1 with mean 0, |E[1_A sign(Z_i)]| <= min(p, 1 - p). So |p'| <= (r/b)
    min(p, 1 - p). The Laplace distribution function F solves F' = min(F, 1 - F); hence
    p(1) >= F(F^-1(p(0)) - r/b).
    """

    b: float
    name: ClassVar[str] = "laplace"
    norm: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        check_scale("b", self.b)

    @property
    def scale(self) -> float:
        """The scale b; the standard deviation is b sqrt(2)."""
        return self.b

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """The difference of two exponential draws."""
        pair = torch.empty((2, *shape), device=generator.device).exponential_(generator=generator)
        return (pair[0] - pair[1]).mul_(self.b)

    def tradeoff(self, radius: float) -> TradeOff:
        """Laplace with shift radius / b."""
        return tradeoff.Laplace(radius / self.b)


@final
@dataclass(frozen=True)
class Uniform(SmoothingNoise):
    """Uniform on [-h, h] in every coordinate; certifies l1: 2h(p - 1/2) (Yang et al., 2020).

    The noise lives on a cube with side 2h. Moved by d it still covers the part
    prod_i (1 - |d_i|/2h)_+ of itself, with the same density. So no event's probability changes by
    more than 1 - prod_i (1 - |d_i|/2h)_+ <= sum_i |d_i| / 2h = r/2h (the union bound; equality
    where one coordinate moves alone). An event of probability p keeps p - r/2h, which is
    f_r(1 - p) for f_r(alpha) = max(0, 1 - r/2h - alpha), and this exceeds 1/2 while
    r < 2h(p - 1/2).
    """

    h: float
    name: ClassVar[str] = "uniform"
    norm: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        check_scale("h", self.h)

    @property
    def scale(self) -> float:
        """Half of the width; the standard deviation is h / sqrt(3)."""
        return self.h

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Uniform draws."""
        draws = torch.rand(shape, generator=generator, device=generator.device)
        return draws.mul_(2.0 * self.h).sub_(self.h)

    def tradeoff(self, radius: float) -> TradeOff:
        """Uniform with shift radius / 2h."""
        return tradeoff.Uniform(radius / (2.0 * self.h))


NOISES: Final[dict[str, type[Gaussian] | type[Laplace] | type[Uniform]]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "uniform": Uniform,
}


def make_noise(name: str, scale: float) -> SmoothingNoise:
    """A noise by its name and its one parameter."""
    if name not in NOISES:
        raise InputError("unknown smoothing noise", got=name, expected=" or ".join(NOISES))
    return NOISES[name](scale)


def check_scale(name: str, value: float) -> None:
    """Refuse what no noise can have."""
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"bad {name} of noise", got=value, expected="a positive, finite number")


def _check_radius(radius: float) -> None:
    if not (radius >= 0 and math.isfinite(radius)):
        raise InputError("bad radius", got=radius, expected="a finite number, 0 or more")


def _check_probabilities(*values: float) -> None:
    if not all(0.0 <= p <= 1.0 for p in values):
        raise InputError("bad probability", got=values, expected="between 0 and 1")
