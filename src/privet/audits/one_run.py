"""One run: a lower bound of epsilon from canaries that fair coins let in (Steinke et al., 2023).

Every one of m canaries is included by its own fair coin, the mechanism runs once, and the auditor
guesses r of the coins from what it put out. Privacy limits how many guesses can be right.

| paper      | here         | meaning                                                              |
|------------|--------------|----------------------------------------------------------------------|
| m          | `canaries`   | canaries with a coin                                                 |
| S          | `included`   | the coins                                                            |
| T          | `guesses`    | "in" for the highest scores, "out" for the lowest, abstain between   |
| r, k+, k-  | `made`, `plus`, `minus` | guesses; of them "in" and "out"                           |
| W, v       | `correct`    | correct guesses                                                      |
| q          | e^eps / (1 + e^eps) | how often randomised response is right                        |

Theorem. If the mechanism is (eps, delta)-DP between data with and without any one canary, and r
guesses are always made, then with B ~ Binomial(r, q), tail = P[B >= v] and v >= 1

    P[W >= v] <= tail + m delta tail (1 - tail) / (v P[B = v]).

Proof. Fix the output, hence the guesses, and let pi be the posterior law of the coins s, which is
proportional to the likelihood as the prior is uniform. Let s^i be s with coin i turned, and
e_i(s) = max(0, 1 - e^eps pi(s^i)/pi(s)); then pi(s) <= e^eps pi(s^i) + e_i(s) pi(s). Add this up
over all s with W(s) = w and over the guesses i that are right in s. Turning one leads to W = w - 1,
and each such state is met r - w + 1 times, once for each wrong guess. So for pi_w = P[W = w]

    w pi_w <= e^eps (r - w + 1) pi_(w-1) + d_w,    where D = sum of d_w has mean at most m delta:

for each s and i, the mean over outputs of e_i where guess i is right is at most the largest
P(E | s) - e^eps P(E | s^i) of an event E, that is delta. The binomial masses b have
w b_w = e^eps (r - w + 1) b_(w-1), so u_w = pi_w / b_w grows by at most z_w = d_w/(w b_w) in a step.
With sum b_w u_w = 1 fixed, P[W >= v] = sum over w >= v of b_w u_w is largest if u takes all its
steps: tail if there is none, and z_k gains tail P[B < k] z_k for k <= v, (1 - tail) P[B >= k] z_k
for k > v. Per unit of d_k both are largest at k = v, as binomials are log-concave: P[B < k]/(k b_k)
= P[B <= k-1] / (e^eps (r-k+1) b_(k-1)) rises in k, and P[B >= k]/(k b_k) falls. This is the theorem
with D in place of m delta; it is linear in D, so take the mean over outputs. For delta = 0 it is
attained by randomised response.

Guarantee: the bound exceeds the true epsilon with probability at most 1 - confidence.
Proof: (eps, delta)-DP implies (eps', delta)-DP for every eps' >= eps, so the least tail over all of
these holds at eps; and where the reported epsilon is above eps, the number of correct guesses is
one whose least tail is at most the level. Several shares: each at a part of the level.

Deviations: the term in delta. The paper has 2 m delta max_i P[v > B >= v - i] / i; ours counts what
a revealed coin adds to a guess that is right with probability q anyway. It is up to several times
smaller, and was nowhere larger where the tail is below a half (compared in the tests).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, expit, log_expit

from privet.audits.evidence import Bound, check_confidence, check_delta
from privet.audits.two_worlds import Strategy, check_strategy
from privet.errors import InputError

COINS: Final = (
    "every canary was included by its own fair coin, and scores know coins only by the run"
)
SHARES: Final = (0.02, 0.05, 0.1, 0.3, 1.0)
_TOP: Final = 64.0  # no audit with fewer than e^60 canaries shows more
_SLACK: Final = 1e-9  # relative: the tails are good to about 1e-12
_TALLIES: Final = 48  # halvings of [0, 64]


@dataclass(frozen=True)
class Guesses:
    """How many coins were guessed, and how many rightly."""

    canaries: int
    made: int
    correct: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.made <= self.canaries or self.made < 1:
            raise InputError(
                "bad guesses",
                got=f"{self.correct} correct of {self.made}, {self.canaries} canaries",
                expected="correct <= made <= canaries, at least one made",
            )


def one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    shares: Sequence[float] = SHARES,
    strategy: Strategy = "bonferroni",
    balance: float = 0.5,
    seed: int = 0,
) -> Bound:
    """A lower bound of epsilon at delta from one run.

    Args:
        scores: of the canaries, higher where one looks included.
        included: the coins.
        delta: of the statement.
        confidence: of the statement.
        shares: of the canaries that are guessed; one fixed beforehand costs nothing.
        strategy: with several shares, divide the level among them (`bonferroni`), or let half of
            the canaries choose one for the other half (`split`; known coins are public then).
        balance: share of the guesses that say "in".
        seed: of the halves.
    """
    check_delta(delta)
    level = check_confidence(confidence)
    trials = guessed(scores, included, shares, strategy, balance, seed)
    found = [least_epsilon(trial, delta, level / len(trials)) for trial in trials]
    return Bound(
        epsilon=max(found),
        delta=delta,
        confidence=confidence,
        estimator="one run" if len(shares) == 1 else f"one run, {strategy}",
        assumptions=(COINS,),
    )


def tail(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The theorem: at least so many correct guesses have at most this probability."""
    r, v = guesses.made, guesses.correct
    if v == 0:
        return 1.0
    upper = float(betainc(v, r - v + 1, expit(epsilon)))  # P[B >= v]
    mass = _mass(r, v, epsilon)
    if mass > 1e-280:
        ratio = upper / mass
    else:  # far out, where the quotient would underflow
        ratio = _ratio_bound(r, v, epsilon) if upper < 0.5 else math.inf
    return min(1.0, upper + guesses.canaries * delta * (1.0 - upper) * ratio / v)


