"""Whole-number noise for counts: the discrete Gaussian (Canonne, Kamath and Steinke, 2020).

| paper          | here                                                                |
|----------------|---------------------------------------------------------------------|
| sigma^2        | `sigma2`, a fraction                                                |
| Delta          | `sensitivity`, a whole number                                       |
| N_Z(0, sigma^2)| P(x) proportional to exp(-x^2 / (2 sigma^2)) on the whole numbers   |
| Algorithms 1-3 | `_bernoulli_exp`, `_discrete_laplace`, `_discrete_gaussian`         |

A count plus continuous noise is rounded to a double, and the low bits of the result depend on the
count (Mironov, 2012). Here nothing is rounded: noise and result are whole numbers, and the sampler
decides by comparing whole numbers with uniform bits.

Proof note. Let one unit move at most `cells` counts, each by at most `sensitivity` = Delta.
- One count, moved by Delta: N_Z(0, sigma^2) against its shift. The ratio at x is monotone in x, so
  by Neyman and Pearson the best tests are thresholds, and delta(epsilon) is the sum of P(x) -
  exp(epsilon) P(x + Delta) over all x where that is positive. A threshold test gains with every
  larger shift, so a move by less than Delta is dominated.
- k counts: k such mechanisms side by side, hence composed.
- Renyi divergence: D_a <= a Delta^2 / (2 sigma^2), with equality where a Delta is whole (their
  Proposition 5), hence rho-zCDP with rho = k Delta^2 / (2 sigma^2), as for the continuous one.
  (delta at a given epsilon may be above that of the continuous one.)

One unit in one cell of a histogram: add/remove moves one cell by one, replace-one moves two
(`cells=2`). Which counts there are must not depend on the data: a cell for every possible value,
not for every value that occurs.
"""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Any, Final, final

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.privacy.accounting import DpEvent
from privet.privacy.noise import fingerprint
from privet.privacy.randomness import UNIFORM_BITS, SecretStream
from privet.privacy.tradeoff import PLD_INTERVAL, TradeOff, least_epsilon, self_compose

LARGEST_COUNT: Final = 2**62  # counts and noise must fit in 64 bits
LARGEST_SIGMA: Final = 1e5  # the sums of the trade-off function have some 40 sigma terms
WINDOW: Final = 38.0  # sums stop at so many sigma; P(|x| >= m) <= 2 exp(-m^2 / (2 sigma^2))
CUT_OFF: Final = 2.0 * math.exp(-(WINDOW**2) / 2.0)  # some 1e-313
SLACK: Final = 1 + 1e-9  # above the relative error of any sum here; rounding goes upwards
WORDS: Final = 1024  # drawn at a time


