"""A canary in a stream of tasks: everything that a lifetime releases, without and with it.

| symbol    | here                | meaning                                                   |
|-----------|---------------------|-----------------------------------------------------------|
| D         | -                   | a stream without records; sizes are declared, not counted |
| D'        | -                   | the same, and the canary, in the first task               |
| q, T, z   | `lifetime.tasks[0]` | its own steps: rate, number, noise in clip norms          |
| r_i, T, s | `lifetime.recall`   | what tasks 2 to m read of the memory                      |
| p         | `chance`            | of the canary to be in the memory; 1 if it was put there  |

The canary's gradient has the clip norm and one known direction in every step, nobody else has any,
and the auditor sees all noisy sums of all tasks, own ones and those of the memory: more than all
versions together show. Along the direction these are normal with the deviations z and s, and 1
higher where the canary was drawn. No pair of neighbours is further apart under such a plan.

The score is the logarithm of the likelihood ratio of the whole path, the coin included; nothing
tells more (Neyman and Pearson):

    sum_t log(1 - q + q e^(x_t)) + log(1 - p + p exp(sum_it log(1 - r_i + r_i e^(x_it))))

with x = (y - 1/2) / z^2 of a noisy sum y. What is claimed is the trade-off curve of
`lifelong.lifetime`: `Lifetime.event`, with `known=True` for a canary that was put into the memory.

`Path` is a model of the mechanism, fast enough for many runs; `audits.whole_lives` runs the
project's own streams. The broken ones replace one part of it each, or claim too little:

| broken              | what it does                 | what it claims              |
|---------------------|------------------------------|-----------------------------|
| `lifelong-unread`   | all as it should be          | own steps alone             |
| `lifelong-by-read`  | tosses the coin once         | a coin of its own each read |
| `lifelong-retossed` | tosses it anew for each task | one coin for the lifetime   |
| `lifelong-chance`   | admits with twice the chance | the chance that is declared |

A coin that is tossed anew shows less in the tail, and more often: it is looked at where delta is
above the chance, as the one coin then hides all.

Guarantee: that of `audits.mechanism`; noise and coins are numpy's, of made-up records.
"""

from dataclasses import dataclass
from typing import Final

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray

from privet.audits.mechanism import Entry, Floats, Subject
from privet.lifelong.lifetime import Lifetime, Own, Recall
from privet.privacy.accounting import DpEvent, sampled_gaussian, tradeoff_of

DELTA: Final = 1e-5
GRID: Final = (
    1e-3  # of privacy losses: quick, and what is claimed is larger by less than a hundredth
)
USUAL: Final = Lifetime(
    tasks=(Own(rate=0.25, steps=8, multiplier=4.0),),
    recall=Recall(first_rate=1.0, steps=4, multiplier=2.0, admission=0.2, horizon=5, shared=False),
    shared=False,
)
# A coin that comes up seldom, and readings that show what it hides.
SELDOM: Final = Lifetime(
    tasks=(Own(rate=0.25, steps=4, multiplier=8.0),),
    recall=Recall(
        first_rate=1.0, steps=16, multiplier=1.0, admission=0.04, horizon=9, shared=False
    ),
    shared=False,
)
ABOVE_THE_CHANCE: Final = 0.05

ADMITTED: Final = (
    "no records, and one with a gradient of the clip norm, which a secret coin admits to the"
    " memory; all noisy sums of all tasks are seen."
)
FORCED: Final = (
    "no records, and one with a gradient of the clip norm, which was put into the memory; all noisy"
    " sums of all tasks are seen."
)


