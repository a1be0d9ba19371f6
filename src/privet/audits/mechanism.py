"""What an auditor sees of a mechanism, and how one number is made of what it releases.

A `Subject` is opaque: it is run many times on two neighbouring inputs, without and with one record,
and makes a claim. The auditor turns every output into a score (higher: more like "with") and hands
both lots of scores to an estimator, which bounds epsilon from below.

| symbol   | here                    | meaning                                              |
|----------|-------------------------|------------------------------------------------------|
| M(D)     | `sample(False, n, s)`   | n independent outputs without the record, a row each |
| M(D')    | `sample(True, n, s)`    | with it                                              |
| f        | `claim`                 | the trade-off curve that the subject claims          |

Guarantee: whatever the statistic, a bound from its scores holds for the mechanism, since a function
of the output cannot tell more than the output (post-processing). What is learned from runs is
learned on runs of their own, which are not tested: the tested scores stay independent draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from privet.audits.evidence import Bound, Evidence
from privet.audits.gaussian import gaussian
from privet.audits.two_worlds import INDEPENDENT, two_worlds
from privet.errors import InputError
from privet.guarantee import Adjacency, check_target
from privet.privacy.tradeoff import PLD_INTERVAL, TradeOff

Floats = NDArray[np.float64]
Sample = Callable[[bool, int, int], Floats]
Statistic = Callable[[Floats], Floats]

LEARNING_SHARE: Final = 0.2  # of the runs, where the statistic is learned
LEAST_RUNS: Final = 100


@final
@dataclass(frozen=True)
class Stated(TradeOff):
    """(epsilon, delta)-differential privacy and no more: what a bare claim says."""

    stated_epsilon: float
    stated_delta: float

    def __post_init__(self) -> None:
        check_target(self.stated_epsilon, self.stated_delta)

    def delta(self, epsilon: float) -> float:
        """The stated delta from the stated epsilon on; below it, what follows from that."""
        e, d = self.stated_epsilon, self.stated_delta
        if epsilon >= e:
            return d
        # The worst that is allowed gives itself away with probability d, and else answers a coin
        # of odds e^e: its hockey stick is linear in e^epsilon (Kairouz et al., 2015).
        return d + (1 - d) * float((np.exp(e) - np.exp(epsilon)) / (np.exp(e) + 1))

    def epsilon(self, delta: float) -> float:
        """Inverse of `delta`; infinity below the stated one."""
        e, d = self.stated_epsilon, self.stated_delta
        if delta < d:
            return float("inf")
        least = np.exp(e) - (delta - d) / (1 - d) * (np.exp(e) + 1)
        return float(np.log(max(1.0, least)))

    def beta(self, alpha: float) -> float:
        """Dong, Roth and Su (2022), equation 3."""
        e, left = self.stated_epsilon, 1 - self.stated_delta
        return float(max(0.0, left - np.exp(e) * alpha, np.exp(-e) * (left - alpha)))

    def pld(self, interval: float = PLD_INTERVAL) -> Any:
        """dp-accounting's distribution of these parameters."""
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as library

        return library.from_privacy_parameters(
            common.DifferentialPrivacyParameters(self.stated_epsilon, self.stated_delta),
            value_discretization_interval=interval,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Subject:
    """A mechanism with a claim, on the pair of inputs that shows most.

    Attributes:
        name: as in lists.
        claim: the curve that it claims; `epsilon` is what it says at `delta`.
        adjacency, unit: between which neighbours.
        pair: the two inputs, in words, and why these.
        sample: (included, runs, seed) -> what is released, a row for each run. Equal seeds give
            equal outputs; outputs of different seeds or rows are independent.
        statistic: from rows to scores, where the pair tells what to look at.
        flaw: what is wrong with it, for those that are known to be broken.
        runs: in each world, with which the audit says something worth saying.
    """

    name: str
    claim: TradeOff
    pair: str
    sample: Sample
    statistic: Statistic | None = None
    delta: float = 1e-5
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: str = "example"
    flaw: str = ""
    runs: int = 200_000

    @property
    def epsilon(self) -> float:
        """What is claimed at `delta`."""
        return self.claim.epsilon(self.delta)


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """A subject in a list: what it is, and how to make it (which may have to calibrate noise)."""

    kind: Literal["sound", "mutant", "paper"]
    summary: str
    make: Callable[[], Subject]


@final
@dataclass(frozen=True, kw_only=True)
class WorldScores:
    """Scores of runs without and with the record, and where they come from."""

    without: Floats
    with_: Floats
    statistic: str


def scores_of(
    subject: Subject, runs: int, seed: int, *, statistic: str | None = None
) -> WorldScores:
    """One score for each run, `runs` in each world.

    Args:
        subject: whom to run.
        runs: in each world; where the statistic is learned, a fifth of them goes into that.
        seed: of everything; the two worlds draw apart.
        statistic: 'known' (the subject's own), 'means' or 'spreads' (learned); by default the
            subject's own, or 'means' where it has none.
    """
    if runs < LEAST_RUNS:
        raise InputError("too few runs", got=runs, expected=f"at least {LEAST_RUNS}")
    name = statistic or ("means" if subject.statistic is None else "known")
    first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    without = _finite(subject, subject.sample(False, runs, first))
    with_ = _finite(subject, subject.sample(True, runs, second))
    if name == "known":
        if subject.statistic is None:
            raise InputError(f"{subject.name} names no statistic", expected="'means' or 'spreads'")
        return WorldScores(
            without=subject.statistic(without), with_=subject.statistic(with_), statistic=name
        )
    n = int(LEARNING_SHARE * runs)
    score = learned(name, without[:n], with_[:n])
    return WorldScores(without=score(without[n:]), with_=score(with_[n:]), statistic=name)


def learned(name: str, without: Floats, with_: Floats) -> Statistic:
    """A statistic learned from outputs of both worlds.

    'means': along the difference of the means, each coordinate weighed by its pooled variance.
    'spreads': the log ratio of two Gaussians with the means and variances of the worlds; it also
    sees a difference of the variances.
    """
    m0, m1 = without.mean(axis=0), with_.mean(axis=0)
    # A constant coordinate differs by nothing or by everything: a floor, so that it may weigh.
    floor = 1e-12 * (1e-12 + np.abs(m0) + np.abs(m1))
    v0, v1 = without.var(axis=0) + floor**2, with_.var(axis=0) + floor**2
    if name == "means":
        direction = (m1 - m0) / ((v0 + v1) / 2)
        return along(direction / max(np.linalg.norm(direction), 1e-300))
    if name == "spreads":
        return lambda rows: np.asarray(
            (((rows - m0) ** 2 / v0 - (rows - m1) ** 2 / v1) / 2).sum(axis=1)
        )
    raise InputError("unknown statistic", got=repr(name), expected="'known', 'means' or 'spreads'")


def along(direction: Any) -> Statistic:
    """The projection of each row on a direction."""
    towards = np.asarray(direction, dtype=np.float64)
    return lambda rows: np.asarray(rows @ towards)


def sampled_shift(
    direction: Any, *, steps: int, rate: float, shift: float, noise: float, base: float = 0.0
) -> Statistic:
    """The log likelihood ratio of a shift that comes in each step with probability `rate`.

    Rows hold `steps` updates. Along the unit vector `direction`, and with `base` taken off, an
    update is N(0, noise^2) without the record, and N(shift, noise^2) where it joins in. The ratio
    is the sum over the steps of log(1 - q + q exp((2 x - shift) shift / (2 noise^2))). By Neyman
    and Pearson nothing tells more.
    """
    towards = np.asarray(direction, dtype=np.float64)
    apart = np.log1p(-rate) if rate < 1 else -np.inf

    def score(rows: Floats) -> Floats:
        x = rows.reshape(len(rows), steps, -1) @ towards - base
        together = np.log(rate) + (2 * x - shift) * shift / (2 * noise**2)
        return np.asarray(np.logaddexp(apart, together).sum(axis=1))

    return score


def audit_mechanism(
    subject: Subject,
    *,
    runs: int | None = None,
    delta: float | None = None,
    confidence: float = 0.999,
    estimator: str = "two-worlds",
    seed: int = 0,
    statistic: str | None = None,
) -> Evidence:
    """Run a subject in both worlds and bound its epsilon from below.

    Args:
        subject: whom to run.
        runs: in each world; by default what the subject says is worth it.
        delta: at which; by default that of the claim.
        confidence: with which the bound holds.
        estimator: 'two-worlds' (assumes no shape) or 'gaussian' (assumes mu-GDP).
        seed: of everything.
        statistic: see `scores_of`.
    """
    if estimator not in ESTIMATORS:
        raise InputError(
            "unknown estimator", got=repr(estimator), expected=" or ".join(sorted(ESTIMATORS))
        )
    scores = scores_of(subject, subject.runs if runs is None else runs, seed, statistic=statistic)
    at = subject.delta if delta is None else delta
    bound = ESTIMATORS[estimator](
        scores.without, scores.with_, delta=at, confidence=confidence, seed=seed
    )
    return bound.evidence(
        adjacency=subject.adjacency,
        unit=subject.unit,
        attack=f"what is released, seen by the {scores.statistic} statistic",
        canaries=1,
        runs=len(scores.without) + len(scores.with_),
        subject=subject.name,
    )


def refutes(evidence: Evidence, subject: Subject) -> bool:
    """Whether the claim is contradicted, at the evidence's confidence.

    Only evidence that assumes no shape can do that: what holds "if the mechanism is mu-GDP" may
    fail with the assumption instead of the claim.
    """
    free = set(evidence.assumptions) <= {INDEPENDENT}
    return free and evidence.epsilon > subject.claim.epsilon(evidence.delta)


ESTIMATORS: Final[dict[str, Callable[..., Bound]]] = {
    "two-worlds": two_worlds,
    "gaussian": gaussian,
}


def _finite(subject: Subject, rows: Floats) -> Floats:
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InputError(
            f"{subject.name} gave outputs that cannot be scored",
            got=f"shape {rows.shape}",
            expected="a finite row for each run",
        )
    return rows
