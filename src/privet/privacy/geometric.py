"""Whole-number Laplace noise for millions of numbers at once, without a gap in floating point.

A number plus continuous noise is rounded to a double, and the low bits of the result depend on the
number (Mironov, 2012). Whole numbers have none. `discrete` draws single ones exactly; here many are
drawn together, and their law is right up to a factor.

| symbol | here     | meaning                                                                |
|--------|----------|------------------------------------------------------------------------|
| t      | `spread` | P(Z = z) proportional to exp(-|z| / t), on the whole numbers           |
| G      |          | geometric: P(G = k) proportional to exp(-k / t), k = 0, 1, ...; Z = G - G' |
| B_j    | `_ones`  | binary digits of G: independent, P(B_j = 1) = 1 / (1 + exp(2^j / t))   |

Proof note. The product of the laws of the digits is proportional to exp(-sum of 2^j B_j / t), which
is the law of G; cut off at 2^J digits, it is that of G given G < 2^J. The difference of two such is
Z. A digit is one with exactly the probability that its double says (`_ones`), and that double has a
relative error below 2^-52 (1 + 2^j / t). So every probability of G is right up to a factor
1 +- J 2^-51 (1 + 2^J / t), and so is every sum of products of them, as those of Z are.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privet.errors import InputError
from privet.privacy.randomness import UNIFORM_BITS, SecretStream

MOST_DIGITS: Final = 61  # so that a sum of draws is a whole number of 64 bits
Draw = Callable[[int], NDArray[np.float64]]
"""Uniform numbers, others for each part that is asked for."""


def two_sided_geometric(
    n: int, *, spread: float, reach: float, stream: SecretStream, context: bytes
) -> NDArray[np.int64]:
    """`n` independent Z, each G below the first power of two from `reach` on."""
    digits = max(1, math.ceil(math.log2(reach)))
    up, down = (_geometric(n, spread, digits, side, stream, context) for side in ("more", "less"))
    return up - down


def rounded_laplace(
    n: int, *, spread: float, reach: float, stream: SecretStream, context: bytes
) -> NDArray[np.int64]:
    """`n` independent continuous Laplace draws of scale t, each rounded to a whole number.

    A whole number plus such a draw is that number plus the continuous one, rounded: what is known
    of the Laplace mechanism holds for it as post-processing, in any composition.

    Proof note. Rounded, the draw is 0 with probability 1 - exp(-1 / 2t), and otherwise
    +-(1 + G), for P(|Z| >= m) = exp(-(m - 1/2) / t), m >= 1.
    """
    digits = max(1, math.ceil(math.log2(reach)))
    size = 1 + _geometric(n, spread, digits, "size", stream, context)

    def ones(probability: float, purpose: str) -> NDArray[np.bool_]:
        return _ones(
            probability,
            lambda part: stream.uniform(n, purpose=f"{purpose} {part}", step=0, context=context),
        )

    signed = np.where(ones(0.5, "sign"), -size, size)
    return np.where(ones(-math.expm1(-0.5 / spread), "none"), 0, signed)


def _geometric(
    n: int, spread: float, digits: int, side: str, stream: SecretStream, context: bytes
) -> NDArray[np.int64]:
    if digits > MOST_DIGITS:
        raise InputError(
            "noise too wide for whole numbers",
            got=f"a spread of {spread:.3g} steps",
            fix="a larger epsilon, or fewer numbers at once",
        )
    total = np.zeros(n, dtype=np.int64)
    for j in range(digits):

        def draw(part: int, j: int = j) -> NDArray[np.float64]:
            return stream.uniform(n, purpose=f"{side} {part}", step=j, context=context)

        total += _ones(float(expit(-(2.0**j) / spread)), draw).astype(np.int64) << j
    return total


def _ones(probability: float, draw: Draw) -> NDArray[np.bool_]:
    """True with exactly this probability, however small: m 2^-e, by one draw for m, some for 2^-e.

    Draws are multiples of 2^-53, and so is m. P(u < m) = m.
    """
    m, exponent = math.frexp(probability)
    halvings, part = -exponent, 0
    found: NDArray[np.bool_] = draw(part) < m
    while halvings > 0:
        part, now = part + 1, min(halvings, UNIFORM_BITS)
        found &= draw(part) < 2.0**-now
        halvings -= now
    return found
