"""Two worlds, if the mechanism is Gaussian: a lower bound of mu, and epsilon from it.

The test that says "with" from a threshold on errs at rates alpha and beta. Under mu-GDP (Dong, Roth
and Su, 2022) beta >= Phi(Phi^-1(1 - alpha) - mu), so upper bounds of both rates give

    mu >= Phi^-1(1 - alpha) - Phi^-1(beta).

One point of the curve fixes mu, and mu fixes epsilon at every delta: the tails, where an audit
without assumptions has to look and finds few runs, are extrapolated. Hence the power, and hence the
assumption. Thresholds near the middle serve best, where both rates are known well.

| symbol      | here            | meaning                                        |
|-------------|-----------------|------------------------------------------------|
| alpha, beta | of `rectangle`  | upper bounds of the error rates of a test      |
| mu          | `mu_of`         | sensitivity over standard deviation            |

Guarantee: if the mechanism is mu-GDP, the bound of mu is above it with probability at most
1 - confidence. So "not mu-GDP for any smaller mu" assumes nothing but independent runs. The
conversion to epsilon at delta assumes that the mechanism is mu-GDP for *some* mu exactly: of
another mechanism that fails mu-GDP, epsilon at this delta may be smaller.
Proof: as for `two_worlds`; a mechanism that is mu-GDP has no test with smaller errors.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from privet.audits.evidence import Bound, check_confidence, check_delta
from privet.audits.two_worlds import (
    INDEPENDENT,
    Floats,
    Strategy,
    check_strategy,
    ranked,
    rectangle,
    scores,
    split_value,
)
from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian

GDP: Final = "the trade-off function of the mechanism is that of mu-GDP for some mu"
_SLACK: Final = 4e-9  # relative; Gaussian.epsilon rounds up by 1e-9, a lower bound must not


def gaussian(
    without: ArrayLike,
    with_: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    strategy: Strategy = "split",
    seed: int = 0,
) -> Bound:
    """A lower bound of epsilon at delta for a mechanism that is mu-GDP for some mu."""
    mu = mu_lower(without, with_, confidence=confidence, strategy=strategy, seed=seed)
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        estimator=f"two worlds, mu-GDP, {strategy}",
        assumptions=(INDEPENDENT, GDP),
    )


def mu_lower(
    without: ArrayLike,
    with_: ArrayLike,
    *,
    confidence: float = 0.95,
    strategy: Strategy = "split",
    seed: int = 0,
) -> float:
    """The mechanism is not mu-GDP for any mu below this; 0 where nothing is shown."""
    level = check_confidence(confidence)
    check_strategy(strategy)
    worlds = scores(without, with_)
    if strategy == "split":
        mu = float(split_value(worlds, lambda c, a: mu_of(*rectangle(c, a)), level, seed))
    else:
        mu = float(np.max(mu_of(*ranked(worlds, level))))
    return max(0.0, mu)


def mu_of(alpha: Any, beta: Any) -> Floats:
    """Phi^-1(1 - alpha) - Phi^-1(beta)."""
    return np.asarray(-ndtri(alpha) - ndtri(beta))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-GDP at delta, never rounded up."""
    check_delta(delta)
    if delta == 0.0:
        raise InputError(
            "no epsilon at delta 0 under mu-GDP", got=delta, expected="delta > 0", fix="try 1e-5"
        )
    return Gaussian(mu).epsilon(delta) * (1.0 - _SLACK) if mu > 0.0 else 0.0
