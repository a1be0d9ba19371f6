"""Further broken trainers: what the auditor was not made for.

The first nine were written when the auditor had two learned statistics, the last four when it had
four (`statistics`), to see what each of these auditors misses.

As in `mutants`, each replaces one method of the right trainer and claims the epsilon of that one.
The pairs of inputs stand in `further_mutant_pairs`; how the auditor did on them before and after it
was taught more is told in docs/methods/mutants.md. The right one lets a record move a sum by one
clip norm, under noise of z. These let it

| mutant            | replaces        | do this                                               |
|-------------------|-----------------|-------------------------------------------------------|
| alternate-noise   | `noise`         | move it by 1, with no noise between steps 2k, 2k + 1  |
| reseeded-noise    | `noise`         | the same, between a step and that of the next epoch   |
| variance-as-scale | `noise`         | move it by 1, under noise of sqrt(z)                  |
| microbatch-clip   | `total`         | move it by 2                                          |
| median-clip       | `total`         | move it by as many clip norms as there are others     |
| layer-clip        | `clipped`       | move it by sqrt(L), one for each of L layers          |
| raw-momentum      | `summed`        | move all later sums as well, by 0.9, 0.81, ...        |
| same-sample       | `samples`       | join all steps or none, by a single coin              |
| best-of-runs      | `_train`        | choose which of k runs is released                    |
| antithetic-noise  | `noise`         | move it by 1, with no noise on the sum of two steps   |
| shared-noise      | `noise`         | move it by 1, with no noise between two weights       |
| skipped-noise     | `noise`         | move it by 1, in one of a hundred steps without noise |
| uniform-noise     | `noise`         | move it to where it is never without the record       |
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from privet.audits.mechanism import Floats
from privet.audits.trainers import Records, Trainer

MOMENTUM: Final = 0.9
SKIPPED: Final = 0.01  # of the steps


class AlternateNoise(Trainer):
    """Adds the noise of every even step to the odd one after it, too."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Fresh in steps 0, 2, 4 ..."""
        fresh = super().noise(runs, width, rng)
        return fresh[:, np.arange(self.steps) // 2 * 2]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReseededNoise(Trainer):
    """Seeds its generator of noise at the start of every epoch, with the same seed."""

    epoch: int = 2

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """The first epoch's, again and again."""
        fresh = super().noise(runs, width, rng)
        return fresh[:, np.arange(self.steps) % self.epoch]


class VarianceAsScale(Trainer):
    """Hands the noise multiplier to a function that takes the variance."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Of variance z C^2."""
        return super().noise(runs, width, rng) / math.sqrt(self.noise_multiplier)


@dataclass(frozen=True, kw_only=True, eq=False)
class MicrobatchClip(Trainer):
    """Clips the sum of each microbatch instead of each record."""

    size: int = 5

    def total(self, gradients: Floats, batch: Floats) -> Floats:
        """Neighbours in the order of records share a microbatch."""
        own = batch[..., None] * gradients.mean(axis=2)
        edges = np.arange(0, own.shape[1], self.size)
        return np.asarray(self.clipped(np.add.reduceat(own, edges, axis=1)).sum(axis=1))


class MedianClip(Trainer):
    """Measures gradients in units of the batch's median norm before it clips them."""

    def total(self, gradients: Floats, batch: Floats) -> Floats:
        """A record's part depends on the norms of all others."""
        own = gradients.mean(axis=2)
        norms = np.where(batch > 0, np.linalg.norm(own, axis=2), np.nan)
        unit = np.ones(len(own))
        drawn = (batch > 0).any(axis=1)
        unit[drawn] = np.nanmedian(norms[drawn], axis=1)
        scaled = own * (self.clip_norm / np.maximum(unit, 1e-300))[:, None, None]
        return np.asarray(np.einsum("rn,rnd->rd", batch, self.clipped(scaled)))


class LayerClip(Trainer):
    """Clips each layer to C by itself; here every weight is a layer."""

    def clipped(self, rows: Floats) -> Floats:
        """Each coordinate shortened to C."""
        return super().clipped(rows[..., None])[..., 0]


class RawMomentum(Trainer):
    """Keeps a momentum of sums without noise, and adds noise to what it gives the model."""

    def summed(self, sums: list[Floats]) -> Floats:
        """All sums so far, the older the less."""
        return np.asarray(sum(MOMENTUM**age * past for age, past in enumerate(reversed(sums))))


class SameSample(Trainer):
    """Draws who joins once, and accounts for a fresh draw in each step."""

    def samples(self, runs: int, n: int, rng: np.random.Generator) -> Floats:
        """The first step's sample, again and again."""
        return np.repeat(super().samples(runs, n, rng)[:, :1], self.steps, axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class BestOfRuns(Trainer):
    """Trains several times, releases what fits its records best, and accounts for one run."""

    tries: int = 10

    def _train(
        self, records: Records, held_out: Records, runs: int, rng: np.random.Generator
    ) -> Floats:
        every = super()._train(records, held_out, runs * self.tries, rng)
        models = every.reshape(runs, self.tries, -1)
        scores = models[..., :-1] @ records.x.T + models[..., -1:] * self.intercept
        losses = (records.mass * (scores - records.y) ** 2).sum(axis=2)
        return np.asarray(models[np.arange(runs), losses.argmin(axis=1)])


class AntitheticNoise(Trainer):
    """Adds the noise of every even step with the other sign to the odd one after it."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Plus, minus, plus, minus."""
        fresh = super().noise(runs, width, rng)
        places = np.arange(self.steps)
        return np.asarray(fresh[:, places // 2 * 2] * (1.0 - 2.0 * (places % 2))[:, None])


class SharedNoise(Trainer):
    """Draws one number in each step and adds it to all weights."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """The first weight's, for all."""
        return np.repeat(super().noise(runs, width, rng)[..., :1], width, axis=2)


class SkippedNoise(Trainer):
    """Adds no noise in one of a hundred steps."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """None where a coin says so."""
        fresh = super().noise(runs, width, rng)
        return np.asarray(fresh * (rng.random((runs, self.steps, 1)) >= SKIPPED))


class UniformNoise(Trainer):
    """Draws uniform noise with the variance that Gaussian noise should have."""

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Bounded, as no private noise of this kind may be."""
        reach = math.sqrt(3.0) * self.noise_multiplier * self.clip_norm
        return rng.uniform(-reach, reach, (runs, self.steps, width))
