"""What k poisoned training records can do, read off the privacy curve of training.

| symbol     | here                        | meaning                                               |
|------------|-----------------------------|-------------------------------------------------------|
| f          | `tradeoff.beta`             | trade-off function of training, one record            |
| g = 1 - f  | in `after_changes`          | most probability that an event of probability q gets  |
| k          | `records`                   | records added or removed                              |
| f_k        | 1 - g(g(... g(alpha)))      | trade-off function for groups of k                    |
| p          | `p_lower`, `accuracy_lower` | probability, or mean, over the randomness of training |

Guarantee. Let training be f-DP between neighbours, D' be k neighbour steps from D, and h any
function of the trained model with values in [0, 1]. If E h(M(D)) >= p, then
E h(M(D')) >= f_k(1 - p).

Proof. 1 - h is a randomised test, so by the definition of f its mean q <= 1 - p becomes at most
g(q) at a neighbour. g rises, so k steps give at most g(g(... g(1 - p))): group privacy, f_k =
1 - (1 - f)^(o k) (Dong, Roth and Su, 2022, Theorem 2.14). For mu-GDP f_k is (k mu)-GDP. Our curves
are lower bounds of f, so the result is one too; each step is rounded up.

What is assumed, and what a result does not say:

* Steps are those of the curve. Under add/remove a record that is *changed* counts as two steps;
  with a replace-one curve as one.
* The attacker knows everything but the randomness of training, and chooses the records before it is
  drawn. The test input or the test set is fixed.
* p is over that randomness. Training several models on the same data estimates it, and each of them
  is a release that the ledger charges; the curve here is the one of a *single* run.
* About the one model that was trained this says nothing: it is a draw. One model's accuracy a
  bounds the mean accuracy very weakly (`mean_lower` of one value); say "if mean accuracy is at
  least p" and mean it as an assumption, or train several.
* delta > 0 is part of the curve and adds up: f_k(0) falls with k.
"""

import math
from collections.abc import Sequence
from typing import Final

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, rel_entr

from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian, TradeOff

ROUNDING: Final = 2.0**-48  # more than an evaluation of a curve loses
MOST_RECORDS: Final = 100_000


def after_changes(tradeoff: TradeOff, records: int, probability: float) -> float:
    """Least probability, or mean of anything in [0, 1], after so many steps: f_k(1 - p).

    Args:
        tradeoff: of one training run, for the neighbours that are counted.
        records: k, how many were added or removed.
        probability: lower bound of it before.
    """
    if records < 0:
        raise InputError("bad number of records", got=records, expected="at least 0")
    _check_probability(probability)
    if records == 0:
        return probability
    if isinstance(tradeoff, Gaussian):
        kept = float(ndtr(ndtri(probability) - records * tradeoff.mu))
        return max(0.0, kept * (1.0 - ROUNDING) - ROUNDING)
    lost = 1.0 - probability
    for _ in range(records):
        lost = min(1.0, _step(tradeoff, lost))
    return 1.0 - lost


def accuracy_after_poisoning(tradeoff: TradeOff, records: int, accuracy_lower: float) -> float:
    """Least mean accuracy on a fixed test set after `records` were added or removed.

    Accuracy on a fixed set is a function of the model in [0, 1], so the guarantee above is about
    it. The mean is over the randomness of training, before and after.

    Args:
        tradeoff: of one training run.
        records: k, how many were added or removed.
        accuracy_lower: lower bound of the *mean* accuracy, such as `mean_lower` of several models.
    """
    return after_changes(tradeoff, records, accuracy_lower)


def certified_records(tradeoff: TradeOff, p_lower: float, *, most: int = MOST_RECORDS) -> int:
    """Most records that can be added or removed while a prediction keeps probability above 1/2.

    Args:
        tradeoff: of one training run.
        p_lower: lower bound of the probability, over the randomness of training, that the model
            predicts this class; from the votes of models trained independently.
        most: where to stop counting.
    """
    _check_probability(p_lower)
    if p_lower <= 0.5:
        return 0
    if isinstance(tradeoff, Gaussian):
        steps = float(ndtri(p_lower)) / tradeoff.mu * (1.0 - 1e-12)
        return min(most, math.ceil(steps) - 1) if steps < most else most
    lost = 1.0 - p_lower
    for records in range(most):
        lost = _step(tradeoff, lost)
        if lost >= 0.5:
            return records
    return most


def mean_lower(values: Sequence[float], alpha: float) -> float:
    """Lower bound of the mean of values in [0, 1] from independent runs; confidence 1 - alpha.

    Chernoff's bound in Hoeffding's form: n values of mean m average to a > m or more with
    probability at most exp(-n kl(a, m)), kl the relative entropy of two coins. Nothing
    is assumed of the values but independence. One value of 0.95 gives 0.03 at alpha = 0.05: a
    single model says little.
    """
    if not values or not all(0 <= value <= 1 for value in values):
        raise InputError("bad results", got=values, expected="one or more numbers in [0, 1]")
    check_level(alpha)
    mean = math.fsum(values) / len(values)
    allowed = -math.log(alpha) / len(values)
    if mean == 0.0 or _coins(mean, 1e-300) <= allowed:
        return 0.0
    root = float(brentq(lambda m: _coins(mean, m) - allowed, 1e-300, mean, xtol=1e-15))
    return max(0.0, root * (1.0 - 1e-9) - 1e-12)


def runs_for_mean(mean: float, wanted: float, alpha: float) -> int:
    """How many values of this average make `mean_lower` reach `wanted`, 0 < wanted < mean <= 1.

    The least n with n kl(mean, wanted) >= ln(1/alpha), and one part in 10^6 more: it rounds down.
    """
    check_level(alpha)
    if not 0 < wanted < mean <= 1:
        raise InputError("bad bound", got=wanted, expected=f"between 0 and the mean {mean:g}")
    return math.ceil(-math.log(alpha) / _coins(mean, wanted) * (1.0 + 1e-6))


def check_level(alpha: float) -> None:
    """Refuse what is no chance of an error."""
    if not 0 < alpha < 1:
        raise InputError("bad alpha", got=alpha, expected="0 < alpha < 1", fix="try 0.001")


def _step(tradeoff: TradeOff, lost: float) -> float:
    """g, rounded up; it cannot fall below its argument, as no test is worse than a coin."""
    return max(lost, 1.0 - tradeoff.beta(min(lost, 1.0))) + ROUNDING


def _coins(a: float, b: float) -> float:
    return float(rel_entr(a, b) + rel_entr(1.0 - a, 1.0 - b))


def _check_probability(value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError("bad probability", got=value, expected="between 0 and 1")
