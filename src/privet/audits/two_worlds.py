"""Two worlds: a lower bound of epsilon from runs without and with the record, assuming no shape.

An attack gives every run a score, higher where the run looks more like "with". The test that says
"with" from a threshold t on errs at the rates alpha (false positives) and beta (false negatives).
(epsilon, delta)-differential privacy leaves it no more than

    1 - beta <= e^epsilon alpha + delta    and    1 - alpha <= e^epsilon beta + delta

(Kairouz, Oh and Viswanath, 2015), so upper bounds of both rates bound epsilon from below.

| symbol       | here              | meaning                                                 |
|--------------|-------------------|---------------------------------------------------------|
| alpha, beta  | `alpha`, `beta`   | error rates of a test; here upper bounds of them        |
| t            | `threshold`       | "with" is said from this score on                       |
| p, p'        | -                 | rates of an event in its frequent and its rare world    |
| f            | `curve`           | a trade-off function: f-DP means beta >= f(alpha)       |

Three exact statements about one test, none of which assumes anything of the scores' distribution:

- *Rectangle*: Clopper-Pearson bounds of alpha and beta, the level divided between them.
- *Lone firings*: pair the runs of both worlds, and count the pairs in which the event occurs in one
  world only. Given their number, the number of those of the frequent world is binomial with odds
  p (1 - p') / (p' (1 - p)). A lower bound L of the odds and bounds l <= p <= u give
  p - delta >= p' L (1 - u) (1 - delta/l), that is epsilon >= ln L + ln(1 - u) + ln(1 - delta/l).
  In the tails this is much sharper than a rectangle: errors of both rates add up as squares.
- *Ranks*: the k-th largest of n scores without is exceeded at a rate that is Beta(k, n - k + 1)
  distributed, or less where scores tie, and it knows nothing of the runs with. So fixed ranks can
  be tested on all runs, with the level divided among them; in the other tail likewise.

A threshold must not be chosen by the runs that test it. `split` keeps a share of the runs apart for
the choice of threshold, statement and division of the level: whatever maximises the lower bound
there, at a stricter level and averaged over neighbouring thresholds, as extremes deceive.
`bonferroni` tests fixed ranks.

Guarantee: the bound is above the true epsilon with probability at most 1 - confidence, if the runs
of each world are independent draws and, for lone firings, so are the worlds of each other.
Proof: each statement holds at its level for every test fixed beforehand; under `split` the test is
fixed given the runs kept apart, under `bonferroni` all tests hold at once by the union bound.

Deviations from common practice (Nasr et al., 2021): lone firings; ranks instead of all thresholds;
uneven division of the level between both rates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from privet.audits.evidence import Bound, check_confidence, check_delta
from privet.errors import InputError
from privet.privacy.confidence import lower_bound, upper_bound
from privet.privacy.tradeoff import TradeOff

Floats = NDArray[np.float64]
Strategy = Literal["split", "bonferroni"]

INDEPENDENT: Final = "the runs are independent, in each world and between the worlds"
_CHOICE: Final = 0.15  # of the runs choose the test; more would weaken it, fewer choose badly
_CAUTION: Final = 0.1  # times the level, when choosing: chance must not decide among rare events
_RATIO: Final = 1.25  # of neighbouring ranks among the candidates
_WINDOW: Final = 5  # candidates that are averaged over: ranks within a factor of about 1.6
_RANKS: Final = 24  # of `bonferroni`, in each tail
_DIVISIONS: Final = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])  # alpha's part of the level
_ODDS, _SIDES = 0.8, 0.1  # parts of the level: odds of lone firings; lower and upper bound of p


@dataclass(frozen=True)
class Counts:
    """What tests (one for each entry) did to the runs; floats where they are a forecast.

    Attributes:
        accused, runs_without: false positives, of so many runs without the record.
        missed, runs_with: false negatives, of so many runs with it.
        lone_with, lone_without: pairs of runs of which only that one is said to be "with".
    """

    accused: Floats
    runs_without: int
    missed: Floats
    runs_with: int
    lone_with: Floats
    lone_without: Floats


Measure = Callable[[Counts, float], Floats]
"""What tests show at a level: last axis, the statements to choose from; larger is better."""


@dataclass(frozen=True)
class Choice:
    """A test and a statement, chosen by some runs, with the counts of the others."""

    threshold: float
    statement: int
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A test that errs less than a curve allows, at a stated confidence.

    Attributes:
        alpha, beta: upper bounds of its false positive and false negative rates.
        least: the least false negative rate that the curve allows at alpha; above beta.
        confidence: with which both bounds hold.
    """

    alpha: float
    beta: float
    least: float
    confidence: float


