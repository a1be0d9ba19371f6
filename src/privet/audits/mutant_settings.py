"""What the pairs of all mutants share: the claim, the settings, and the best score of a shift.

All claim epsilon 1 at delta 1e-5, for which their noise would be right if they were.
"""

from collections.abc import Callable
from typing import Any, Final

from privet.audits.mechanism import Entry, Subject
from privet.audits.statistics import Statistic, sampled_shift
from privet.audits.trainers import FAR, Records, Trainer, multiplier_for
from privet.privacy.tradeoff import Stated

EPSILON: Final = 1.0
DELTA: Final = 1e-5
STEPS: Final = 4
RATE: Final = 0.5
OTHERS: Final = 8
BATCH: Final = RATE * OTHERS

FIRST: Final = (1.0, 0.0, 0.0)  # directions in (w_1, w_2, b)
SECOND: Final = (0.0, 1.0, 0.0)
BIAS: Final = (0.0, 0.0, 1.0)
# Features so long that the clipped gradient lies along them, and next to nothing along the bias.
LONG: Final = 1e3


def trainer(kind: type[Trainer] = Trainer, **changes: Any) -> Trainer:
    """A trainer of this kind with the settings of the catalogue; noise as the claim needs it.

    By default the others have no gradient along the second feature, and the target has it there.
    """
    settings: dict[str, Any] = {
        "others": Records.of([((LONG, 0.0), FAR)] * OTHERS, 2),
        "target": Records.of([((0.0, LONG), -FAR)], 2),
        "normaliser": BATCH,
        "steps": STEPS,
        "rate": RATE,
    } | changes
    z = multiplier_for(EPSILON, DELTA, settings["rate"], settings["steps"])
    return kind(noise_multiplier=z, **settings)


def shifted_by(
    clips: float, run: Trainer, *, base: float = 0.0, noise: float | None = None
) -> Statistic:
    """The best score where the target moves the sum by so many clip norms along `SECOND`.

    `base` is where the sum is without it, and `noise` its noise, both in clip norms.
    """
    unit = run.clip_norm / run.normaliser
    return sampled_shift(
        SECOND,
        steps=run.steps,
        rate=run.rate,
        base=base * unit,
        shift=clips * unit,
        noise=(run.noise_multiplier if noise is None else noise) * unit,
    )


def mutant(name: str, run: Trainer, statistic: Statistic, *, pair: str, runs: int) -> Subject:
    """A broken trainer as a subject, with the claim that the right one keeps."""
    return Subject(
        name=name,
        flaw=flaw_of(type(run)),
        claim=Stated(EPSILON, DELTA),
        delta=DELTA,
        adjacency=run.adjacency,
        pair=pair,
        sample=run,
        statistic=statistic,
        runs=runs,
    )


def flaw_of(kind: type[Trainer]) -> str:
    """What is wrong with a mutant, in a sentence."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def entry(kind: type[Trainer], make: Callable[[], Subject]) -> Entry:
    """In a list."""
    return Entry(kind="mutant", summary=flaw_of(kind), make=make)
