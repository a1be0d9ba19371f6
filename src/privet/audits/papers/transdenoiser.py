"""TransDenoiser's noise rule under audit: a record that switches off the noise that should hide it.

The rule credits noise on images towards noise on gradients (`training.published.transformation`),
and computes from the records themselves how much explicit noise is left to add. The settings are
the paper's and its public program's.

| paper        | here        | value                                                           |
|--------------|-------------|-----------------------------------------------------------------|
| sigma        | `sigma`     | 0.25, of the noise b on an image                                |
| xi_up        | `xi_up`     | 2                                                               |
| C            | `clip_norm` | 1                                                               |
| B, N         | `batch`     | 32 of 40,000: Poisson sampling at rate 0.0008, as is accounted  |
| T            | `steps`     | 200,000, accounted and credited; `seen`: of the first 10,000    |
| g(z)         |             | theta z, of images of one pixel; `theta` is 0 at first          |
| l            |             | (theta z - x)^2                                                 |

In closed form: grad_theta l(z) = 2 z (theta z - x), A = 2 x (2 theta - 1), o = theta^2 b^2 >= 0. A
sample of which only image x has some A: M = S_min = (a A / B)^2, a the clip factor of the image.

The pair. All images are black but one, x = 1, that is there or not; theta is 0 and the learning
rate next to nothing, so it stays there. A black image has no gradient and no A: a sample of such is
credited with nothing, and released with noise of deviation xi_up C = 2. With the record A = -2, the
gradient -2 (1 + b) is clipped to -1, and a = 1 / (2 (1 + b)) or so. Then

    sqrt(T S_min) sigma = sqrt(200,000) 0.25 / (32 (1 + b)) = 3.5 / (1 + b)  >=  xi_up,

hence sigma-bar = 0: the update is -1, without any noise. That happens in 8 of 10,000 steps, and by
chance in none: of noise with deviation 2, a draw in 10^12 is as near to -1 as 10^-12. Who looks for
it is not wrong.

The claim is epsilon = 1 at delta 1e-5, add/remove neighbours: for xi_up = 2 at this rate the
moments accountant says 0.94 for all 200,000 steps (`claimed`).

The reading. Algorithm 3 adds N(0, xi_up^2) to the gradient of the negative images. In this pair no
image is ever negative (o = 0), and no such gradient is formed: nothing is added for it. The
authors' program has one noise for all images, and their finding that hardly any noise was needed is
not possible otherwise. Whoever reads the text so that noise is added for negative images where
there are none adds xi_up in every step; this audit finds nothing then.

Why not two records that differ in their noise? The scalar denoiser at theta = 1 gets sigma-bar = 0
for x = 1 and for x = 0.9 in a sample of its own, and the clipped gradients have deviations of 0.449
and 0.415: the data, not xi_up, decide the noise. That tells two such sets apart with certainty
after 20,000 steps that use the record each time; but for these no accountant claims epsilon = 1 (at
rate 1 it is 5,000). Sampled, the record is in a few of them, hidden among others with noise.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from privet.audits.mechanism import Floats, Subject
from privet.privacy import moments
from privet.privacy.tradeoff import Stated
from privet.training.published.transformation import NoiseRule

EPSILON: Final = 1.0
DELTA: Final = 1e-5
RUNS_AT_ONCE: Final = 2**8


@dataclass(frozen=True, kw_only=True)
class TransDenoiser:
    """The first steps of a run; called, it gives how near an update came to -C, a row a run.

    Attributes:
        record: x, one pixel.
        seen: steps that the observer looks at.
    """

    sigma: float = 0.25
    xi_up: float = 2.0
    clip_norm: float = 1.0
    batch: int = 32
    images: int = 40_000
    steps: int = 200_000
    theta: float = 0.0
    record: float = 1.0
    seen: int = 10_000

    @property
    def rate(self) -> float:
        """Of Poisson sampling."""
        return self.batch / self.images

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The distance from -C of the nearest of the updates seen."""
        blocks = []
        for i, start in enumerate(range(0, runs, RUNS_AT_ONCE)):
            rng = np.random.default_rng([seed, i])
            updates = self.updates(included, min(RUNS_AT_ONCE, runs - start), rng)
            blocks.append(np.abs(updates + self.clip_norm).min(axis=1, keepdims=True))
        return np.concatenate(blocks)

    def updates(self, included: bool, runs: int, rng: np.random.Generator) -> Floats:
        """What the steps release, times B: (runs, seen). Black images have no part in it."""
        sampled = rng.random((runs, self.seen)) < (self.rate if included else 0.0)
        gradients, factors = self.gradients(int(sampled.sum()), rng)
        noise = np.full(sampled.shape, self.xi_up)
        noise[sampled] = self.explicit_noise(factors)
        total = np.zeros(sampled.shape)
        total[sampled] = gradients
        return total + noise * self.clip_norm * rng.standard_normal(sampled.shape)

    def gradients(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Clipped ones of the record under n draws of b, and their clip factors."""
        z = self.record + self.sigma * rng.standard_normal(n)
        gradient = 2.0 * z * (self.theta * z - self.record)
        factors = 1.0 / np.maximum(1.0, np.abs(gradient) / self.clip_norm)
        return np.clip(gradient, -self.clip_norm, self.clip_norm), factors

    def explicit_noise(self, factors: Floats) -> Floats:
        """sigma-bar of the steps that have the record with these clip factors."""
        derivative = 2.0 * self.record * (2.0 * self.theta - 1.0)
        s_min = np.square(factors * derivative / self.batch)
        rule = NoiseRule(
            sigma=self.sigma,
            steps=self.steps,
            clip_norm=self.clip_norm,
            xi_low=0.0,
            xi_up=self.xi_up,
        )
        return np.array([rule.explicit_noise(float(s)) for s in s_min])


@lru_cache
def claimed(delta: float = DELTA) -> float:
    """What the moments accountant says of all steps."""
    setting = TransDenoiser()
    return moments.epsilon(
        noise_multiplier=setting.xi_up, rate=setting.rate, steps=setting.steps, delta=delta
    )


def updates() -> Subject:
    """Seen at the updates of the first steps."""
    return Subject(
        name="transdenoiser",
        flaw="Explicit noise is computed from the records: noise on an image, which nothing bounds"
        " from below, is credited T times, and may leave an update without any noise (where no"
        " image is negative, none is added for such: Algorithm 3 as its program has it).",
        claim=Stated(EPSILON, DELTA),
        delta=DELTA,
        pair="black images of one pixel, and a white one that is there or not: credited with its"
        " own noise, it is released without any.",
        sample=TransDenoiser(),
        statistic=lambda rows: -rows[:, 0],
        runs=10_000,
    )