def least_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """The largest epsilon that the guesses refute at the level; 0 where there is none."""
    low, high = 0.0, _TOP
    if tail(guesses, low, delta) * (1.0 + _SLACK) > level:
        return 0.0
    for _ in range(_TALLIES):
        middle = (low + high) / 2.0
        refuted = tail(guesses, middle, delta) * (1.0 + _SLACK) <= level
        low, high = (middle, high) if refuted else (low, middle)
    return low


def guess(
    scores: NDArray[np.float64], included: NDArray[np.bool_], share: float, balance: float
) -> Guesses:
    """Guess "in" for the highest scores and "out" for the lowest, a share of all canaries."""
    made = min(len(scores), max(1, round(share * len(scores))))
    plus = round(balance * made)
    order = np.argsort(scores, kind="stable")  # ties by place, which knows nothing of the coins
    said_out, said_in = order[: made - plus], order[len(order) - plus :]
    correct = int(np.sum(~included[said_out]) + np.sum(included[said_in]))
    return Guesses(canaries=len(scores), made=made, correct=correct)


def guessed(
    scores: ArrayLike,
    included: ArrayLike,
    shares: Sequence[float],
    strategy: str,
    balance: float,
    seed: int,
) -> list[Guesses]:
    """What is tested, each at an equal part of the level.

    Under `split` half of the canaries become ordinary records with known coins: given those, the
    other half's coins are as fair as before, and the theorem holds for them.
    """
    check_strategy(strategy)
    marks, coins = _checked(scores, included, shares, balance)
    if strategy == "bonferroni" or len(shares) == 1:
        return [guess(marks, coins, share, balance) for share in shares]
    order = np.random.default_rng(seed).permutation(len(marks))
    choose, test = order[: len(order) // 2], order[len(order) // 2 :]
    trials = [guess(marks[choose], coins[choose], share, balance) for share in shares]
    worth = [least_epsilon(trial, 0.0, 0.05) for trial in trials]
    return [guess(marks[test], coins[test], shares[int(np.argmax(worth))], balance)]


def _mass(r: int, v: int, epsilon: float) -> float:
    """P[B = v]."""
    log_choose = -math.log(r + 1.0) - betaln(v + 1, r - v + 1)
    return float(np.exp(log_choose + v * log_expit(epsilon) + (r - v) * log_expit(-epsilon)))


def _ratio_bound(r: int, v: int, epsilon: float) -> float:
    """P[B >= v]/P[B = v], at most a geometric series: successive masses fall ever faster."""
    step = math.exp(epsilon) * (r - v) / (v + 1.0)
    return 1.0 / (1.0 - step) if step < 1.0 else math.inf


def _checked(
    scores: ArrayLike, included: ArrayLike, shares: Sequence[float], balance: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    marks, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if marks.ndim != 1 or marks.shape != coins.shape or marks.size < 2 or np.isnan(marks).any():
        raise InputError(
            "bad canaries",
            got=f"scores of shape {marks.shape}, coins of shape {coins.shape}",
            expected="a number and a coin for each of at least two canaries",
        )
    if not np.isin(coins, (0, 1)).all():
        raise InputError("bad coins", got="values other than 0 and 1", expected="included or not")
    if not shares or not all(0.0 < share <= 1.0 for share in shares) or not 0.0 <= balance <= 1.0:
        raise InputError(
            "bad shares of guesses",
            got=f"shares {tuple(shares)}, balance {balance}",
            expected="0 < share <= 1, 0 <= balance <= 1",
        )
    return marks, coins.astype(bool)