@final
@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Noise N_Z(0, sigma2) on every count.

    Guarantee: releasing counts with this noise is `tradeoff` (exact for one cell, pessimistic for
    more) and (cells * sensitivity^2 / (2 sigma2))-zCDP, between neighbours that differ in at most
    `cells` counts by at most `sensitivity` each.
    """

    sigma2: Fraction
    sensitivity: int = 1
    cells: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.sigma2, Fraction | int) or not self.sigma2 > 0:
            raise InputError(
                "bad variance",
                got=repr(self.sigma2),
                expected="a positive fraction, so that no rounding decides",
                fix="Fraction(9, 2), or Fraction('4.5')",
            )
        object.__setattr__(self, "sigma2", Fraction(self.sigma2))
        for name, value in (("sensitivity", self.sensitivity), ("number of cells", self.cells)):
            if not (isinstance(value, int) and value >= 1):
                raise InputError(f"bad {name}", got=value, expected="a whole number, at least 1")

    @property
    def rho(self) -> Fraction:
        """Of zero-concentrated differential privacy."""
        return self.cells * self.sensitivity**2 / (2 * self.sigma2)

    @property
    def event(self) -> DpEvent:
        """One release, for Renyi accounting."""
        return dp.ZCDpEvent(math.nextafter(float(self.rho), math.inf))

    @cached_property
    def tradeoff(self) -> TradeOff:
        """Of one release."""
        return self_compose(DiscreteShift(sigma2=self.sigma2, shift=self.sensitivity), self.cells)

    def add_to(
        self, counts: NDArray[np.integer[Any]], *, step: int, stream: SecretStream
    ) -> NDArray[np.int64]:
        """`counts` plus noise; the draw is bound to the counts and to the variance."""
        exact = _as_counts(counts)
        context = fingerprint(exact) + repr(self.sigma2).encode()
        below = _uniform_integers(stream, step=step, context=context)
        noise = [_discrete_gaussian(self.sigma2, below) for _ in range(exact.size)]
        return exact + np.array(noise, dtype=np.int64).reshape(exact.shape)


@final
@dataclass(frozen=True, kw_only=True)
class DiscreteShift(TradeOff):
    """N_Z(0, sigma2) against its shift by a whole number; symmetric, since the noise is."""

    sigma2: Fraction
    shift: int

    def __post_init__(self) -> None:
        if self.sigma2 > LARGEST_SIGMA**2:
            raise InputError(
                "noise too wide for exact sums",
                got=f"sigma {math.sqrt(self.sigma2):.3g}",
                expected=f"at most {LARGEST_SIGMA:g}",
                fix="account rho: the event of the mechanism",
            )

    def delta(self, epsilon: float) -> float:
        """The sum of P(x) (1 - exp(epsilon - loss(x))) over losses above epsilon, rounded up.

        All terms are positive, so nothing cancels; what the window cuts off is added.
        """
        x, pmf = self._pmf
        gain = (2.0 * x + self.shift) * float(self.shift / (2 * self.sigma2)) - epsilon
        first = int(np.searchsorted(gain, 0.0))
        terms = pmf[first:] * -np.expm1(-gain[first:])
        return min(1.0, float(terms.sum()) * SLACK + CUT_OFF)

    def epsilon(self, delta: float) -> float:
        """Inverse of `delta`, rounded up."""
        return least_epsilon(self.delta, delta)

    def beta(self, alpha: float) -> float:
        """Of the randomised threshold test of size alpha, rounded down."""
        if alpha <= 0.0:
            return 1.0
        # Reject from t on: t runs down from beyond the window, so that sizes and powers grow.
        _, pmf = self._pmf
        size = np.concatenate([[0.0], np.cumsum(pmf[::-1])])
        power = np.concatenate([size[self.shift :], np.ones(min(self.shift, len(size)))])
        found = float(np.interp(alpha * SLACK, size, power[: len(size)]))
        return max(0.0, 1.0 - found * SLACK - CUT_OFF)

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's distribution of noise cut off where less than 1e-30 is left."""
        from dp_accounting.pld import privacy_loss_distribution as library

        sigma = math.sqrt(self.sigma2)
        return library.from_discrete_gaussian_mechanism(
            sigma,
            self.shift,
            truncation_bound=math.ceil(11.6 * sigma) + self.shift,
            value_discretization_interval=interval,
        )

    @cached_property
    def _pmf(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All x in the window, and P(x)."""
        end = math.ceil(WINDOW * math.sqrt(self.sigma2))
        x = np.arange(-end, end + 1, dtype=np.float64)
        weights = np.exp(-(x * x) * float(1 / (2 * self.sigma2)))
        return x, weights / weights.sum()


def _as_counts(counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    exact = np.ascontiguousarray(counts)
    if not np.issubdtype(exact.dtype, np.integer):
        raise InputError("counts that are not whole", got=exact.dtype, expected="integers")
    if exact.size and max(-int(exact.min()), int(exact.max())) >= LARGEST_COUNT:
        raise InputError("counts too large", expected="less than 2**62")
    return exact.astype(np.int64)


def _uniform_integers(stream: SecretStream, *, step: int, context: bytes) -> Callable[[int], int]:
    """below(n): a uniform whole number in [0, n), from as many fresh bits as it takes."""

    def words() -> Iterator[int]:
        for block in count():
            u = stream.uniform(
                WORDS, purpose="discrete", step=step, context=context + struct.pack("<q", block)
            )
            # u is a multiple of 2**-UNIFORM_BITS: the product is whole, nothing is rounded.
            yield from (u * 2.0**UNIFORM_BITS).astype(np.int64).tolist()

    source, pool, bits = words(), 0, 0

    def below(n: int) -> int:
        nonlocal pool, bits
        need = (n - 1).bit_length()
        while True:
            while bits < need:
                pool |= next(source) << bits
                bits += UNIFORM_BITS
            value = pool & ((1 << need) - 1)
            pool >>= need
            bits -= need
            if value < n:
                return value

    return below


def _bernoulli_exp(numerator: int, denominator: int, below: Callable[[int], int]) -> bool:
    """True with probability exp(-numerator/denominator): Algorithm 1."""
    for _ in range(numerator // denominator):
        if not _bernoulli_exp_up_to_one(1, 1, below):
            return False
    return _bernoulli_exp_up_to_one(numerator % denominator, denominator, below)


def _bernoulli_exp_up_to_one(numerator: int, denominator: int, below: Callable[[int], int]) -> bool:
    """Throw k succeeds with probability gamma/k: whether the first to fail is an odd one."""
    k = 1
    while below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def _discrete_laplace(scale: int, below: Callable[[int], int]) -> int:
    """P(x) proportional to exp(-|x|/scale): Algorithm 2."""
    while True:
        rest = below(scale)
        if not _bernoulli_exp_up_to_one(rest, scale, below):
            continue
        whole = 0
        while _bernoulli_exp_up_to_one(1, 1, below):
            whole += 1
        size = rest + scale * whole
        negative = below(2) == 1
        if size or not negative:  # else zero would come out twice as often
            return -size if negative else size


def _discrete_gaussian(sigma2: Fraction, below: Callable[[int], int]) -> int:
    """P(x) proportional to exp(-x^2 / (2 sigma2)), by rejection: Algorithm 3."""
    p, q = sigma2.numerator, sigma2.denominator
    scale = math.isqrt(p // q) + 1
    while True:
        x = _discrete_laplace(scale, below)
        # (|x| - sigma2/scale)^2 / (2 sigma2), as one fraction
        if _bernoulli_exp((abs(x) * q * scale - p) ** 2, 2 * p * q * scale**2, below):
            return x
