"""A small private trainer, the right one: many whole runs at once, for the auditor to look at.

Linear regression by DP-SGD (Abadi et al., 2016) on a handful of made-up records.

| paper     | here                          | meaning                                          |
|-----------|-------------------------------|--------------------------------------------------|
| N, L/N    | records, `rate`               | who there is, and how likely one joins a step    |
| T         | `steps`                       |                                                  |
| C         | `clip_norm`                   | most that one record adds to a sum               |
| sigma     | `noise_multiplier`            | of the sum, in units of C                        |
| L         | `normaliser`                  | a constant of the plan                           |
| g_t(x_i)  | `gradients`                   | (w . x + b c - y) (x, c) with c = `intercept`    |
| theta_t   | weights                       | w, then b; zero at first                         |

One run is a row of a matrix, so that no loop over runs is needed. Every part of a step is a method
of its own: a broken trainer (`mutants`) replaces exactly one of them.

Guarantee: as released here (updates, or last weights), T Poisson-sampled Gaussian steps; epsilon by
`accounting`. Proof: `contributions` have norm at most C, and none depends on another record; the
draws of samples and noise are fresh; `normaliser` and all else are constants.

Deviation: numpy's generator, not a cryptographic one. Nothing is protected here: it is a model of
a trainer whose records are made up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, calibrate, sampled_gaussian

Floats = NDArray[np.float64]

RUNS_AT_ONCE: Final = 2**12
FAR: Final = 1e6  # a label that no model comes near: its gradient has one sign, at any weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Made-up records: features `x` (n, p), labels `y`, and 1 or, for a null record, 0."""

    x: Floats
    y: Floats
    mass: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[Sequence[float], float]], features: int) -> Self:
        """From pairs of features and label."""
        x = np.array([row[0] for row in rows], dtype=np.float64).reshape(len(rows), features)
        return cls(x=x, y=np.array([row[1] for row in rows], float), mass=np.ones(len(rows)))

    def __len__(self) -> int:
        return len(self.y)

    def __add__(self, other: "Records") -> "Records":
        return Records(
            x=np.concatenate([self.x, other.x]),
            y=np.concatenate([self.y, other.y]),
            mass=np.concatenate([self.mass, other.mass]),
        )

    def nullified(self) -> Self:
        """As many records that take a place and contribute nothing."""
        return replace(self, mass=np.zeros(len(self)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Trainer:
    """The right one. Called, it gives what is released: a row for each run.

    Attributes:
        others: the records of both worlds.
        target: the record that is there or not.
        adjacency: where it is not, whether it is absent or a null record.
        held_out, target_held_out: validation records, which nothing reads here, and whether the
            target is one of them.
        partner_size: where positive, every record trains with its adversarial partner (one signed
            step of this size), and the record's gradient is the mean of both.
        releases: all noisy updates, or the last weights alone.
    """

    others: Records
    target: Records
    noise_multiplier: float
    normaliser: float
    steps: int = 4
    rate: float = 0.5
    clip_norm: float = 1.0
    learning_rate: float = 0.1
    intercept: float = 1.0
    partner_size: float = 0.0
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    held_out: Records = field(default_factory=lambda: Records.of([], 2))
    target_held_out: bool = False
    releases: Literal["updates", "weights"] = "updates"

    def __post_init__(self) -> None:
        if self.adjacency is Adjacency.REPLACE_ONE:
            raise InputError(
                "no trainer for this adjacency",
                got=self.adjacency.value,
                expected="add-remove or zero-out",
            )

    @property
    def event(self) -> DpEvent:
        """What a right trainer of these settings does to the data."""
        return sampled_gaussian(self.noise_multiplier, self.rate, self.steps)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """What `runs` independent runs release, with or without the target."""
        training, held_out = self._world(included)
        blocks = []
        for i, start in enumerate(range(0, runs, RUNS_AT_ONCE)):
            rng = np.random.default_rng([seed, i])
            count = min(RUNS_AT_ONCE, runs - start)
            blocks.append(self._train(training, held_out, count, rng))
        return np.concatenate(blocks)

    def _world(self, included: bool) -> tuple[Records, Records]:
        absent = self.adjacency is Adjacency.ADD_REMOVE
        extra = self.target if included else self.target.nullified()
        extra = Records.of([], self.others.x.shape[1]) if absent and not included else extra
        if self.target_held_out:
            return self.others, self.held_out + extra
        return self.others + extra, self.held_out

    def _train(
        self, records: Records, held_out: Records, runs: int, rng: np.random.Generator
    ) -> Floats:
        weights = np.zeros((runs, records.x.shape[1] + 1))
        noise = self.noise(runs, weights.shape[1], rng)
        samples = self.samples(runs, len(records), rng)
        path, sums, updates = [], [], []
        for t in range(self.steps):
            batch = samples[:, t] * records.mass
            gradients = self.gradients(weights, records, batch)
            sums.append(self.total(gradients, batch))
            noisy = self.summed(sums) + noise[:, t]
            updates.append(noisy / self.divisor(batch))
            weights = weights - self.learning_rate * updates[-1]
            path.append(weights)
        if self.releases == "updates":
            return np.concatenate(updates, axis=1)
        return self.chosen(np.stack(path, axis=1), held_out)

    def samples(self, runs: int, n: int, rng: np.random.Generator) -> Floats:
        """Who joins which step (runs, T, n): each by a coin of its own."""
        return (rng.random((runs, self.steps, n)) < self.rate).astype(np.float64)

    def noise(self, runs: int, width: int, rng: np.random.Generator) -> Floats:
        """Noise for the sums of all steps (runs, T, width), fresh in each."""
        scale = self.noise_multiplier * self.clip_norm
        return scale * rng.standard_normal((runs, self.steps, width))

    def features(self, records: Records, batch: Floats) -> Floats:
        """Inputs of the model (runs or 1, n, p); of one record each."""
        return records.x[None]

    def gradients(self, weights: Floats, records: Records, batch: Floats) -> Floats:
        """Of each record and view (runs, n, views, d); two views where there are partners."""
        x = self.features(records, batch)
        views = [self._gradient(weights, x, records.y)]
        if self.partner_size > 0:
            # The loss grows with the residual's size: go along its sign.
            uphill = np.sign(self._residual(weights, x, records.y))[:, :, None]
            partner = x + self.partner_size * uphill * np.sign(weights[:, None, :-1])
            views.append(self._gradient(weights, partner, records.y))
        return np.stack(views, axis=2)

    def _residual(self, weights: Floats, x: Floats, y: Floats) -> Floats:
        w, b = weights[:, :-1], weights[:, -1:]
        return np.asarray(np.einsum("rnp,rp->rn", np.broadcast_to(x, (len(w), *x.shape[1:])), w)
                          + b * self.intercept - y)  # fmt: skip

    def _gradient(self, weights: Floats, x: Floats, y: Floats) -> Floats:
        residual = self._residual(weights, x, y)[:, :, None]
        return np.concatenate([residual * x, residual * self.intercept], axis=2)

    def contributions(self, gradients: Floats) -> Floats:
        """What each record adds to the sum (runs, n, d): the mean of its views, clipped once."""
        return self.clipped(gradients.mean(axis=2))

    def clipped(self, rows: Floats) -> Floats:
        """Vectors along the last axis, shortened to norm C."""
        norms = np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
        return np.asarray(rows * np.minimum(1.0, self.clip_norm / np.maximum(norms, 1e-300)))

    def total(self, gradients: Floats, batch: Floats) -> Floats:
        """The sum (runs, d) of a step."""
        return np.asarray(np.einsum("rn,rnd->rd", batch, self.contributions(gradients)))

    def summed(self, sums: list[Floats]) -> Floats:
        """What gets the noise (runs, d), out of the sums of the steps so far: the last."""
        return sums[-1]

    def divisor(self, batch: Floats) -> float | Floats:
        """What the noisy sum is divided by: a constant."""
        return self.normaliser

    def chosen(self, path: Floats, held_out: Records) -> Floats:
        """The weights (runs, d) that are released, out of all (runs, T, d): the last."""
        return np.asarray(path[:, -1])


@lru_cache
def multiplier_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise multiplier that keeps a right trainer's epsilon."""
    return calibrate(epsilon, delta, lambda z: sampled_gaussian(z, rate, steps))
