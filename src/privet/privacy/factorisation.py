"""Which correlation of the noise hurts training least: the coefficients of `correlated`.

The iterates of SGD are A y, where y are the noisy sums and A says how much of every sum is in every
iterate. With noise C^-1 z their error has covariance B B^T, B = A C^-1 (C is built from c as in
`correlated`), so the mean squared error over all iterates and coordinates is |A C^-1|^2 / T in
units of the noise's variance. The columns of C must have norm 1, hence the objective

    minimise over c:  |c|^2 |A C^-1|^2 / T,      no constraint left: it does not see the scale of c.

| symbol        | meaning                                                              |
|---------------|----------------------------------------------------------------------|
| T             | `steps`                                                              |
| A             | (prefix sums) diag(learning rates) (momentum), lower triangular      |
| d             | first column of C^-1: the power series 1/c, since C is Toeplitz      |
| u             | first column of (momentum) C^-1                                      |

Column s of A C^-1 is the running sum over t of rate_t u_(t-s); with a constant rate all columns are
pieces of one. The gradient is exact: the derivative of d by c_j is -(d * d), shifted by j.

Nothing here touches data: T, momentum and schedule are constants of the plan.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter

from privet.errors import InputError

Vector = NDArray[np.float64]

ROUNDING: Final = 1e-12  # how far below norm 1 the coefficients are left
STRIDE: Final = 1e-2  # of the first step of the search: longer ones reach series that explode


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What training makes of the noisy sums.

    Attributes:
        steps: T.
        momentum: of SGD (0: none); the velocity is v_t = momentum v_(t-1) + y_t.
        last_rate: the learning rate falls linearly from 1 towards this value, which it would reach
            at step T; 1 keeps it constant, 0 is what `dpsgd` does.
    """

    steps: int
    momentum: float = 0.0
    last_rate: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise InputError("bad number of steps", got=self.steps, expected="at least 1")
        if not 0 <= self.momentum < 1:
            raise InputError("bad momentum", got=self.momentum, expected="0 <= momentum < 1")
        if not 0 <= self.last_rate < math.inf:
            raise InputError("bad last rate", got=self.last_rate, expected="at least 0")

    @property
    def rates(self) -> Vector:
        """The learning rate of each step."""
        return 1.0 - (1.0 - self.last_rate) * np.arange(self.steps) / self.steps

    def matrix(self) -> Vector:
        """A itself; T x T numbers."""
        lag = np.subtract.outer(np.arange(self.steps), np.arange(self.steps))
        velocity = np.where(lag >= 0, self.momentum ** np.maximum(lag, 0), 0.0)
        return np.cumsum(self.rates[:, None] * velocity, axis=0)


def expected_error(coefficients: tuple[float, ...], workload: Workload) -> float:
    """Root mean square error of an iterate's coordinate, in units of the noise of one step.

    At equal privacy: coefficients of norm below 1 count as if they were scaled up to it.
    """
    c = np.asarray(coefficients, dtype=np.float64)
    value, _ = _squared_error(c, workload)
    return math.sqrt(float(c @ c) * value / workload.steps)


def optimal_coefficients(workload: Workload, bands: int) -> tuple[float, ...]:
    """The coefficients of `bands` bands with the least expected error, of norm just below 1.

    L-BFGS from the square root of the prefix sums, nearly the best factor of that workload. The
    problem is not convex in c; what is returned is never worse than independent noise.
    """
    if not 1 <= bands <= workload.steps:
        raise InputError("bad number of bands", got=bands, expected=f"1 to {workload.steps}")
    c = np.eye(1, bands)[0]
    if bands > 1:
        j = np.arange(1, bands, dtype=np.float64)
        start: Vector = np.cumprod(1.0 - 0.5 / j, dtype=np.float64)  # binomial(2j, j) / 4^j
        options = {"maxiter": 2000, "maxfun": 5000, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-9}
        moves = minimize(
            lambda x: _log_error(start, x, workload),
            np.zeros(bands - 1),
            jac=True,
            method="L-BFGS-B",
            options=options,
        ).x
        found = np.concatenate([[1.0], start + STRIDE * moves])
        if expected_error(tuple(found), workload) <= expected_error((1.0,), workload):
            c = found
    return tuple((c / np.linalg.norm(c) * (1.0 - ROUNDING)).tolist())


def _log_error(start: Vector, moves: Vector, workload: Workload) -> tuple[float, Vector]:
    """The logarithm of the objective with c_0 = 1, and its gradient by the moves from `start`."""
    c = np.concatenate([[1.0], start + STRIDE * moves])
    value, gradient = _squared_error(c, workload)
    if not np.isfinite(value):  # a series that explodes: send the search back to the start
        return 1e3 + float(moves @ moves), 2.0 * moves
    norm = float(c @ c)
    return math.log(norm * value), STRIDE * (2.0 * c / norm + gradient / value)[1:]


def _squared_error(c: Vector, workload: Workload) -> tuple[float, Vector]:
    """|A C^-1|^2 and its gradient by c."""
    impulse = np.zeros(workload.steps)
    impulse[0] = 1.0
    damped = [1.0, -workload.momentum]
    with np.errstate(over="ignore", invalid="ignore"):
        d = lfilter([1.0], c, impulse)
        u = lfilter([1.0], damped, d)
        value, by_u = (_constant_rate if workload.last_rate == 1.0 else _any_rate)(u, workload)
        by_d = lfilter([1.0], damped, by_u[::-1])[::-1]
        d_times_d = lfilter([1.0], c, d)
        steps = workload.steps
        gradient = [-float(by_d[j:] @ d_times_d[: steps - j]) for j in range(len(c))]
    return value, np.array(gradient)


def _constant_rate(u: Vector, workload: Workload) -> tuple[float, Vector]:
    """Entry t of the running sum occurs in T - t columns."""
    sums = np.cumsum(u)
    often = workload.steps - np.arange(workload.steps)
    by_u = np.cumsum((2.0 * often * sums)[::-1])[::-1]
    return float(often @ sums**2), by_u


def _any_rate(u: Vector, workload: Workload) -> tuple[float, Vector]:
    """Column after column; T^2 operations."""
    rates, steps = workload.rates, workload.steps
    value, by_u = 0.0, np.zeros(steps)
    for s in range(steps):
        sums = np.cumsum(rates[s:] * u[: steps - s])
        value += float(sums @ sums)
        by_u[: steps - s] += rates[s:] * np.cumsum(2.0 * sums[::-1])[::-1]
    return value, by_u
