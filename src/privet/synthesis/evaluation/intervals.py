"""How sure a share, a point or the area of a curve is: 95 % intervals.

`share` is exact (Clopper and Pearson), and so is `found_at`. `area` follows DeLong et al. (1988):
the variance of the area is that of its two projections, the mean win of each positive and of each
negative score. Where everything is won, that variance is 0 and says nothing; then as many
independent pairs as there are of the rarer kind are taken to be won, and the exact interval of
their share is given.
"""

import math
from typing import Final

import numpy as np
from scipy.special import betainc
from scipy.stats import rankdata

from privet.privacy.confidence import lower_bound, upper_bound
from privet.synthesis.evaluation.measure import Figures
from privet.synthesis.evaluation.side import Floats

ALPHA: Final = 0.05
_Z: Final = 1.959964


def share(hits: int, draws: int) -> Figures:
    """A share with its interval; None where nothing was drawn."""
    if draws == 0:
        return {"share": None, "low": 0.0, "high": 1.0, "of": 0}
    low, high = lower_bound(hits, draws, ALPHA / 2), upper_bound(hits, draws, ALPHA / 2)
    return {"share": hits / draws, "low": float(low), "high": float(high), "of": draws}


def found_at(rate: float, members: Floats, others: Floats) -> Figures:
    """The share of members above the threshold that a share `rate` of all others is above.

    The threshold is that of the population, which the sample of n others brackets: of the k-th
    largest of n continuous scores, the share of the population above it is Beta(k, n - k + 1),
    whatever the scores are. Take the largest k whose share is at most `rate`, and the least whose
    share is at least `rate`, each but for a chance of 1.25 %; the members above the first, and from
    the second on, have exact bounds that fail as rarely. Together 5 %. Where n is too small for
    such a k the bound is 0, or 1: so few others do not tell.
    """
    n, m, part = len(others), len(members), ALPHA / 4
    k, falling = np.arange(1, n + 1), np.sort(others)[::-1]
    below = betainc(k, n - k + 1.0, rate)  # the chance of a share of at most `rate`
    safe, wide = np.flatnonzero(below >= 1 - part), np.flatnonzero(below <= part)
    low = lower_bound((members > falling[safe[-1]]).sum(), m, part) if len(safe) else 0.0
    high = upper_bound((members >= falling[wide[0]]).sum(), m, part) if len(wide) else 1.0
    hits = int((members > falling[int(rate * n)]).sum())
    return {"share": hits / m, "low": float(low), "high": float(high), "of": m}


def area(positive: Floats, negative: Floats) -> Figures:
    """Area under the curve of scores (ties win half), with its interval."""
    m, n = len(positive), len(negative)
    if not (m and n):
        return {"auroc": None, "low": 0.0, "high": 1.0, "positives": m, "negatives": n}
    together = rankdata(np.concatenate([positive, negative]))
    wins = (together[:m] - rankdata(positive)) / n  # of each positive, over negatives
    losses = 1.0 - (together[m:] - rankdata(negative)) / m  # of each negative, to positives
    auroc = float(wins.mean())
    low, high = _ends(auroc, _spread(wins, losses), min(m, n))
    return {"auroc": auroc, "low": low, "high": high, "positives": m, "negatives": n}


def _spread(wins: Floats, losses: Floats) -> float:
    parts = [float(part.var(ddof=1)) / len(part) for part in (wins, losses) if len(part) > 1]
    return math.sqrt(sum(parts))


def _ends(auroc: float, deviation: float, pairs: int) -> tuple[float, float]:
    if deviation > 0.0:
        return max(0.0, auroc - _Z * deviation), min(1.0, auroc + _Z * deviation)
    exact = share(round(auroc * pairs), pairs)
    return exact["low"], exact["high"]
