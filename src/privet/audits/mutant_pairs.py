"""The mutants as subjects: each with the pair of inputs that shows its mistake most.

In the texts C is the clip norm, B the normaliser, m the realised size of a batch, z the noise
multiplier, T the number of steps. The first ten stand here; `further_mutant_pairs` has the others.

The others matter as much as the record: some mistakes show only among records that agree, or among
few, or among none that has a gradient where the record has its own. A guarantee holds for every
data set, so the auditor may choose.
"""

from typing import Final

import numpy as np

from privet.audits.further_mutant_pairs import FURTHER
from privet.audits.mechanism import Entry, Floats, Subject
from privet.audits.mutant_settings import (
    BATCH,
    BIAS,
    FIRST,
    LONG,
    OTHERS,
    RATE,
    SECOND,
    STEPS,
    entry,
    mutant,
    shifted_by,
    trainer,
)
from privet.audits.mutants import (
    BatchMeanClip,
    BatchNorm,
    EarlyStopping,
    NoiseOverBatch,
    RealisedNormaliser,
    ReusedNoise,
    Shuffled,
    SilentEncoder,
    SplitPartner,
    UnclippedBias,
)
from privet.audits.statistics import along
from privet.audits.trainers import FAR, Records
from privet.guarantee import Adjacency


def _batch_mean_clip() -> Subject:
    run = trainer(
        BatchMeanClip,
        others=Records.of([((0.0, LONG), FAR)] * OTHERS, 2),
        target=Records.of([((0.0, LONG), -100 * FAR)], 2),
    )
    return mutant(
        "batch-mean-clip",
        run,
        shifted_by(2 * BATCH, run, base=-BATCH),
        runs=50_000,
        pair="others with huge gradients that agree, and a target against them, a hundred times as "
        "large. The mean goes from -C to C, and the noise is for C / B.",
    )


def _noise_over_batch() -> Subject:
    run = trainer(NoiseOverBatch)
    return mutant(
        "noise-over-batch",
        run,
        shifted_by(1.0, run, noise=run.noise_multiplier / run.normaliser),
        runs=50_000,
        pair="a target of full norm, at right angles to all others. The noise is z C / B where z C "
        "is due.",
    )


def _unclipped_bias() -> Subject:
    run = trainer(
        UnclippedBias,
        others=Records.of([((1.0, 0.0), 0.0)] * OTHERS, 2),
        target=Records.of([((0.0, 0.0), -FAR)], 2),
    )
    return mutant(
        "unclipped-bias",
        run,
        along(np.tile(BIAS, STEPS)),
        runs=20_000,
        pair="a target with no features and a label of a million: all of its gradient is bias.",
    )


def _realised_normaliser() -> Subject:
    width = 100
    run = trainer(
        RealisedNormaliser,
        others=Records.of([((LONG, *[0.0] * width), FAR)] * 2, width + 1),
        target=Records.of([((-LONG, *[0.0] * width), FAR)], width + 1),
    )
    return mutant(
        "realised-normaliser",
        run,
        lambda rows: -_spreads(rows, width).min(axis=1),
        runs=20_000,
        pair="two others, and many weights that no record touches: there an update is noise alone, "
        "divided by the size of the batch, and its spread tells that size. Three is never seen "
        "without the target. (Few weights leave a shift of 2 C / m, twice what is allowed: the "
        "others' mean is C whoever is drawn, and a target against them makes it C - 2 C / m.)",
    )


def _shuffled() -> Subject:
    n = 30
    run = trainer(
        Shuffled,
        others=Records.of([((LONG,), FAR)] * (n - 1), 1),
        target=Records.of([((LONG,), -FAR)], 1),
        steps=n,
        rate=1.0 / n,
        normaliser=1.0,
        adjacency=Adjacency.ZERO_OUT,
    )
    return mutant(
        "shuffled",
        run,
        lambda rows: _one_place(1.0 + rows.reshape(len(rows), n, -1)[..., 0], run.noise_multiplier),
        runs=100_000,
        pair="batches of one; every other record gives -C. With the target exactly one step has "
        "+C; with a null record exactly one has 0, and the others tell that nothing else is "
        "missing (Chua et al., 2024).",
    )


