"""Lower confidence bounds of a Bernoulli mean: for one look, for planned looks, for any look.

| bound              | looks                          | built from                            |
|--------------------|--------------------------------|---------------------------------------|
| `lower_bound`      | one, n planned beforehand      | exact binomial tail (Clopper-Pearson) |
| `Schedule`         | planned, alpha split over them | Clopper-Pearson at each               |
| `lower_sequence`   | after every draw, for ever     | an e-process and Ville's inequality   |

All three fail with probability at most alpha: a `lower_sequence` at *any* of its times together.

Gap between frequency and bound, relative to Clopper-Pearson at the same n and alpha = 0.001
(`lower_sequence` with its prior shape 1/4; in brackets the uniform prior, shape 1):

| frequency | n = 100     | 1,000       | 10,000      | 100,000     |
|-----------|-------------|-------------|-------------|-------------|
| 0.6       | 1.36 (1.29) | 1.48 (1.39) | 1.57 (1.48) | 1.65 (1.56) |
| 0.99      | 1.25 (1.30) | 1.39 (1.32) | 1.46 (1.36) | 1.52 (1.43) |
| 1         | 1.08 (1.30) | 1.09 (1.32) | 1.09 (1.32) | 1.09 (1.32) |

Good classifiers vote nearly unanimously, so the shape 1/4 pays: a decision at two noise scales on a
unanimous image needs 327 votes, with shape 1 396, and 301 if n had been guessed right.
`Schedule` (n = 100,000) has 1.1 at its last look, 1.3 at a fifth of n and 1.6 to 2 at its first:
tighter where a radius is to be known well, so curves use it. The sequence stops at any time and
soon where a decision is easy, so decisions use that.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betainccinv, betaincinv, betaln

from privet.errors import InputError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SHAPE: Final = 0.25  # of the e-process's prior; in (0, 1], see `log_e_value`
_SLACK: Final = 1e-12  # relative; the beta functions are good to about 1e-14
_LARGEST_ALPHA: Final = 0.3  # below 1/e, for `lower_sequence`


def lower_bound(hits: Any, draws: Any, alpha: Any) -> Floats:
    """Clopper and Pearson's one-sided lower bound, for a number of draws planned beforehand.

    Guarantee: P(bound > p) <= alpha for every p. The bound is the p at which `hits` or more have
    probability alpha; rounded down.
    """
    k, n = _counts(hits, draws)
    bound = betaincinv(np.maximum(k, 1.0), n - k + 1.0, alpha)
    return np.asarray(np.where(k > 0, bound * (1.0 - _SLACK), 0.0))


def upper_bound(hits: Any, draws: Any, alpha: Any) -> Floats:
    """Clopper and Pearson's one-sided upper bound; 1 where all draws hit. Rounded up."""
    k, n = _counts(hits, draws)
    bound = betainccinv(k + 1.0, np.maximum(n - k, 1.0), alpha)
    return np.asarray(np.where(k < n, np.minimum(1.0, bound * (1.0 + _SLACK)), 1.0))


def log_e_value(hits: Any, draws: Any, p0: Any) -> Floats:
    """The logarithm of an e-process against H0: p <= p0, after `hits` of `draws`.

    M_n = mean over q of (q/p0)^k ((1-q)/(1-p0))^(n-k), where (1-q)/(1-p0) is drawn from Beta(s, 1),
    s = 1/4: a Beta(1, s) prior for q, cut off below p0. It puts the same weight on an error rate
    of 1/10 and of 1/1000 of 1 - p0, up to logarithms, so it needs no guess of p. In closed form

        M_n = s B(k+1, n-k+s) P(Beta(k+1, n-k+s) > p0) / (p0^k (1-p0)^(n-k+s)).

    Guarantee: for every p <= p0, P(M_n >= 1/alpha for any n) <= alpha, however n is chosen.
    Proof: the next draw multiplies the term of q by q/p0 (hit) or (1-q)/(1-p0). The mean of this
    factor, p q/p0 + (1-p)(1-q)/(1-p0), is 1 at p = p0 and increases in p as q > p0; so it is at
    most 1 for p <= p0. M_n is an average of nonnegative supermartingales that start at 1, thus one
    itself, and Ville's inequality applies.
    """
    k, n = _counts(hits, draws)
    with np.errstate(divide="ignore"):  # far below p0 the tail is 0: no evidence, log 0
        tail = np.log(betaincc(k + 1.0, n - k + SHAPE, p0))
        miss = np.log1p(-np.asarray(p0, dtype=np.float64))
        odds = k * np.log(p0) + (n - k + SHAPE) * miss
    return np.asarray(math.log(SHAPE) + betaln(k + 1.0, n - k + SHAPE) + tail - odds)


