"""Broken trainers, each wrong in one way that is found in real code, for the auditor to catch.

Every mutant replaces one method of the right trainer (`trainers`) and claims the epsilon of that
one. The pair of inputs on which its mistake shows most stands in `mutant_pairs`. B is the
normaliser, m the realised size of a batch, z the noise multiplier.

The right one lets a record move a sum by one clip norm, under noise of z. A mutant lets it

| mutant              | replaces        | do this                                             |
|---------------------|-----------------|-----------------------------------------------------|
| batch-mean-clip     | `total`         | move the sum by up to 2 B clip norms                |
| noise-over-batch    | `noise`         | move it by 1, under noise of z / B                  |
| unclipped-bias      | `contributions` | move the bias without end                           |
| realised-normaliser | `divisor`       | move it by 2, and change the spread of the noise    |
| shuffled            | `samples`       | join exactly one step, not each by a coin           |
| reused-noise        | `noise`         | move it by 1, with no noise between two steps       |
| batch-norm          | `features`      | turn the gradients of all m records of its batch    |
| split-partner       | `contributions` | move it by 2                                        |
| early-stopping      | `chosen`        | choose which of the T weights are released          |
| silent-encoder      | `noise`         | move it by 1, with no noise on the encoder          |
"""

from dataclasses import dataclass

import numpy as np

from privet.audits.mechanism import Floats
from privet.audits.trainers import Records, Trainer


class BatchMeanClip(Trainer):
    """Clips the mean of the batch instead of each record."""

    def total(self, gradients: Floats, batch: Floats) -> Floats:
        """The whole mean, shortened to C."""
        raw = np.einsum("rn,rnd->rd", batch, gradients.mean(axis=2))
        return self.normaliser * self.clipped(raw / self.normaliser)


class NoiseOverBatch(Trainer):
    """Divides the noise by the batch size, and then the noisy sum once more."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Noise for a mean, which is added to a sum."""
        return super().noise(runs, width, rng) / self.normaliser


class UnclippedBias(Trainer):
    """Clips the weights' gradient alone."""

    def contributions(self, gradients: Floats) -> Floats:
        """The last coordinate goes in as it is."""
        mean = gradients.mean(axis=2)
        return np.concatenate([self.clipped(mean[..., :-1]), mean[..., -1:]], axis=-1)


class RealisedNormaliser(Trainer):
    """Divides by the number of records that happened to be drawn."""

    def divisor(self, batch: Floats) -> float | Floats:
        """A fact about the data, without noise."""
        return np.asarray(np.maximum(1.0, batch.sum(axis=1, keepdims=True)))


class Shuffled(Trainer):
    """Goes through a random order in batches of one size, accounted as Poisson sampling."""

    def samples(self, runs: int, n: int, rng: np.random.Generator) -> Floats:
        """Each record in exactly one of the steps."""
        place = np.argsort(rng.random((runs, n)), axis=1) * self.steps // n
        return np.asarray(place[:, None, :] == np.arange(self.steps)[:, None], dtype=np.float64)


class ReusedNoise(Trainer):
    """Draws the noise once and adds it in every step."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """The first step's, again and again."""
        return np.repeat(super().noise(runs, width, rng)[:, :1], self.steps, axis=1)


class BatchNorm(Trainer):
    """Normalises features by the mean and variance of the batch before gradients are clipped."""

    def features(self, records: Records, batch: Floats) -> Floats:
        """Of one record, and of all others in the batch."""
        share = batch / np.maximum(1.0, batch.sum(axis=1, keepdims=True))
        mean = np.einsum("rn,np->rp", share, records.x)
        centred = records.x[None] - mean[:, None]
        deviation = np.sqrt(np.einsum("rn,rnp->rp", share, centred**2))
        return np.asarray(centred / np.maximum(deviation, 1e-9)[:, None])


class SplitPartner(Trainer):
    """Clips an example and its adversarial partner apart, as if they were two records."""

    def contributions(self, gradients: Floats) -> Floats:
        """Up to C for each view."""
        return np.asarray(self.clipped(gradients).sum(axis=2))


class EarlyStopping(Trainer):
    """Releases the weights that do best on private validation records."""

    def chosen(self, path: Floats, held_out: Records) -> Floats:
        """Those of the least squared error, without noise."""
        scores = path[..., :-1] @ held_out.x.T + path[..., -1:] * self.intercept
        losses = (held_out.mass * (scores - held_out.y) ** 2).sum(axis=2)
        return np.asarray(path[np.arange(len(path)), losses.argmin(axis=1)])


@dataclass(frozen=True, kw_only=True, eq=False)
class SilentEncoder(Trainer):
    """Trains an encoder (the first weights) without noise, below a private critic (the rest)."""

    encoder: int = 1

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """None on the encoder."""
        noise = super().noise(runs, width, rng)
        noise[..., : self.encoder] = 0.0
        return noise
