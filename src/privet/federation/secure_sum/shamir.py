"""Shamir's secret sharing (1979): any t of n shares give the secret, fewer say nothing of it.

| symbol | here        | meaning                                                              |
|--------|-------------|----------------------------------------------------------------------|
| p      | `PRIME`     | 2^256 + 297, the least prime above all secrets of 32 bytes           |
| t      | `threshold` | how many shares are needed                                           |
| f      |             | a polynomial of degree below t over GF(p), f(0) the secret           |
| x, y   | `point`     | a share is y = f(x) at the point x of whoever keeps it, x from 1 on  |

**Proof note.** f is uniform among the polynomials of degree below t with f(0) = s: its other t - 1
coefficients are drawn uniformly. Through t - 1 given shares and any value at 0 there is exactly one
such polynomial. So t - 1 shares have the same (uniform) distribution whatever s is.

A share is worth nothing if it was tampered with: nothing here can tell. Whoever combines must know
the secret by something else (its public key, a commitment).
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from privet.federation.secure_sum.refusals import Refused

PRIME: Final = 2**256 + 297
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33


def split(secret: bytes, threshold: int, points: Iterable[int]) -> dict[int, bytes]:
    """A share of the secret for every point."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    drawn = (secrets.randbelow(PRIME) for _ in range(threshold - 1))
    polynomial = (int.from_bytes(secret), *drawn)
    return {x: value_at(x, polynomial).to_bytes(SHARE_BYTES) for x in points}


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
    """The secret, from the shares at the points that `weights_at_zero` was asked about.

    Raises:
        Refused: the shares do not belong to any secret.
    """
    total = sum(weight * number_of(shares[x]) for x, weight in weights.items()) % PRIME
    if total >= 2 ** (8 * SECRET_BYTES):
        raise Refused("shares that do not fit together")
    return total.to_bytes(SECRET_BYTES)


def number_of(share: bytes) -> int:
    """A share as a number of the field."""
    number = int.from_bytes(share)
    if len(share) != SHARE_BYTES or number >= PRIME:
        raise Refused("what should be a share is none", got=f"{len(share)} bytes")
    return number


def value_at(x: int, polynomial: Sequence[int], prime: int = PRIME) -> int:
    """f(x), the constant coefficient first; Horner's rule."""
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % prime
    return value


def weights_at_zero(points: Iterable[int], prime: int = PRIME) -> dict[int, int]:
    """Lagrange's weights w with f(0) = sum of w_x f(x), for as many points as f has coefficients.

    They depend on the points alone, so that many secrets share them.
    """
    points = tuple(points)
    if len(set(points)) != len(points) or any(not 0 < x < prime for x in points):
        raise ValueError("points must differ and lie between 1 and p - 1")
    weights = {}
    for x in points:
        above, below = 1, 1
        for other in points:
            if other != x:
                above, below = above * other % prime, below * (other - x) % prime
        weights[x] = above * pow(below, -1, prime) % prime
    return weights