@dataclass(frozen=True, kw_only=True)
class Path:
    """The right mechanism. Called, it gives a row for each run: own sums, then those of readings.

    Attributes:
        lifetime: one task, and how later ones read.
        forced: whether the canary is put into the memory.
    """

    lifetime: Lifetime
    forced: bool = False

    @property
    def own(self) -> Own:
        """The canary's task."""
        return self.lifetime.tasks[0]

    @property
    def recall(self) -> Recall:
        """How the memory is read."""
        assert self.lifetime.recall is not None
        return self.lifetime.recall

    @property
    def chance(self) -> float:
        """Of the canary to be in the memory."""
        return 1.0 if self.forced else self.recall.admission

    @property
    def rates(self) -> Floats:
        """Of every single reading of tasks 2 to m, in their order."""
        tasks = range(2, self.recall.horizon + 1)
        return np.repeat([self.recall.rate_at(task) for task in tasks], self.recall.steps)

    @property
    def event(self) -> DpEvent:
        """What the lifetime accounts."""
        return self.lifetime.event(1, known=self.forced)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """Fresh noise in every sum; with the canary, 1 more where it was drawn."""
        rng = np.random.default_rng(seed)
        rates = np.concatenate([np.full(self.own.steps, self.own.rate), self.rates])
        noise = np.concatenate(
            [
                np.full(self.own.steps, self.own.multiplier),
                np.full(len(self.rates), self.recall.multiplier),
            ]
        )
        rows = rng.normal(size=(runs, len(rates))) * noise
        if included:
            drawn = rng.random(rows.shape) < rates
            drawn[:, self.own.steps :] &= self.admitted(runs, rng)
            rows += drawn
        return np.asarray(rows)

    def admitted(self, runs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Whether the canary is in the memory, for every reading: one coin for a lifetime."""
        return np.asarray(rng.random((runs, 1)) < self.chance)

    def score(self, rows: Floats) -> Floats:
        """The logarithm of the likelihood ratio of the whole path."""
        own, read = np.split(rows, [self.own.steps], axis=1)
        first = _ratios(own, self.own.rate, self.own.multiplier).sum(1)
        return np.asarray(
            first + self.read_ratio(_ratios(read, self.rates, self.recall.multiplier))
        )

    def read_ratio(self, ratios: Floats) -> Floats:
        """Of all readings together, behind the coin."""
        return _behind(self.chance, ratios.sum(1))


class Retossed(Path):
    """Tosses the coin anew for each task that reads, and accounts one."""

    def admitted(self, runs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """One coin for each task."""
        tossed = rng.random((runs, self.recall.horizon - 1)) < self.chance
        return np.asarray(np.repeat(tossed, self.recall.steps, axis=1))

    def read_ratio(self, ratios: Floats) -> Floats:
        """Each task's readings behind a coin of their own."""
        by_task = ratios.reshape(len(ratios), -1, self.recall.steps).sum(2)
        return np.asarray(_behind(self.chance, by_task).sum(1))


class Overadmitting(Path):
    """Admits with twice the chance that is declared, and accounts that one."""

    @property
    def chance(self) -> float:
        """Twice."""
        return 2.0 * self.recall.admission


class Unread(Path):
    """Reads the memory without a charge."""

    @property
    def event(self) -> DpEvent:
        """Own steps alone."""
        return self.own.event


class ByRead(Path):
    """Tosses the coin once, and accounts it as if each reading had one of its own."""

    @property
    def event(self) -> DpEvent:
        """Poisson samples at the product of both rates."""
        reads = [
            sampled_gaussian(self.recall.multiplier, self.recall.admission * rate, 1)
            for rate in self.rates.tolist()
        ]
        return dp.ComposedDpEvent([self.own.event, *reads])


def subject_of(name: str, path: Path, *, delta: float = DELTA, runs: int = 200_000) -> Subject:
    """What is claimed is the curve of its event."""
    right = type(path) is Path
    return Subject(
        name=name,
        claim=tradeoff_of(path.event, interval=GRID),
        delta=delta,
        pair=FORCED if path.forced else ADMITTED,
        sample=path,
        statistic=path.score,
        flaw="" if right else (type(path).__doc__ or ""),
        runs=runs,
    )


def coin() -> Subject:
    """A canary that is admitted by its own coin, against the lifetime's epsilon."""
    return subject_of("lifelong-coin", Path(lifetime=USUAL))


def forced() -> Subject:
    """A canary that was put into the memory, against the bound for one known to be there."""
    return subject_of("lifelong-forced", Path(lifetime=USUAL, forced=True))


def unread() -> Subject:
    """Readings that nobody charged."""
    return subject_of("lifelong-unread", Unread(lifetime=USUAL))


def by_read() -> Subject:
    """One coin, accounted as many."""
    return subject_of("lifelong-by-read", ByRead(lifetime=USUAL))


def retossed() -> Subject:
    """Many coins, accounted as one."""
    return subject_of("lifelong-retossed", Retossed(lifetime=SELDOM), delta=ABOVE_THE_CHANCE)


def chance() -> Subject:
    """Twice the chance."""
    return subject_of("lifelong-chance", Overadmitting(lifetime=SELDOM), delta=ABOVE_THE_CHANCE)


def _ratios(y: Floats, rate: float | Floats, noise: float) -> Floats:
    """log(1 - q + q e^((y - 1/2) / z^2)), for each sum."""
    with np.errstate(divide="ignore"):
        apart, drawn = np.log1p(-np.asarray(rate)), np.log(rate)
    return np.asarray(np.logaddexp(apart, drawn + (y - 0.5) / noise**2))


def _behind(chance: float, ratios: Floats) -> Floats:
    """log(1 - p + p e^l)."""
    if chance == 1.0:
        return ratios
    return np.asarray(np.logaddexp(np.log1p(-chance), np.log(chance) + ratios))


LIFETIMES: Final[dict[str, Entry]] = {
    "lifelong-coin": Entry(
        kind="lifelong",
        summary="A stream of tasks; the memory admits by a secret coin.",
        make=coin,
    ),
    "lifelong-forced": Entry(
        kind="lifelong",
        summary="A stream of tasks, seen by a unit that was put into the memory.",
        make=forced,
    ),
    "lifelong-unread": Entry(kind="lifelong", summary=Unread.__doc__ or "", make=unread),
    "lifelong-by-read": Entry(kind="lifelong", summary=ByRead.__doc__ or "", make=by_read),
    "lifelong-retossed": Entry(kind="lifelong", summary=Retossed.__doc__ or "", make=retossed),
    "lifelong-chance": Entry(kind="lifelong", summary=Overadmitting.__doc__ or "", make=chance),
}
