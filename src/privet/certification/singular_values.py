"""Proved upper bounds of singular values, in floating point.

| symbol | here                   | meaning                                                       |
|--------|------------------------|---------------------------------------------------------------|
| u      | `UNIT`                 | 2^-53, the rounding unit of double precision                  |
| g(k)   | `gamma`                | k u / (1 - k u): relative error of a sum of k products        |
| G, t   | in `_top_eigenvalue`   | fl(A^T A) on the smaller side; a little above its eigenvalues |
| R      | in `_top_eigenvalue`   | the witness: R R^T is nearly t I - G                          |

*Factor.* t is a little above the largest eigenvalue of G as an eigensolver sees it, R the Cholesky
factor of t I - G. Neither solver is trusted. Let E = R R^T - (t I - G). Then t I - G = R R^T - E is
at least -|E| I, so no eigenvalue of G is above t + |E|. |E| is at most what we compute of it plus
g(n) |R|_F^2 for computing it, and |G - A^T A| <= g(k) | |A|^T |A| | for sums of k terms (Higham,
"Accuracy and stability of numerical algorithms", section 3.5). Any R would prove something; a good
one makes the bound tight to about 1e-9. Rump ("Verification of positive definiteness", 2006) has
the same idea with an a priori bound of E, which has to trust how a library factorises.

*Sums.* |A| <= sqrt(largest row sum of |A| * largest column sum of |A|) (Schur's test).

*Symbols.* A circular convolution is diagonal in frequency: its norm is the largest of the norms of
the c_out x c_in matrices sum over taps of kernel[tap] e^(i angle), bounded as above. Cosines are
taken directly, not by a fast transform, so that the error of each is plain.

What is assumed: IEEE doubles, rounding to nearest, and that sums of products are computed as sums
of products, in any order, with or without fused operations. Every function returns at least the
truth.
"""

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Matrix = NDArray[np.float64]

UNIT: Final = 2.0**-53
TINY: Final = float(np.finfo(np.float64).tiny)  # what a product may lose by underflow
CHUNK: Final = 4_000_000  # entries of symbols held at a time
TWIDDLE: Final = 128  # units of error of one cosine: three quotients, their sum, 2 pi, the cosine


def sums_bound(matrix: Any) -> float:
    """Schur's test; a bound of the norm of |A|, too."""
    rows, columns = (float(np.max(abs(matrix).sum(axis))) for axis in (1, 0))
    return up(math.sqrt(rows) * math.sqrt(columns) * (1.0 + gamma(sum(matrix.shape))))


def matrix_bound(matrix: Any) -> float:
    """The largest singular value of a matrix, sparse or dense."""
    largest = float(abs(matrix).max())
    if not 0.0 < largest < math.inf:
        return 0.0 if largest == 0.0 else math.inf
    size = _power_of_two(largest)
    matrix = matrix * (1.0 / size)
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    terms, side = tall.shape
    gram = tall.T @ tall
    gram = gram.toarray() if sparse.issparse(gram) else gram
    error = gamma(terms) * sums_bound(matrix) ** 2 + side * terms * TINY
    return up(size * (_root(_top_eigenvalue(gram[None]) + up(error)) + side * terms * TINY))