def exceeds(hits: Any, draws: Any, p0: float, alpha: float) -> NDArray[np.bool_]:
    """Whether p > p0 is established; may be asked after every draw, at level alpha in all."""
    check_alpha(alpha)
    if p0 >= 1.0:
        return np.zeros(np.shape(hits), dtype=bool)
    return np.asarray(log_e_value(hits, draws, p0) >= _needed(alpha))


def lower_sequence(hits: Any, draws: Any, alpha: float) -> Floats:
    """A lower bound that holds after all draws at once: the p0 at which `exceeds` turns.

    Guarantee: P(bound > p after any number of draws) <= alpha, so running maxima hold too.
    Proof: let the bound after n draws be L_n. If L_n > p then M_n(p) >= 1/alpha, given that M_n
    falls in p0 where it is that large; and this has probability at most alpha for all n together.
    M_n does fall. With prior shape s, d ln M_n / d p0 = (1 - 1/M_n) s/(1-p0) - (k - n p0)/(p0
    (1-p0)), which is negative for p0 < k/(n+s). For larger p0, M_n <= max_q of the likelihood ratio
    <= exp(n KL(k/n, p0)) <= e (1 + x <= e^x for k = n; KL <= chi^2 and s <= 1 else), and
    e < 1/alpha. So {p0: M_n >= 1/alpha} is an interval from 0, and bisection finds its end.
    """
    check_alpha(alpha)
    k, n = np.broadcast_arrays(*_counts(hits, draws))
    low, high = np.zeros(k.shape), k / np.maximum(n, 1.0)
    for _ in range(60):
        middle = np.clip((low + high) / 2.0, 1e-300, 1.0 - 1e-16)
        rejected = log_e_value(k, n, middle) >= _needed(alpha)
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


@final
@dataclass(frozen=True)
class Schedule:
    """Planned looks at growing numbers of draws; Clopper-Pearson at each with a part of alpha.

    The looks are n, n/sqrt(2), n/2 ... down to about `first`. The last gets 40 % of alpha and each
    earlier one 0.6 times the part of the next: late looks decide radii, early ones only have to
    recognise the near unanimous, which is cheap in alpha (ln(1/alpha) draws per unit).

    Guarantee: all bounds hold together with probability at least 1 - alpha, hence so does the
    largest, whichever look an image stops at (union bound; the looks do not depend on the draws).
    """

    n: int
    alpha: float
    first: int = 1000

    @cached_property
    def looks(self) -> Counts:
        """Numbers of draws, ascending; the last is n."""
        back = max(0, math.floor(2.0 * math.log2(max(1.0, self.n / self.first)) + 1e-9))
        looks = np.rint(self.n / math.sqrt(2.0) ** np.arange(back, -1, -1))
        return np.unique(looks.astype(np.int64))

    @cached_property
    def parts(self) -> Floats:
        """What each look may spend; the sum is alpha."""
        weights = 0.6 ** np.arange(len(self.looks) - 1, -1, -1.0)
        return np.asarray(self.alpha * (1.0 - _SLACK) * weights / weights.sum())

    def next_look(self, draws: Counts) -> Counts:
        """The first look beyond so many draws; n where there is none."""
        place = np.searchsorted(self.looks, draws, side="right")
        return np.asarray(self.looks[np.minimum(place, len(self.looks) - 1)])

    def lower(self, hits: Counts, draws: Counts) -> Floats:
        """The bound at a look; 0 between looks, where nothing may be said."""
        place = np.minimum(np.searchsorted(self.looks, draws), len(self.looks) - 1)
        at_look = self.looks[place] == draws
        bound = lower_bound(hits, draws, self.parts[place])
        return np.asarray(np.where(at_look, bound, 0.0))

    def projected(self, hits: Counts, draws: Counts) -> Floats:
        """The last look's bound if the frequency stays as it is: a guess, for stopping only."""
        whole = np.rint(hits / np.maximum(draws, 1) * self.n)
        return lower_bound(whole, self.n, self.parts[-1])


def _needed(alpha: float) -> float:
    """ln(1/alpha), and more than the logarithms of beta functions may err (1e-8 at n = 10^7)."""
    return -math.log(alpha) + 1e-6


def check_alpha(alpha: float) -> None:
    """Refuse a level that the proofs do not cover."""
    if not 0.0 < alpha <= _LARGEST_ALPHA:
        raise InputError(
            "bad alpha",
            got=alpha,
            expected=f"above 0 and at most {_LARGEST_ALPHA}",
            fix="try 0.001",
        )


def _counts(hits: Any, draws: Any) -> tuple[Floats, Floats]:
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    if np.any(k < 0) or np.any(k > n):
        raise InputError("bad counts", got="hits outside of 0 to draws", expected="0 <= hits <= n")
    return k, n
