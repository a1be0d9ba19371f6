"""SecureSGD's update as its authors' public code has it, under audit.

Phan, Vu, Liu, Jin, Dou, Wu and Thai (IJCAI 2019), "Heterogeneous Gaussian mechanism". The settings
are those of the public MNIST program; its text describes DP-SGD.

| program            | here        | value                                              |
|--------------------|-------------|----------------------------------------------------|
| clip_bound C       | `clip_norm` | 0.001, for each weight tensor                      |
| sigma              | `sigma`     | 4                                                  |
| batch_size B       | `batch`     | 125, in shuffled order                             |
| records            | `records`   | 55,000: 440 steps are an epoch                     |
| q, delta           | `rate`      | 125 / 50,000 and 1e-5, as its accountant is told   |
| learning rate      |             | 0.1                                                |

What the text says: every record's gradient clipped to C, noise N(0, sigma^2 C^2) on the sum. What
the program does, for each tensor W and its bias b:

    g  = mean of the gradients over the batch
    gW = g_W min(1, C / |g_W|) + N(0, sigma^2 C^2) / B      clipped after averaging
    gb = g_b                   + N(0, sigma^2 C^2) / B      not clipped

The gap. The clipped mean of one tensor may be any vector of norm C, and one record may turn it
round: a sensitivity of 2 C, not C / B, under noise of sigma C / B = 0.032 C. The noise multiplier
is sigma / (2 B) = 0.016 where 4 is accounted, 250 times less. The bias has no bound at all.

The claim. The program stops when its moments accountant says epsilon = 1 at delta 1e-5: after
102,878 steps (`claimed_steps`). The audit gives it all of that, and looks at the last weights of
the first epoch alone, 440 steps. The accountant's neighbours have a record more or less; a batch
always has 125, so the pair here replaces one. What is claimed for that is one removed and one
added: epsilon 2 at (1 + e) 1e-5.

The pair. All other images are black, with label 0: no gradient on W, which the record's one white
pixel has. (A batch always has 125 records: where the record is not, a black image is.) Without the
record W is a sum of 440 noises; with it, moved once by C, times the learning rate. That is
C / (0.032 C sqrt(440)) = 1.49 standard deviations: 1.49-GDP, epsilon 7.0 at delta 1e-5, before any
of the other 102,438 steps. A single update shows 31 standard deviations.

Deviations: softmax regression with two classes for the network, of whose weights only those of the
white pixel can differ; no dropout. The update is the same for every tensor of any network. The
noise for robustness is left out: the program draws it once, before training, like a constant.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from privet.audits.mechanism import Floats, Subject
from privet.audits.statistics import Statistic, along
from privet.guarantee import Adjacency
from privet.privacy import moments
from privet.privacy.tradeoff import Stated

EPSILON: Final = 1.0
DELTA: Final = 1e-5
REPLACED_DELTA: Final = (1.0 + math.exp(EPSILON)) * DELTA
RUNS_AT_ONCE: Final = 2**12


@dataclass(frozen=True, kw_only=True)
class SecureSGD:
    """One epoch of the public update; called, it gives the last weights of W and b, a row a run."""

    sigma: float = 4.0
    clip_norm: float = 0.001
    batch: int = 125
    records: int = 55_000
    accounted_records: int = 50_000
    learning_rate: float = 0.1

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self.records // self.batch

    @property
    def rate(self) -> float:
        """What the accountant is told."""
        return self.batch / self.accounted_records

    @property
    def true_multiplier(self) -> float:
        """Noise over the sensitivity 2 C of a clipped mean."""
        return self.sigma * self.clip_norm / self.batch / (2 * self.clip_norm)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The weights (W for two classes, b for two classes) after an epoch."""
        blocks = []
        for i, start in enumerate(range(0, runs, RUNS_AT_ONCE)):
            rng = np.random.default_rng([seed, i])
            blocks.append(self._epoch(included, min(RUNS_AT_ONCE, runs - start), rng))
        return np.concatenate(blocks)

    def _epoch(self, included: bool, runs: int, rng: np.random.Generator) -> Floats:
        w, b = np.zeros((runs, 2)), np.zeros((runs, 2))
        # The order is shuffled: the record is in one of the batches, each as likely.
        turn = rng.integers(self.steps, size=runs) if included else np.full(runs, -1)
        for t in range(self.steps):
            here = (turn == t).astype(np.float64)[:, None]
            black, white = softmax(b) - (1.0, 0.0), softmax(b + w) - (0.0, 1.0)
            g_w = here * white / self.batch
            g_b = ((self.batch - here) * black + here * white) / self.batch
            w = w - self.learning_rate * (self.clipped(g_w) + self.noise(runs, rng))
            b = b - self.learning_rate * (g_b + self.noise(runs, rng))
        return np.concatenate([w, b], axis=1)

    def clipped(self, mean: Floats) -> Floats:
        """The mean gradient of a tensor, shortened to C."""
        norm = np.hypot(mean[:, :1], mean[:, 1:])
        return mean * np.minimum(1.0, self.clip_norm / np.maximum(norm, 1e-300))

    def noise(self, runs: int, rng: np.random.Generator) -> Floats:
        """Of a tensor: sigma C, divided by the batch size."""
        return rng.standard_normal((runs, 2)) * (self.sigma * self.clip_norm / self.batch)


@lru_cache
def claimed_steps(epsilon: float = EPSILON, delta: float = DELTA) -> int:
    """The most steps for which the moments accountant says at most epsilon, as the program asks."""
    setting = SecureSGD()

    def says(steps: int) -> float:
        return moments.epsilon(
            noise_multiplier=setting.sigma, rate=setting.rate, steps=steps, delta=delta
        )

    low, high = 0, 1
    while says(high) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if says(middle) <= epsilon else (low, middle)
    return low


def weights() -> Subject:
    """Seen at the clipped weights."""
    return _subject(
        "securesgd",
        along((-1.0, 1.0, 0.0, 0.0)),
        "black images of one class; the record has one white pixel and the other class. The "
        "pixel's weights are noise alone without it, and moved by C with it.",
    )


def bias() -> Subject:
    """Seen at the bias."""
    return _subject(
        "securesgd-bias",
        along((0.0, 0.0, -1.0, 1.0)),
        "black images of one class; the record has the other class. It moves the mean gradient of "
        "the bias by up to sqrt(2) / B, which is 11 C, under noise of 0.032 C.",
    )


def _subject(name: str, statistic: Statistic, pair: str) -> Subject:
    return Subject(
        name=name,
        flaw="The mean gradient of the batch is clipped, not each record's; biases are not clipped "
        "at all; the noise, sigma C / B, is for a sensitivity of C / B, and it is 2 C.",
        claim=Stated(2.0 * EPSILON, REPLACED_DELTA),
        adjacency=Adjacency.REPLACE_ONE,
        delta=REPLACED_DELTA,
        pair=pair,
        sample=SecureSGD(),
        statistic=statistic,
        runs=50_000,
    )


def softmax(logits: Floats) -> Floats:
    """Probabilities of two classes."""
    first = 1.0 / (1.0 + np.exp(logits[:, 1:] - logits[:, :1]))
    return np.concatenate([first, 1.0 - first], axis=1)