def symbol_bound(kernel: Matrix, circle: tuple[int, ...]) -> float:
    """The largest norm of a symbol, over the frequencies of a circular grid.

    A complex matrix P + iQ has the singular values of the real one of twice its size, [P -Q; Q P].
    A kernel is real, so opposite frequencies have one norm and half of them are enough.
    """
    o, i, *lengths = kernel.shape
    largest = float(np.abs(kernel).max())
    if not 0.0 < largest < math.inf:
        return 0.0 if largest == 0.0 else math.inf
    size = _power_of_two(largest)
    flat = kernel.reshape(o, i, -1) * (1.0 / size)
    # An entry of P or Q is a sum of taps times cosines; each stands twice in the real matrix.
    units = (TWIDDLE + flat.shape[-1] + 4) * UNIT
    off = 2.0 * units * _frobenius(np.abs(flat).sum(-1)) * (1.0 + 4 * units) + flat.size * TINY
    angles = _angles(circle, tuple(lengths))
    step = max(1, CHUNK // (4 * o * i))
    chunks = (angles[k : k + step] for k in range(0, len(angles), step))
    return up(size * (max(_stack_bound(_symbols(flat, chunk)) for chunk in chunks) + off))


@lru_cache(maxsize=8)  # a network in training asks for the same ones after each step
def _angles(circle: tuple[int, ...], lengths: tuple[int, ...]) -> Matrix:
    """Of each tap of a kernel, at half of the frequencies of a circular grid."""
    half = np.array(list(np.ndindex(circle[0] // 2 + 1, *circle[1:])))
    turns = half[:, None, :] * np.array(list(np.ndindex(*lengths))) % np.array(circle)
    angles: Matrix = 2.0 * math.pi * (turns / np.array(circle)).sum(-1)
    angles.flags.writeable = False
    return angles


def _symbols(flat: Matrix, angles: Matrix) -> Matrix:
    p, q = (np.einsum("ft,oit->foi", wave(angles), flat) for wave in (np.cos, np.sin))
    return np.concatenate([np.concatenate([p, -q], 2), np.concatenate([q, p], 2)], 1)


def _stack_bound(stack: Matrix) -> float:
    """The largest norm of any of the matrices."""
    tall = stack if stack.shape[1] >= stack.shape[2] else stack.transpose(0, 2, 1)
    terms, side = tall.shape[1:]
    squares = float(np.square(tall).sum((1, 2)).max()) * (1.0 + gamma(terms * side))
    error = gamma(terms) * squares + side * terms * TINY
    return _root(_top_eigenvalue(tall.transpose(0, 2, 1) @ tall) + up(error))


def _top_eigenvalue(gram: Matrix) -> float:
    """At least every eigenvalue of every matrix of a stack, by a witness."""
    if not np.isfinite(gram).all():
        return math.inf
    low = np.tril(gram)
    gram = low + np.tril(gram, -1).transpose(0, 2, 1)  # exactly symmetric
    side = gram.shape[-1]
    top = max(float(np.linalg.eigvalsh(gram).max()), 0.0)
    for margin in (4 * side * UNIT * 8.0**k for k in range(8)):
        t = top * (1.0 + margin) + side * 1e3 * TINY
        shifted = t * np.eye(side) - gram
        try:
            factor = np.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            continue
        return up(t + _residual(factor, shifted) + 2.0 * UNIT * float(np.abs(shifted).max()))
    return math.inf


def _residual(factor: Matrix, shifted: Matrix) -> float:
    """At least the norm of R R^T - (t I - G), for every matrix of the stack."""
    side = factor.shape[-1]
    computed = factor @ factor.transpose(0, 2, 1) - shifted
    squares = float(np.square(factor).sum((1, 2)).max()) * (1.0 + gamma(side * side))
    seen = _frobenius(computed) * (1.0 + 2.0 * UNIT)
    return up(seen + gamma(side) * squares + side * side * TINY)


def _frobenius(stack: Matrix) -> float:
    """At least the norm of a matrix, or of every matrix of a stack."""
    # Squares below TINY are lost; matrices are scaled to about one, so that hardly counts.
    size = math.prod(stack.shape[-2:])
    lost = math.sqrt(size) * math.sqrt(TINY)
    largest = math.sqrt(float(np.square(stack).sum((-2, -1)).max()))
    return up(largest * (1.0 + gamma(size)) + lost)


def _power_of_two(largest: float) -> float:
    """About the largest entry; dividing by it is exact, but for entries near TINY of it."""
    return math.ldexp(1.0, min(max(math.frexp(largest)[1], -1000), 1000))


def gamma(terms: int) -> float:
    """g(k), for two more terms than asked: the constants around it are rounded as well."""
    return (terms + 2) * UNIT / (1.0 - (terms + 2) * UNIT)


def _root(square: float) -> float:
    return up(math.sqrt(square))


def up(value: float) -> float:
    """More than the few roundings that made the value."""
    return value * (1.0 + 32.0 * UNIT)