def two_worlds(
    without: ArrayLike,
    with_: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    strategy: Strategy = "split",
    seed: int = 0,
) -> Bound:
    """A lower bound of epsilon at delta; see above. Scores are higher where a run looks "with"."""
    check_delta(delta)
    check_strategy(strategy)
    level = check_confidence(confidence)
    worlds = scores(without, with_)
    if strategy == "split":
        epsilon = float(split_value(worlds, _epsilon_measure(delta), level, seed))
    else:
        epsilon = float(np.max(epsilon_of(*ranked(worlds, level), delta)))
    return Bound(
        epsilon=max(0.0, epsilon),
        delta=delta,
        confidence=confidence,
        estimator=f"two worlds, {strategy}",
        assumptions=(INDEPENDENT,),
    )


def violates(
    curve: TradeOff,
    without: ArrayLike,
    with_: ArrayLike,
    *,
    confidence: float = 0.999,
    strategy: Strategy = "split",
    seed: int = 0,
) -> Violation | None:
    """A test whose errors lie below the curve; None if none is established.

    Guarantee: if the mechanism is f-DP, a violation is found with probability at most
    1 - confidence. Proof: the rates (a, b) of a test have a <= alpha and b <= beta at that
    confidence, so b >= f(a) >= f(alpha) for falling f. Both directions are covered: our curves are
    symmetric, and f = f^-1 says the same of (a, b) and (b, a).
    """
    check_strategy(strategy)
    level = check_confidence(confidence)
    worlds = scores(without, with_)
    if strategy == "split":
        choice = chosen(worlds, lambda c, a: _gap(curve, *rectangle(c, a)), level, seed)
        alphas, betas = (side[choice.statement] for side in rectangle(choice.counts, level))
    else:
        alphas, betas = ranked(worlds, level)
    alphas, betas = np.atleast_1d(alphas), np.atleast_1d(betas)
    best = int(np.argmax(_gap(curve, alphas, betas)))
    alpha, beta = float(alphas[best]), float(betas[best])
    least = curve.beta(alpha)
    if not beta < least:
        return None
    return Violation(alpha=alpha, beta=beta, least=least, confidence=confidence)


def epsilon_of(alpha: Any, beta: Any, delta: float) -> Floats:
    """The larger of ln((1 - delta - beta)/alpha) and ln((1 - delta - alpha)/beta)."""
    alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    found = np.maximum((1.0 - delta - beta) / alpha, (1.0 - delta - alpha) / beta)
    return np.asarray(np.log(np.maximum(found, 1e-300)))


def rectangle(counts: Counts, level: float) -> tuple[Floats, Floats]:
    """Upper bounds of alpha and beta that hold together, for each division of the level."""
    alpha = upper_bound(counts.accused[..., None], counts.runs_without, level * _DIVISIONS)
    beta = upper_bound(counts.missed[..., None], counts.runs_with, level * (1.0 - _DIVISIONS))
    return alpha, beta


def lone_firings(
    frequent: Floats, rare: Floats, fired: Floats, runs: int, level: float, delta: float
) -> Floats:
    """At least ln L + ln(1 - u) + ln(1 - delta/l); fired of runs: the frequent world's event."""
    share = lower_bound(frequent, frequent + rare, level * _ODDS)
    low = lower_bound(fired, runs, level * _SIDES)
    high = upper_bound(fired, runs, level * _SIDES)
    ratio = share / (1.0 - share) * (1.0 - high) * np.maximum(0.0, 1.0 - delta / (low + 1e-300))
    return np.asarray(np.log(np.maximum(ratio, 1e-300)))


