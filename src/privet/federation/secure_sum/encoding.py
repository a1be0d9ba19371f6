"""Updates as whole numbers modulo 2^k, so that sums of them are exact and masks hide them wholly.

| symbol | here      | meaning                                                                |
|--------|-----------|------------------------------------------------------------------------|
| n      | `clients` | how many updates there are at most in a sum                            |
| C      | `longest` | to which L2 norm every update is shortened before                      |
| k      | `bits`    | of a number that is sent, 32 or 64                                     |
| f      | `shift`   | bits behind the point: the largest f with n floor(C 2^f) < 2^(k-1)     |
| x'     |           | the update shortened to norm C (1 - 2^-30), in double precision        |
| q      |           | x' 2^f, every coordinate rounded towards zero                          |

**Guarantees.**

1. *Rounding does not lengthen.* |q_i| <= |x'_i| 2^f for each coordinate: to multiply by a power of
   two is exact, and rounding is towards zero. Double precision computes x' itself only nearly, so
   the norm of q is checked in exact whole numbers, and as long as it is above C 2^f every
   coordinate loses one unit. So the norm of what a client adds, decoded, is at most C, exactly:
   the sensitivity that noise is calibrated for.
2. *No overflow.* Then |q_i| <= floor(C 2^f), so a sum of n of them stays below 2^(k-1) in size and
   is what its residue modulo 2^k says.
3. *Error.* Each coordinate of an update is off by less than 2^-f (towards zero), and of a sum of m
   updates by less than m 2^-f, against the x' that were added; with k = 32 that is less than
   m n C 2^-29. With k = 64 a sum above 2^53 units loses a relative 2^-53 when it is decoded.

An update that is not finite counts as zero, as `UserPrivacy.clipped` has it: to stay away would
tell that there was one.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError

Residues = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^k; numpy's own arithmetic on them wraps as it should."""

MARGIN: Final = 2.0**-30
LONGEST: Final = (1e-9, 1e9)
MOST_CLIENTS: Final = 1000
_LIMB: Final = 16


@final
@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """How the updates of a cohort of at most `clients` are written as numbers modulo 2^bits."""

    clients: int
    longest: float
    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise InputError("bad width of numbers", got=self.bits, expected="32 or 64 bits")
        if not LONGEST[0] <= self.longest <= LONGEST[1]:
            raise InputError(
                "bad longest norm of an update",
                got=self.longest,
                expected=f"between {LONGEST[0]:g} and {LONGEST[1]:g}",
            )
        if not 1 <= self.clients <= MOST_CLIENTS:
            raise InputError(
                "bad number of clients", got=self.clients, expected=f"1 to {MOST_CLIENTS}"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers, also as bytes: the least first."""
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    @cached_property
    def shift(self) -> int:
        """f; of a sum of large norms it may be negative."""
        shift = self.bits - math.frexp(self.longest)[1]
        while self.clients * math.floor(self._norm(shift)) >= 2 ** (self.bits - 1):
            shift -= 1
        return shift

    @property
    def unit(self) -> float:
        """2^-f, what the last bit stands for."""
        return math.ldexp(1.0, -self.shift)

    def shortened(self, change: NDArray[Any]) -> NDArray[np.float64]:
        """x': the update in double precision, no longer than C (1 - 2^-30); zero if not finite."""
        wide = change.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.sqrt(np.dot(wide, wide)))
        if not math.isfinite(norm):
            return np.zeros_like(wide)
        most = self.longest * (1.0 - MARGIN)
        return wide if norm <= most else wide * (most / norm)

    def encoded(self, change: NDArray[Any]) -> Residues:
        """The update as numbers modulo 2^k."""
        whole = np.trunc(np.ldexp(self.shortened(change), self.shift)).astype(np.int64)
        return self.within(whole).astype(self.dtype)

    def within(self, whole: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same numbers, or smaller ones: their norm is at most C 2^f, exactly."""
        most = self._norm(self.shift) ** 2
        while squared_norm(whole) > most:
            whole = whole - np.sign(whole)
        return whole

    def decoded(self, total: Residues) -> NDArray[np.float64]:
        """The sum that numbers modulo 2^k stand for."""
        signed = total.astype(self.dtype).view(f"<i{self.bits // 8}")
        return np.ldexp(signed.astype(np.float64), -self.shift)

    def error(self, count: int) -> float:
        """By how much a coordinate of a sum of so many updates may be off, when it is exact."""
        return count * self.unit

    def _norm(self, shift: int) -> Fraction:
        return Fraction(self.longest) * Fraction(2) ** shift


def squared_norm(whole: NDArray[np.int64]) -> int:
    """The sum of squares, exactly: by limbs of 16 bits, whose products cannot overflow."""
    size = np.abs(whole).astype(np.uint64)
    limbs = [(size >> np.uint64(_LIMB * i)) & np.uint64(2**_LIMB - 1) for i in range(4)]
    return sum(
        int(np.dot(a, b)) << _LIMB * (i + j)
        for i, a in enumerate(limbs)
        for j, b in enumerate(limbs)
    )
