"""One run, for a whole trade-off function (Mahloujifar, Melis and Chaudhuri, 2024).

The game is that of `one_run`. Instead of one (epsilon, delta), a whole curve f is tested: "the
mechanism is f-DP" has far more to say about many guesses than any single point of f.

| paper          | here             | meaning                                                  |
|----------------|------------------|----------------------------------------------------------|
| m, c', c       | `Guesses`        | canaries, guesses made, correct guesses                  |
| f              | `curve`          | the trade-off function under test, symmetric and convex  |
| 1 - f inverted | `curve.shifted`  | least probability under a neighbour: G(r) = f(1 - r)     |
| r_i, h_i       | `right`, `wrong` | (1/m) sum over k >= i of k p_k, and of (c' - k) p_k      |
| tau            | `level`          | probability of c or more correct guesses                 |

Theorem. Let p_k be the probability of k correct guesses. If the mechanism is f-DP between data with
and without any one canary, then h_(i-1) >= G(r_i) for every i.
Proof. Fix all coins but that of canary j. Let A be the event that j is guessed to be s while at
least i - 1 guesses of the others are right. If coin j is s, A says: j is right, and so are at least
i in all. If it is not: j is wrong, and at least i - 1 are right. By f-DP the probability of the
latter is at least G of the former. G is convex and rises, so the same holds of the means over s,
over the other coins and over j, and these are r_i and h_(i-1).

`refutes` asks whether P[c or more] = tau is possible. It puts all of tau on c and, going down,
gives each number of correct guesses the least probability that the theorem demands. If the total
exceeds 1, tau is impossible.
Proof that no other law does better. Let p* be the result, of total mass t* > 1, and R = m r, H = m
h. At R*_i let a_i >= 0 be the slope of the convex function R -> m G(R/m). Where the theorem is
tight for p*, every law p has H_(i-1) - a_i R_i >= H*_(i-1) - a_i R*_i. Weigh these by l_i: from the
lowest number that p* reaches, where L = A = 0, let L_(k+1) = (n + k A_k)/(c' - k),
l_(k+1) = L_(k+1) - L_k and A_(k+1) = A_k + a_(k+1) l_(k+1). L rises, so l_i >= 0. Now

    P[c or more] + sum over i <= c of l_i (H_(i-1) - a_i R_i) = sum over k of p_k phi(k)

with phi(k) = (c' - k) L_(k+1) - k A_k = n for k < c (0 below the lowest), and for k >= c
phi(k) = 1 + (c' - k) L_c - k A_c, which falls in k. Scale n > 0 such that phi(c) = n. The sum is
then at most n for every law, and n t* for p*. Subtract: P[c or more] <= tau - n (t* - 1) < tau.

Guarantee of `refuted`: a mechanism that is f-DP is refuted with probability at most 1 - confidence;
nothing is assumed but the coins. Guarantee of `one_run_gaussian`: if the mechanism is mu-GDP, the
mu found is above it with probability at most 1 - confidence. The conversion to epsilon assumes that
the mechanism is mu-GDP for some mu exactly; of another, epsilon at this delta may be smaller.

Deviations: the proof of optimality is ours. Several numbers of guesses share the level.
"""

from collections.abc import Callable, Sequence
from typing import Final

from numpy.typing import ArrayLike

from privet.audits.evidence import Bound, check_confidence, check_delta
from privet.audits.gaussian import GDP, gaussian_epsilon
from privet.audits.one_run import COINS, SHARES, Guesses, guessed
from privet.audits.two_worlds import Strategy
from privet.privacy.tradeoff import Gaussian, TradeOff

_SLACK: Final = 1e-9  # of the total mass; rounding in the recursion is below 1e-11
_TOP: Final = 64.0  # a mu beyond any audit
_HALVINGS: Final = 30


def refuted(
    curve: TradeOff,
    scores: ArrayLike,
    included: ArrayLike,
    *,
    confidence: float = 0.999,
    shares: Sequence[float] = SHARES,
    strategy: Strategy = "bonferroni",
    balance: float = 0.5,
    seed: int = 0,
) -> Guesses | None:
    """Guesses that are too good for a mechanism with this curve; None if none are."""
    level = check_confidence(confidence)
    trials = guessed(scores, included, shares, strategy, balance, seed)
    return next((t for t in trials if refutes(curve.shifted, t, level / len(trials))), None)


def one_run_gaussian(
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
    """A lower bound of epsilon at delta for a mechanism that is mu-GDP for some mu."""
    check_delta(delta)
    level = check_confidence(confidence)
    trials = guessed(scores, included, shares, strategy, balance, seed)
    mu = max(mu_lower(trial, level / len(trials)) for trial in trials)
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        delta=delta,
        confidence=confidence,
        estimator="one run, mu-GDP" if len(shares) == 1 else f"one run, mu-GDP, {strategy}",
        assumptions=(COINS, GDP),
    )


def mu_lower(guesses: Guesses, level: float) -> float:
    """The largest mu whose curve the guesses refute; 0 where there is none.

    Curves of the family are ordered, so whatever refutes one refutes those of smaller mu.
    """
    low, high = 0.0, _TOP
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if refutes(Gaussian(middle).shifted, guesses, level):
            low = middle
        else:
            high = middle
    return low


def refutes(shifted: Callable[[float], float], guesses: Guesses, level: float) -> bool:
    """Whether so many correct guesses have a probability below the level under the curve."""
    m, made, correct = guesses.canaries, guesses.made, guesses.correct
    right, wrong = level * correct / m, level * (made - correct) / m
    whole = made / m * (1.0 + _SLACK)
    for i in range(correct - 1, -1, -1):
        needed = shifted(right)
        if needed <= wrong:
            break  # nothing is demanded any more, here or further down
        right, wrong = right + i / (made - i) * (needed - wrong), needed
        if right + wrong > whole:
            return True
    return right + wrong > whole
