"""The study: power on a known mechanism, false alarms on sound ones, and all subjects by name."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from privet.audits import gaussian, one_run, one_run_gaussian, two_worlds
from privet.audits.evidence import Bound
from privet.audits.mechanism import Entry, Subject, audit_mechanism, refutes
from privet.audits.registry import find_subject, subjects
from privet.audits.statistics import LEARNERS
from privet.errors import InputError
from privet.guarantee import BEYOND_DOUBT
from privet.studies.audit_power.ideal import canaries, mu_for, worlds

DELTA: Final = 1e-5
CONFIDENCE: Final = 0.95
EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
MOST_RUNS: Final = 1_000_000  # in each world
SOME_RUNS: Final = 20_000
ALARM_RUNS: Final = 2000
CANARIES: Final = 5000
TRIALS: Final = 200
LEAST: Final = 100  # runs, canaries
ALARMED: Final = ("gaussian", "dpsgd-step")

Watch = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class Contest:
    """An estimator with so many runs, or canaries, averaged over so many seeds."""

    name: str
    estimate: Callable[..., Bound]
    size: int
    seeds: int
    one_run: bool = False


CONTESTS: Final = (
    Contest(name="two_worlds", estimate=two_worlds, size=MOST_RUNS, seeds=3),
    Contest(
        name="two_worlds, bonferroni",
        estimate=partial(two_worlds, strategy="bonferroni"),
        size=MOST_RUNS,
        seeds=3,
    ),
    Contest(name="two_worlds", estimate=two_worlds, size=SOME_RUNS, seeds=40),
    Contest(name="gaussian", estimate=gaussian, size=SOME_RUNS, seeds=40),
    Contest(name="one_run", estimate=one_run, size=CANARIES, seeds=20, one_run=True),
    Contest(
        name="one_run, shares=(0.05,)",
        estimate=partial(one_run, shares=(0.05,)),
        size=CANARIES,
        seeds=20,
        one_run=True,
    ),
    Contest(
        name="one_run_gaussian", estimate=one_run_gaussian, size=CANARIES, seeds=20, one_run=True
    ),
    Contest(
        name="one_run_gaussian, shares=(0.1,)",
        estimate=partial(one_run_gaussian, shares=(0.1,)),
        size=CANARIES,
        seeds=20,
        one_run=True,
    ),
)


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """How much of all runs, canaries and trials; `watch` hears of each part."""

    share: float = 1.0
    seed: int = 0
    watch: Watch = lambda _: None

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise InputError("bad share", got=self.share, expected="above 0, at most 1")

    @property
    def parts(self) -> int:
        """How often `watch` will be told."""
        return len(CONTESTS) * len(EPSILONS) + 2 + len(ALARMED) + len(_catalogue())

    def power(self) -> list[dict[str, Any]]:
        """The mean bound of each estimator on the exact Gaussian mechanism, by true epsilon."""
        return [self._found(contest, epsilon) for contest in CONTESTS for epsilon in EPSILONS]

    def false_alarms(self) -> list[dict[str, Any]]:
        """How many of the seeded trials gave a bound above the truth, at 95 %."""
        rows = []
        for name, estimate in (("two_worlds", two_worlds), ("gaussian", gaussian)):
            self.watch(f"false alarms of {name}")
            rows += [self._alarms(name, estimate, epsilon) for epsilon in EPSILONS]
        for name in ALARMED:
            self.watch(f"false alarms, {name}")
            subject = find_subject(name)
            rows += [self._accusations(subject, how) for how in ("known", "learned")]
        return rows

    def subjects(self) -> list[dict[str, Any]]:
        """Sound and broken ones: what is found where the score is told, and where it is learned."""
        rows = []
        for name, entry in _catalogue().items():
            self.watch(name)
            subject = entry.make()
            row = {
                "name": name,
                "kind": entry.kind,
                "claimed": subject.epsilon,
                "runs": self._of(subject.runs),
                "told": self._audited(subject, "known"),
                "learned": self._audited(subject, "learned"),
            }
            rows.append(row | {how: self._audited(subject, how) for how in LEARNERS})
        return rows

    def _found(self, contest: Contest, epsilon: float) -> dict[str, Any]:
        self.watch(f"power of {contest.name}, epsilon {epsilon:g}")
        mu, size = mu_for(epsilon, DELTA), self._of(contest.size)
        draw = canaries if contest.one_run else worlds
        seeds = range(self.seed, self.seed + max(1, round(self.share * contest.seeds)))
        bounds = [
            contest.estimate(*draw(seed, size, mu), delta=DELTA, confidence=CONFIDENCE).epsilon
            for seed in seeds
        ]
        return {
            "estimator": contest.name,
            "canaries" if contest.one_run else "runs_in_each_world": size,
            "seeds": len(seeds),
            "epsilon": epsilon,
            "found": float(np.mean(bounds)),
            "share": float(np.mean(bounds) / epsilon),
            "above_the_truth": sum(bound > epsilon for bound in bounds),
        }

    def _alarms(self, name: str, estimate: Callable[..., Bound], epsilon: float) -> dict[str, Any]:
        mu = mu_for(epsilon, DELTA)
        bounds = [
            estimate(*worlds(seed, ALARM_RUNS, mu), delta=DELTA, confidence=CONFIDENCE).epsilon
            for seed in self._trials()
        ]
        return {
            "of": "exact Gaussian mechanism",
            "estimator": name,
            "epsilon": epsilon,
            "runs_in_each_world": ALARM_RUNS,
            "trials": len(bounds),
            "alarms": sum(bound > epsilon for bound in bounds),
        }

    def _accusations(self, subject: Subject, how: str) -> dict[str, Any]:
        trials = [
            audit_mechanism(
                subject, runs=ALARM_RUNS, confidence=CONFIDENCE, seed=seed, statistic=how
            )
            for seed in self._trials()
        ]
        return {
            "of": subject.name,
            "estimator": "two_worlds",
            "statistic": how,
            "epsilon": subject.epsilon,
            "runs_in_each_world": ALARM_RUNS,
            "trials": len(trials),
            "alarms": sum(refutes(evidence, subject) for evidence in trials),
        }

    def _audited(self, subject: Subject, how: str) -> dict[str, Any]:
        started = time.perf_counter()
        evidence = audit_mechanism(
            subject,
            runs=self._of(subject.runs),
            confidence=BEYOND_DOUBT,
            seed=self.seed,
            statistic=how,
        )
        return {
            "epsilon": evidence.to_json()["epsilon"],
            "refuted": refutes(evidence, subject),
            "seen_by": evidence.attack,
            "seconds": round(time.perf_counter() - started, 2),
        }

    def _of(self, number: int) -> int:
        return max(LEAST, round(self.share * number))

    def _trials(self) -> range:
        return range(self.seed, self.seed + max(1, round(self.share * TRIALS)))


def _catalogue() -> dict[str, Entry]:
    """Without mechanisms of papers, some of which take minutes: they have pages of their own."""
    return {name: entry for name, entry in subjects().items() if entry.kind in ("sound", "mutant")}