def region(
    without: ArrayLike, with_: ArrayLike, *, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Error rates (alpha, beta) that tests at fixed ranks stay below, all at once, by alpha.

    Guarantee: at this confidence the true trade-off function passes below every one of the points.
    """
    alphas, betas = ranked(scores(without, with_), check_confidence(confidence))
    order = np.argsort(alphas)
    return alphas[order], betas[order]


def ranked(worlds: tuple[Floats, Floats], level: float) -> tuple[Floats, Floats]:
    """Upper bounds (alpha, beta) of tests at fixed ranks of either world, all at once."""
    without, with_ = (np.sort(world) for world in worlds)
    tails = [_rank_tail(without, with_, level), _rank_tail(-with_[::-1], -without[::-1], level)]
    (alpha, missed), (beta, accused) = tails
    return np.concatenate([alpha, accused]), np.concatenate([missed, beta])


def chosen(worlds: tuple[Floats, Floats], measure: Measure, level: float, seed: int) -> Choice:
    """Choose a test on a share of the runs; count what it does to the others."""
    (few0, rest0), (few1, rest1) = (_parted(world, seed) for world in worlds)
    best: tuple[float, float, int] = (-np.inf, 0.0, 0)
    for candidates in _candidates(np.sort(few0), np.sort(few1)):
        values = _smoothed(measure(_forecast(few0, few1, candidates), level * _CAUTION))
        test, which = divmod(int(np.argmax(values)), values.shape[1])
        best = max(best, (float(values[test, which]), float(candidates[test]), which))
    _, threshold, statement = best
    return Choice(threshold, statement, _counted(rest0, rest1, threshold))


def split_value(
    worlds: tuple[Floats, Floats], measure: Measure, level: float, seed: int
) -> np.float64:
    """What the chosen statement about the chosen test shows on the runs that did not choose."""
    choice = chosen(worlds, measure, level, seed)
    return np.float64(measure(choice.counts, level)[choice.statement])


def scores(without: ArrayLike, with_: ArrayLike) -> tuple[Floats, Floats]:
    """Both worlds as arrays; refuses what cannot be compared."""
    worlds = (np.asarray(without, dtype=np.float64), np.asarray(with_, dtype=np.float64))
    for name, world in zip(("without", "with"), worlds, strict=True):
        if world.ndim != 1 or world.size < 2 or np.isnan(world).any():
            raise InputError(
                f"bad scores of the world {name} the record",
                got=f"shape {world.shape}" + (" with NaN" if np.isnan(world).any() else ""),
                expected="a row of at least two numbers",
            )
    return worlds


def check_strategy(strategy: str) -> None:
    """Refuse what is no way to choose."""
    if strategy not in ("split", "bonferroni"):
        raise InputError("unknown strategy", got=strategy, expected="split or bonferroni")


def _epsilon_measure(delta: float) -> Measure:
    def measure(c: Counts, level: float) -> Floats:
        frequent, rare = c.lone_with, c.lone_without
        seen, unseen = c.runs_with - c.missed, c.runs_without - c.accused
        above = lone_firings(frequent, rare, seen, c.runs_with, level, delta)
        below = lone_firings(frequent, rare, unseen, c.runs_without, level, delta)
        box = epsilon_of(*rectangle(c, level), delta)
        return np.concatenate([box, above[..., None], below[..., None]], axis=-1)

    return measure


def _gap(curve: TradeOff, alphas: Floats, betas: Floats) -> Floats:
    """How far tests lie below the curve, in standard deviations of mu-GDP: f(alpha) over beta."""
    least = np.vectorize(curve.beta, otypes=[float])(alphas)
    return np.asarray(ndtri(np.maximum(least, 1e-300)) - ndtri(betas))


def _rank_tail(own: Floats, other: Floats, level: float) -> tuple[Floats, Floats]:
    """Tests "score > k-th largest of own": bounds of their rate there, and of the misses there."""
    n = len(own)
    ranks = np.unique(np.rint(np.geomspace(min(4, n), n, _RANKS)).astype(np.int64))
    each = level / (4.0 * len(ranks))  # two tails, two rates
    missed = np.searchsorted(other, own[n - ranks], side="right")
    return upper_bound(ranks - 1, n, each), upper_bound(missed, len(other), each)


def _parted(world: Floats, seed: int) -> tuple[Floats, Floats]:
    # One permutation for both worlds: runs that share a place stay together, and the bound is the
    # same when the worlds change roles.
    order = np.random.default_rng(seed).permutation(len(world))
    few = max(1, round(_CHOICE * len(world)))
    return world[order[:few]], world[order[few:]]


def _candidates(few0: Floats, few1: Floats) -> list[Floats]:
    """Thresholds at geometric ranks, from either tail; each once as "at least", once as "above"."""
    values = [few0[len(few0) - _geometric(len(few0))], few1[_geometric(len(few1)) - 1]]
    return values + [np.nextafter(value, np.inf) for value in values]


def _geometric(n: int) -> NDArray[np.int64]:
    steps = np.arange(1 + int(np.log(n) / np.log(_RATIO)))
    return np.unique(np.append(np.rint(_RATIO**steps), n).astype(np.int64))


def _smoothed(values: Floats) -> Floats:
    half = _WINDOW // 2
    padded = np.pad(np.maximum(values, -1e3), ((half, half), (0, 0)), mode="edge")
    return np.asarray(np.mean([padded[i : i + len(values)] for i in range(_WINDOW)], axis=0))


def _forecast(few0: Floats, few1: Floats, thresholds: Floats) -> Counts:
    """Counts of many tests; of lone firings, what independent worlds let expect."""
    few0, few1 = np.sort(few0), np.sort(few1)
    accused = (len(few0) - np.searchsorted(few0, thresholds)).astype(np.float64)
    missed = np.searchsorted(few1, thresholds).astype(np.float64)
    pairs, alpha, beta = min(len(few0), len(few1)), accused / len(few0), missed / len(few1)
    lone_with, lone_without = pairs * (1 - beta) * (1 - alpha), pairs * alpha * beta
    return Counts(accused, len(few0), missed, len(few1), lone_with, lone_without)


def _counted(without: Floats, with_: Floats, threshold: float) -> Counts:
    accused, seen = without >= threshold, with_ >= threshold
    pairs = min(len(without), len(with_))
    lone_with = np.float64(np.sum(seen[:pairs] & ~accused[:pairs]))
    lone_without = np.float64(np.sum(accused[:pairs] & ~seen[:pairs]))
    return Counts(
        np.asarray(float(accused.sum())), len(without),
        np.asarray(float(np.sum(~seen))), len(with_),
        np.asarray(lone_with), np.asarray(lone_without),
    )  # fmt: skip
