"""DPAL's and StoBatch's training as their text has it, under audit: three counter-examples.

Phan, Thai, Hu, Jin, Sun, Dou (ICML 2020), "Scalable differential privacy with certified robustness
in adversarial learning"; before it Phan et al. (2019), "Preserving differential privacy in
adversarial learning with provable robustness". Claim: epsilon-DP for one record replaced, whatever
the number of steps. `training.published` is the whole method; this is the same on a small scale.

| papers         | here              | value                                           |
|----------------|-------------------|-------------------------------------------------|
| d, beta, h_pi  | `Toy`             | 4 inputs, 3 neurons, 3 features (tanh)          |
| N, m, K        | `Toy`             | 20 records in two batches of 10, 2 classes      |
| chi1/m, 2chi2/m, chi3/m | `Noise`  | Laplace, drawn once for the run                 |
| theta1; A, c, W | `Weights`        | first layer; u = tanh(A'h + c), z = W'u         |
| epsilon, epsilon_2 | `EPSILON`, `LABELS` | 1 and 1/2                                  |

    x-bar = x + chi1/m,  h-bar = theta1' x-bar + 2 chi2/m
    adversarial examples of the other batch: x-bar + mu sign(gradient), by the guessed label
    theta1 <- theta1 - rho sum h-bar (1/2 - x-bar)'
    A, c, W <- ... - rho gradient of the mean quadratic loss, label term h_pi y + chi3/m

The first weights, the sizes mu and all records but one are known, as in the definition of privacy.

`stobatch` sees the weights after one step. Two candidates for the data: one label differs. For each
it fits the noise, ten numbers, to the thirty weights by least squares. Under the true data a fit is
exact; under the other one nothing fits: labels reach A and c without noise, since chi3 has no
derivative with respect to lower layers.

`stobatch-labels` needs no fit. All records of the batch are alike, no adversarial term. The updates
of one hidden unit, h-bar G for A and G for c, give h-bar; so u and z are known, and G is the number
of labels, exactly.

`stobatch-batch` sees what Lemma 3.10 calls (epsilon_1/gamma_x)-DP: the noised batch. All records
have the same draw, so the difference of two is that of the records themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from privet.audits.mechanism import Floats, Subject
from privet.guarantee import Adjacency
from privet.privacy.tradeoff import Stated
from privet.training.published.budgets import Budgets

EPSILON: Final = 1.0
LABELS: Final = 0.5
RESTARTS: Final = 8
ITERATIONS: Final = 40
STEP: Final = 1e-6
FLAW: Final = (
    "One draw of noise serves all records and all steps, and no noise on the labels reaches the"
    " lower layers."
)


class Weights(NamedTuple):
    """All that is released; a leading axis of runs where there are several."""

    theta1: Tensor
    a: Tensor
    c: Tensor
    w: Tensor

    def flat(self) -> Tensor:
        """One row for each run."""
        return torch.cat([part.flatten(1) for part in self], 1)


class Noise(NamedTuple):
    """chi1 / m, 2 chi2 / m, chi3 / m: a row for each run."""

    inputs: Tensor
    hidden: Tensor
    labels: Tensor


class Records(NamedTuple):
    """The two batches."""

    x: Tensor  # (2, m, d), in [-1, 1]
    y: Tensor  # (2, m), 0 or 1


@final
@dataclass(frozen=True, kw_only=True)
class Toy:
    """One step of Algorithm A; called, it gives the weights, a row for each run.

    Attributes:
        xi: what an adversarial example counts; 0: there are none.
        alike: whether all records of the benign batch have the same x.
    """

    inputs: int = 4
    neurons: int = 3
    features: int = 3
    batch: int = 10
    rate: float = 0.1
    size: float = 0.3
    xi: float = 1.0
    alike: bool = False
    public_seed: int = 7

    @cached_property
    def first(self) -> Weights:
        """The public first weights."""
        rng = np.random.default_rng(self.public_seed)

        def drawn(*shape: int) -> Tensor:
            return torch.from_numpy(rng.uniform(-0.5, 0.5, (1, *shape)))

        d, b, p = self.inputs, self.neurons, self.features
        return Weights(drawn(d, b), drawn(b, p), drawn(p), drawn(p, 2))

    @property
    def budgets(self) -> Budgets:
        """As published, for this network."""
        return Budgets(
            epsilon=EPSILON,
            epsilon2=LABELS,
            batch=self.batch,
            patch=self.inputs,
            neurons=self.neurons,
            features=self.features,
            column_norm=float(self.first.theta1[0].abs().sum(0).max()),
        )

    def records(self, included: bool) -> Records:
        """Both batches; with the record, the first label is 1 instead of 0."""
        rng = np.random.default_rng(self.public_seed + 1)
        x = rng.uniform(-1.0, 1.0, (2, self.batch, self.inputs))
        y = rng.integers(2, size=(2, self.batch))
        x[0] = x[0, :1] if self.alike else x[0]
        y[0, 0] = int(included)
        return Records(torch.from_numpy(x), torch.from_numpy(y))

    def noise(self, runs: int, rng: np.random.Generator) -> Noise:
        """Once for a run."""
        found, sizes = self.budgets, (self.inputs, self.neurons, self.features)
        labels = found.labels / found.epsilon2 / self.batch
        scales = (found.input_scale, found.hidden_scale, labels)
        parts = [rng.laplace(0.0, b, (runs, n)) for b, n in zip(scales, sizes, strict=True)]
        return Noise(*map(torch.from_numpy, parts))

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The released weights."""
        noise = self.noise(runs, np.random.default_rng(seed))
        return np.asarray(self.trained(self.records(included), noise).flat().numpy())

    def trained(self, records: Records, noise: Noise) -> Weights:
        """The weights after one step from the public ones; one row for each row of noise."""
        x, y = self._noised(records.x[0], noise), records.y[0]
        if self.xi:
            x = torch.cat([x, self._attacked(self._noised(records.x[1], noise), noise)], 1)
            y = torch.cat([y, records.y[1]])
        first, count = self.first, self.batch
        counts = torch.where(torch.arange(len(y)) < count, 1.0, self.xi) / (1 + self.xi) / count
        h, u, z = self._layers(x, noise)
        # The gradients of `costs`, written out: linear reconstruction, quadratic loss.
        slope = counts[:, None] * (0.5 + z / 4.0 - torch.nn.functional.one_hot(y, 2))
        below = (slope @ first.w.mT) * (1.0 - u**2)
        gradients = Weights(
            theta1=(0.5 - x).mT @ h / len(y),
            a=h.mT @ below,
            c=below.sum(1),
            w=u.mT @ slope - noise.labels[:, :, None],
        )
        return Weights(*(p - self.rate * g for p, g in zip(first, gradients, strict=True)))

    def _noised(self, x: Tensor, noise: Noise) -> Tensor:
        return x + noise.inputs[:, None]

    def _layers(self, x: Tensor, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """h-bar, u, z."""
        theta1, a, c, w = self.first
        h = x @ theta1 + noise.hidden[:, None]
        u = torch.tanh(h @ a + c[:, None])
        return h, u, u @ w

    def _attacked(self, x: Tensor, noise: Noise) -> Tensor:
        """FGSM against the guessed label."""
        theta1, a, _, w = self.first
        _, u, z = self._layers(x, noise)
        slope = z.softmax(2) - torch.nn.functional.one_hot(z.argmax(2), 2)
        gradient = ((slope @ w.mT) * (1.0 - u**2)) @ a.mT @ theta1.mT
        return x + self.size * gradient.sign()


def fit_residuals(toy: Toy, rows: Floats, included: bool) -> Floats:
    """How far the nearest weights are that some noise gives under these records; least squares.

    From several draws of the noise, for all runs at once. W is a linear function of chi3, which is
    the same for both classes: the difference of its columns is free of it.
    """
    records, d, split = toy.records(included), toy.inputs, -2 * toy.features
    starts = toy.noise(RESTARTS * len(rows), np.random.default_rng(toy.public_seed))
    seen = torch.from_numpy(rows).repeat(RESTARTS, 1)

    def off(guess: Tensor) -> Tensor:
        noise = Noise(guess[:, :d], guess[:, d:], guess.new_zeros(len(guess), toy.features))
        difference = toy.trained(records, noise).flat() - seen.repeat(len(guess) // len(seen), 1)
        w = difference[:, split:].reshape(-1, toy.features, 2)
        return torch.cat([difference[:, :split], w[..., 0] - w[..., 1]], 1)

    found = least_squares(off, torch.cat([starts.inputs, starts.hidden], 1))
    return np.asarray(found.view(RESTARTS, -1).amin(0).numpy())


def least_squares(off: Callable[[Tensor], Tensor], guess: Tensor) -> Tensor:
    """The length of `off` that Levenberg and Marquardt's steps reach, row by row.

    `off` is given these rows, or several copies of all of them one behind the other.
    """
    damping = guess.new_full((len(guess), 1, 1), 1e-2)
    value = off(guess)
    cost = value.square().sum(1)
    for _ in range(ITERATIONS):
        jacobian = _slopes(off, guess)
        normal = jacobian.mT @ jacobian
        scaled = torch.diag_embed(normal.diagonal(dim1=1, dim2=2).clamp_min(1e-12))
        slope = jacobian.mT @ value[:, :, None]
        tried = guess - torch.linalg.solve(normal + damping * scaled, slope)[..., 0]
        there = off(tried)
        new = there.square().sum(1)
        better = new < cost
        guess = torch.where(better[:, None], tried, guess)
        value, cost = torch.where(better[:, None], there, value), torch.where(better, new, cost)
        damping = torch.where(better[:, None, None], damping / 3.0, damping * 3.0).clamp(1e-14, 1e8)
    return cost.sqrt()


def _slopes(off: Callable[[Tensor], Tensor], guess: Tensor) -> Tensor:
    """By central differences, all at once: (rows, values, unknowns)."""
    rows, unknowns = guess.shape
    step = STEP * guess.abs().clamp_min(1.0)
    moves = torch.eye(unknowns, dtype=guess.dtype)[:, None] * step
    tried = torch.cat([guess + moves, guess - moves]).view(-1, unknowns)
    above, below = off(tried).view(2, unknowns, rows, -1)
    slopes: Tensor = (above - below) / (2.0 * step.T[:, :, None])
    return slopes.permute(1, 2, 0)


def fitted(toy: Toy, rows: Floats) -> Floats:
    """How much better some noise explains the weights with the record than without it."""
    without, with_ = (fit_residuals(toy, rows, included) for included in (False, True))
    return np.log(np.maximum(without, 1e-18)) - np.log(np.maximum(with_, 1e-18))


def counted_labels(toy: Toy, rows: Floats) -> Floats:
    """The number of labels 1 in a batch of records that are alike, from the updates of A and c.

    Of the hidden units the one that is least saturated is read, where the update is largest.
    """
    _, a, c, w = (part[0].numpy() for part in toy.first)
    d, b, p = toy.inputs, toy.neurons, toy.features
    g_a = (a - rows[:, d * b : b * (d + p)].reshape(-1, b, p)) / toy.rate
    g_c = (c - rows[:, b * (d + p) : b * (d + p) + p]) / toy.rate
    unit, runs = np.abs(g_c).argmax(1), np.arange(len(rows))
    update = g_c[runs, unit]
    saturated = np.abs(update) < 1e-12
    h = g_a[runs, :, unit] / np.where(saturated, 1.0, update)[:, None]
    u = np.tanh(h @ a + c)
    # g_c = (1 - u^2) sum_k W_k (1/2 + z_k/4 - share_k), and the shares add up to one.
    slopes = w[unit] * (0.5 + u @ w / 4.0)
    left = slopes.sum(1) - update / np.maximum(1.0 - u[runs, unit] ** 2, 1e-300)
    share = (left - w[unit, 0]) / (w[unit, 1] - w[unit, 0])
    return np.where(saturated, 0.0, np.clip(toy.batch * share, 0.0, toy.batch))


@final
@dataclass(frozen=True, kw_only=True)
class NoisedBatch:
    """One pixel of two noised records of a batch, a row for each run.

    Attributes:
        scale: of the noise.
        shared: whether both have the same draw.
    """

    scale: float
    shared: bool = True

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The first record's pixel is white with, black without; the second's is black."""
        noise = np.random.default_rng(seed).laplace(0.0, self.scale, (runs, 2))
        if self.shared:
            noise[:, 1] = noise[:, 0]
        noise += (1.0 if included else -1.0, -1.0)
        return np.asarray(noise)


def training() -> Subject:
    """One step of the literal algorithm, seen at the weights."""
    return _subject(
        "stobatch",
        Toy(),
        fitted,
        "two batches of ten known records; the label of one differs. The noise is fitted to the "
        "weights for both labels: one fit is exact, the other is not.",
        runs=100,
    )


def labels() -> Subject:
    """One step without adversarial examples, seen at the second layer."""
    return _subject(
        "stobatch-labels",
        Toy(xi=0.0, alike=True),
        counted_labels,
        "ten records that are alike but for their labels, of which one differs. The updates of one "
        "hidden unit give its input, and with that the number of labels.",
        runs=10_000,
    )


def batch() -> Subject:
    """The noised batch of Lemma 3.10, with MNIST's figures."""
    mnist = Budgets(
        epsilon=EPSILON, epsilon2=0.1, batch=2499, patch=25, neurons=196, features=256,
        column_norm=1.0,
    )  # fmt: skip
    return Subject(
        name="stobatch-batch",
        flaw=FLAW,
        claim=Stated(mnist.epsilon1 / mnist.gamma_x),
        adjacency=Adjacency.REPLACE_ONE,
        delta=0.0,
        pair="two records of the batch, of which one has a white pixel or a black one; the "
        "difference of the noised pixels is that of the pixels.",
        sample=NoisedBatch(scale=mnist.input_scale),
        statistic=lambda rows: rows[:, 0] - rows[:, 1],
        runs=10_000,
    )


def _subject(
    name: str, toy: Toy, statistic: Callable[[Toy, Floats], Floats], pair: str, *, runs: int
) -> Subject:
    return Subject(
        name=name,
        flaw=FLAW,
        claim=Stated(EPSILON),
        adjacency=Adjacency.REPLACE_ONE,
        delta=0.0,
        pair=pair,
        sample=toy,
        statistic=lambda rows: statistic(toy, rows),
        runs=runs,
    )