def _reused_noise() -> Subject:
    run = trainer(ReusedNoise)
    return mutant(
        "reused-noise",
        run,
        lambda rows: np.ptp(rows.reshape(len(rows), STEPS, -1)[..., 1], axis=1),
        runs=20_000,
        pair="a target at right angles to all others. Along it two updates differ by exactly 0, "
        "or by C / B where it joined in one of them: the noise cancels.",
    )


def _batch_norm() -> Subject:
    n = 32
    run = trainer(
        BatchNorm,
        others=Records.of([((-1.0 if i % 2 else 1.0, 0.0), -FAR if i % 2 else FAR)
                           for i in range(n)], 2),
        target=Records.of([((LONG, 0.0), 0.0)], 2),
        normaliser=RATE * n,
        intercept=0.0,
    )  # fmt: skip
    return mutant(
        "batch-norm",
        run,
        lambda rows: rows.reshape(len(rows), STEPS, -1)[..., 0].max(axis=1),
        runs=50_000,
        pair="features of +1 and -1 whose gradients agree; the target's is a thousand. Beside it "
        "all others normalise to the same side, and their gradients cancel.",
    )


def _split_partner() -> Subject:
    run = trainer(SplitPartner, partner_size=0.1, others=Records.of([((LONG, 0.0), FAR)], 2))
    return mutant(
        "split-partner",
        run,
        shifted_by(2.0, run),
        runs=400_000,
        pair="a target whose partner has nearly its own gradient: together 2 C.",
    )


def _early_stopping() -> Subject:
    run = trainer(
        EarlyStopping,
        held_out=Records.of([((0.0, 1.0), -FAR)], 2),
        target=Records.of([((0.0, LONG), LONG * FAR)], 2),
        target_held_out=True,
        releases="weights",
        intercept=0.0,
    )
    return mutant(
        "early-stopping",
        run,
        along(SECOND),
        runs=50_000,
        pair="validation records that like the second weight small, and a target that likes it "
        "large and outweighs them: the least or the greatest of the T weights is released.",
    )


def _silent_encoder() -> Subject:
    run = trainer(
        SilentEncoder,
        others=Records.of([((0.0, LONG), FAR)] * OTHERS, 2),
        target=Records.of([((LONG, 0.0), FAR)], 2),
        releases="weights",
    )
    return mutant(
        "silent-encoder",
        run,
        along(FIRST),
        runs=20_000,
        pair="the target alone has a gradient on the encoder: it moves, or stays exactly at 0.",
    )


def _spreads(rows: Floats, width: int) -> Floats:
    """The root mean square of each update over the weights that no record touches."""
    untouched = rows.reshape(len(rows), STEPS, -1)[..., 1 : 1 + width]
    return np.asarray(np.sqrt(np.einsum("rtw,rtw->rt", untouched, untouched) / width))


def _one_place(x: Floats, z: float) -> Floats:
    """The log likelihood ratio of one step in which x is N(2, z^2) against N(1, z^2), else N(0)."""
    two, one = (4 * x - 4) / (2 * z**2), (2 * x - 1) / (2 * z**2)
    return np.asarray(np.logaddexp.reduce(two, axis=1) - np.logaddexp.reduce(one, axis=1))


MUTANTS: Final[dict[str, Entry]] = {
    "batch-mean-clip": entry(BatchMeanClip, _batch_mean_clip),
    "noise-over-batch": entry(NoiseOverBatch, _noise_over_batch),
    "unclipped-bias": entry(UnclippedBias, _unclipped_bias),
    "realised-normaliser": entry(RealisedNormaliser, _realised_normaliser),
    "shuffled": entry(Shuffled, _shuffled),
    "reused-noise": entry(ReusedNoise, _reused_noise),
    "batch-norm": entry(BatchNorm, _batch_norm),
    "split-partner": entry(SplitPartner, _split_partner),
    "early-stopping": entry(EarlyStopping, _early_stopping),
    "silent-encoder": entry(SilentEncoder, _silent_encoder),
    **FURTHER,
}
