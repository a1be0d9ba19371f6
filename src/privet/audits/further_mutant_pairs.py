"""The further mutants as subjects: each with a pair of inputs that shows its mistake."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from privet.audits.further_mutants import (
    MOMENTUM,
    AlternateNoise,
    AntitheticNoise,
    BestOfRuns,
    LayerClip,
    MedianClip,
    MicrobatchClip,
    RawMomentum,
    ReseededNoise,
    SameSample,
    SharedNoise,
    SkippedNoise,
    UniformNoise,
    VarianceAsScale,
)
from privet.audits.mechanism import Entry, Floats, Subject
from privet.audits.mutant_settings import (
    BIAS,
    FIRST,
    LONG,
    SECOND,
    STEPS,
    entry,
    mutant,
    shifted_by,
    trainer,
)
from privet.audits.statistics import Statistic, along, sampled_shift
from privet.audits.trainers import FAR, Records


def _alternate_noise() -> Subject:
    return mutant(
        "alternate-noise",
        trainer(AlternateNoise),
        _difference([(0, 1), (2, 3)]),
        runs=20_000,
        pair="a target at right angles to all others. Along it the two updates with one noise are "
        "equal, unless it joined in one of them.",
    )


def _reseeded_noise() -> Subject:
    return mutant(
        "reseeded-noise",
        trainer(ReseededNoise),
        _difference([(0, 2), (1, 3)]),
        runs=20_000,
        pair="the same; the updates with one noise are those at the same place of two epochs.",
    )


def _variance_as_scale() -> Subject:
    run = trainer(VarianceAsScale)
    return mutant(
        "variance-as-scale",
        run,
        shifted_by(1.0, run, noise=float(np.sqrt(run.noise_multiplier))),
        runs=400_000,
        pair="a target of full norm, at right angles to all others. The noise is sqrt(z) C where "
        "z C is due.",
    )


def _microbatch_clip() -> Subject:
    run = trainer(
        MicrobatchClip,
        others=Records.of([((0.0, LONG), FAR)] * 4, 2),
        target=Records.of([((0.0, LONG), -100 * FAR)], 2),
    )
    return mutant(
        "microbatch-clip",
        run,
        shifted_by(2.0, run, base=-1.0),
        runs=400_000,
        pair="four others in the target's microbatch that agree, and a target against them, a "
        "hundred times as large: the sum goes from -C to C.",
    )


def _median_clip() -> Subject:
    few = 21
    small, large = ((1.0, 0.0), FAR), ((0.0, LONG), FAR)
    run = trainer(
        MedianClip,
        others=Records.of([small] * few + [large] * (few - 1), 2),
        target=Records.of([large], 2),
        rate=1.0,
        intercept=0.0,
    )
    return mutant(
        "median-clip",
        run,
        along(np.tile(FIRST, STEPS)),
        runs=20_000,
        pair="21 others with small gradients along the first weight, 20 with large ones elsewhere, "
        "and a target with a large one. It tips the median, and the small ones vanish.",
    )


def _layer_clip() -> Subject:
    layers = 15
    towards = np.append(np.zeros(1), np.ones(layers)) / np.sqrt(layers)
    run = trainer(
        LayerClip,
        others=Records.of([((LONG, *[0.0] * layers), FAR)], layers + 1),
        target=Records.of([((0.0, *[LONG] * layers), -FAR)], layers + 1),
        intercept=0.0,
    )
    unit = run.clip_norm / run.normaliser
    score = sampled_shift(
        np.append(towards, 0.0),
        steps=run.steps,
        rate=run.rate,
        shift=float(np.sqrt(layers)) * unit,
        noise=run.noise_multiplier * unit,
    )
    return mutant(
        "layer-clip",
        run,
        score,
        runs=50_000,
        pair="a target with a large gradient in each of 15 layers: it moves the sum by sqrt(15) C.",
    )


def _raw_momentum() -> Subject:
    run = trainer(RawMomentum, rate=1.0)
    growth = np.cumsum(MOMENTUM ** np.arange(STEPS))
    return mutant(
        "raw-momentum",
        run,
        along(np.outer(growth, SECOND).ravel()),
        runs=100_000,
        pair="a target at right angles to all others. It moves the first sum by C, and the fourth "
        "by 3.4 C.",
    )


def _same_sample() -> Subject:
    run = trainer(SameSample, steps=30, rate=1.0 / 30, normaliser=1.0)
    return mutant(
        "same-sample",
        run,
        along(np.tile(SECOND, run.steps)),
        runs=30_000,
        pair="a target at right angles to all others. It moves all 30 sums or none.",
    )


def _best_of_runs() -> Subject:
    run = trainer(
        BestOfRuns,
        others=Records.of([((0.0, 1.0), -FAR)], 2),
        target=Records.of([((0.0, LONG), LONG * FAR)], 2),
        releases="weights",
        intercept=0.0,
    )
    return mutant(
        "best-of-runs",
        run,
        along(SECOND),
        runs=50_000,
        pair="another record that likes the second weight small, and a target that likes it large "
        "and outweighs it: the least or the greatest of ten is released.",
    )


def _antithetic_noise() -> Subject:
    return mutant(
        "antithetic-noise",
        trainer(AntitheticNoise),
        lambda rows: np.abs(_steps(rows, SECOND).reshape(len(rows), -1, 2).sum(axis=2)).max(axis=1),
        runs=20_000,
        pair="a target at right angles to all others. Along it two updates add up to 0, unless it "
        "joined in one of them.",
    )


def _shared_noise() -> Subject:
    return mutant(
        "shared-noise",
        trainer(SharedNoise),
        lambda rows: np.abs(_steps(rows, np.subtract(SECOND, BIAS))).max(axis=1),
        runs=20_000,
        pair="a target that alone has a gradient on the second weight. Without it this weight gets "
        "what the bias gets.",
    )


def _skipped_noise() -> Subject:
    run = trainer(SkippedNoise)
    clipped = run.clip_norm * LONG / np.hypot(LONG, 1.0) / run.normaliser
    return mutant(
        "skipped-noise",
        run,
        lambda rows: -np.abs(_steps(rows, SECOND) - clipped).min(axis=1),
        runs=50_000,
        pair="a target that alone has a gradient on the second weight: exactly C / B where there "
        "is no noise.",
    )


def _uniform_noise() -> Subject:
    return mutant(
        "uniform-noise",
        trainer(UniformNoise),
        lambda rows: _steps(rows, SECOND).max(axis=1),
        runs=20_000,
        pair="a target that alone has a gradient on the second weight, which goes beyond the reach "
        "of the noise.",
    )


def _steps(rows: Floats, direction: ArrayLike) -> Floats:
    """The updates of all steps (runs, T) along a direction."""
    return np.asarray(rows.reshape(len(rows), STEPS, -1) @ np.asarray(direction))


def _difference(pairs: ArrayLike) -> Statistic:
    """How far apart the updates of two steps are, along `SECOND`, at most."""
    first, second = np.asarray(pairs).T

    def score(rows: Floats) -> Floats:
        along_target = _steps(rows, SECOND)
        return np.asarray(np.abs(along_target[:, first] - along_target[:, second]).max(axis=1))

    return score


FURTHER: Final[dict[str, Entry]] = {
    "alternate-noise": entry(AlternateNoise, _alternate_noise),
    "reseeded-noise": entry(ReseededNoise, _reseeded_noise),
    "variance-as-scale": entry(VarianceAsScale, _variance_as_scale),
    "microbatch-clip": entry(MicrobatchClip, _microbatch_clip),
    "median-clip": entry(MedianClip, _median_clip),
    "layer-clip": entry(LayerClip, _layer_clip),
    "raw-momentum": entry(RawMomentum, _raw_momentum),
    "same-sample": entry(SameSample, _same_sample),
    "best-of-runs": entry(BestOfRuns, _best_of_runs),
    "antithetic-noise": entry(AntitheticNoise, _antithetic_noise),
    "shared-noise": entry(SharedNoise, _shared_noise),
    "skipped-noise": entry(SkippedNoise, _skipped_noise),
    "uniform-noise": entry(UniformNoise, _uniform_noise),
}
