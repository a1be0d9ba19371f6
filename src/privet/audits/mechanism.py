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
from typing import Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from privet.audits.evidence import Bound, Evidence
from privet.audits.gaussian import gaussian
from privet.audits.statistics import Statistic, best_learned, learned
from privet.audits.two_worlds import INDEPENDENT, two_worlds
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.tradeoff import TradeOff

Floats = NDArray[np.float64]
Sample = Callable[[bool, int, int], Floats]

LEARNING_SHARE: Final = 0.2  # of the runs, where the statistic is learned
LEAST_RUNS: Final = 100


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

    kind: Literal["sound", "mutant", "federation", "paper", "lifelong"]
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
        statistic: 'known' (the subject's own), one of `LEARNERS`, or 'learned': the best of those,
            which is found on the fifth, too. By default the subject's own, or 'learned'.
    """
    if runs < LEAST_RUNS:
        raise InputError("too few runs", got=runs, expected=f"at least {LEAST_RUNS}")
    name = statistic or ("learned" if subject.statistic is None else "known")
    first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    without = _finite(subject, subject.sample(False, runs, first))
    with_ = _finite(subject, subject.sample(True, runs, second))
    if name == "known":
        if subject.statistic is None:
            raise InputError(f"{subject.name} names no statistic", expected="'learned'")
        return WorldScores(
            without=subject.statistic(without), with_=subject.statistic(with_), statistic=name
        )
    n = int(LEARNING_SHARE * runs)
    if name == "learned":
        best, score = best_learned(without[:n], with_[:n], subject.delta)
        name = f"learned {best}"
    else:
        score = learned(name, without[:n], with_[:n])
    return WorldScores(without=score(without[n:]), with_=score(with_[n:]), statistic=name)


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
