"""L2DP-ML under audit: three counter-examples, and what a sound memory keeps.

A thesis's "Lifelong differential privacy" (later in CoLLAs 2022). Claim: one epsilon for one record
replaced, whatever the number of tasks, epochs and releases. `lifelong.published` is the method; the
parts below are its formulas, with the thesis's figures for MNIST and for signals.

| thesis         | here                | value                                                     |
|----------------|---------------------|-----------------------------------------------------------|
| d, beta, N     | `FirstLayer`        | 4 inputs of a neuron, 196 neurons, 120 records            |
| |h_pi|, K, N   | `LastLayer`         | 512 features, 10 classes, 2,500 records                   |
| epsilon, epsilon_2 | `EPSILON`, `LABELS` | 0.5 and 0.1                                           |
| u, w           | `FirstLayer`        | chi1/N; 2 chi2/N, the same for all records                |

All records but one, the first weights and the features are known, as in the definition of privacy.

`l2dp-inputs` sees two noised records. All have the same draw: their difference is bare.

`l2dp-rank` sees one gradient of the first layer, the only step of Algorithm 3.6 in the first task:

    sum_r (1/2 - x-bar_r) h-bar_r'  =  C_D + (N/2 - sum_r x_r - N u) v' - u (theta1' sum_r x_r)'

with v = theta1' u + w, as long as no neuron is clipped. C_D = sum_r (1/2 - x_r)(theta1' x_r)' is a
function of the records alone, and the rest has rank two, whatever the scale of the noise. With the
right records nothing is left beyond two singular values, with the wrong ones two more are.

`l2dp-labels` sees the gradient of the last layer. chi3 is one vector for all classes: the
difference of two columns is free of it, and shows the label of every record.

`l2dp-sound` sees the memory that replaces all this: the coefficients of the quadratic loss over
fixed features, with Gaussian noise of its own in every number (`privacy.functional`), once for a
task. What is proved for one release holds for any number of later steps and tasks. The score is the
best there is for two known data sets: the coefficients along the line between both.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.audits.mechanism import Floats, Sample, Subject
from privet.audits.papers.stobatch import NoisedBatch
from privet.audits.statistics import Statistic
from privet.guarantee import Adjacency
from privet.privacy.functional import Logistic
from privet.privacy.noise import GaussianNoise, analytic_gaussian_multiplier
from privet.privacy.randomness import Randomness
from privet.privacy.tradeoff import Stated
from privet.training.published.budgets import Budgets

EPSILON: Final = 0.5
LABELS: Final = 0.1
DELTA: Final = 1e-5
SMALL_WEIGHTS: Final = 0.01  # l1 norm of a column of theta1: no neuron is clipped
AT_ONCE: Final = 32  # runs
EXACT: Final = 1e-12  # of the largest singular value: rounding, not data
FLAW: Final = "One draw of noise serves all records, all classes, all steps and all tasks."


MNIST: Final = Budgets(
    epsilon=EPSILON, epsilon2=LABELS, batch=2500, patch=25, neurons=196, features=512,
    column_norm=1.0,
)  # fmt: skip
MNIST_SMALL_WEIGHTS: Final = replace(MNIST, column_norm=SMALL_WEIGHTS)
SIGNALS: Final = Budgets(
    epsilon=EPSILON, epsilon2=LABELS, batch=120, patch=4, neurons=196, features=128,
    column_norm=SMALL_WEIGHTS,
)  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """The gradient of R-bar by theta1, d x beta; called, it gives a row for each run.

    Attributes:
        fresh: a deviation of independent noise on every number of the gradient, which the method
            does not have.
    """

    budgets: Budgets
    public_seed: int = 7
    fresh: float = 0.0

    @cached_property
    def weights(self) -> Tensor:
        """theta1, public."""
        rng = np.random.default_rng(self.public_seed)
        drawn = rng.normal(size=(self.budgets.patch, self.budgets.neurons))
        return torch.from_numpy(drawn * (self.budgets.column_norm / np.abs(drawn).sum(0)))

    def records(self, included: bool) -> Tensor:
        """N patches; with the record, the first is another one."""
        rng = np.random.default_rng(self.public_seed + 1)
        *x, other = rng.uniform(-1.0, 1.0, (self.budgets.batch + 1, self.budgets.patch))
        return torch.from_numpy(np.stack([other, *x[1:]] if included else x))

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """One full-batch gradient for each draw of the noise."""
        rng, found = np.random.default_rng(seed), self.budgets
        u = torch.from_numpy(rng.laplace(0.0, found.input_scale, (runs, found.patch)))
        w = torch.from_numpy(rng.laplace(0.0, found.hidden_scale, (runs, found.neurons)))
        x = self.records(included)
        blocks = zip(torch.split(u, AT_ONCE), torch.split(w, AT_ONCE), strict=True)
        rows = torch.cat([self.gradient(x + a[:, None], b).flatten(1) for a, b in blocks])
        if self.fresh:
            rows += torch.from_numpy(rng.normal(0.0, self.fresh, rows.shape))
        return np.asarray(rows.numpy())

    def gradient(self, noised: Tensor, hidden_noise: Tensor) -> Tensor:
        """The sum of (1/2 - x-bar_r) h-bar_r' over the records of each run."""
        h = (noised @ self.weights).clamp(-1.0, 1.0) + hidden_noise[:, None]
        return (0.5 - noised).mT @ h

    def beyond_rank_two(self, rows: Floats, included: bool) -> Floats:
        """The third singular value of what these records leave of a gradient, of the first."""
        x = self.records(included)
        known = (0.5 - x).T @ (x @ self.weights)
        left = torch.from_numpy(rows).view(-1, *known.shape) - known
        # Through the small side, whose rotation makes the matrix square; squares would round.
        values = torch.linalg.svdvals(torch.linalg.qr(left.mT, mode="r").R)
        return np.asarray((values[:, 2] / values[:, 0]).clamp_min(EXACT).numpy())

    def score(self, rows: Floats) -> Floats:
        """How much better a noise of rank two explains a gradient with the record than without."""
        without, with_ = (self.beyond_rank_two(rows, included) for included in (False, True))
        return np.log(without) - np.log(with_)


@final
@dataclass(frozen=True, kw_only=True)
class LastLayer:
    """The gradient of L-bar by W, |h_pi| x K; called, it gives a row for each run.

    Attributes:
        shared: whether all classes have the same draw, as published.
    """

    budgets: Budgets
    classes: int = 10
    public_seed: int = 7
    shared: bool = True

    @cached_property
    def features(self) -> Floats:
        """h_pi of all records, known."""
        rng = np.random.default_rng(self.public_seed)
        return rng.uniform(-1.0, 1.0, (self.budgets.batch, self.budgets.features))

    def gradient(self, included: bool) -> Floats:
        """sum_r [(1/2 - y_rk) + z_rk/4] h_r at W = 0; with the record, its label is 1, not 0."""
        rng = np.random.default_rng(self.public_seed + 1)
        y = rng.integers(self.classes, size=self.budgets.batch)
        y[0] = int(included)
        return np.asarray(self.features.T @ (0.5 - np.eye(self.classes)[y]))

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The gradient minus chi3."""
        scale = self.budgets.labels / self.budgets.epsilon2
        columns = 1 if self.shared else self.classes
        shape = (runs, self.budgets.features, columns)
        chi3 = np.random.default_rng(seed).laplace(0.0, scale, shape)
        return np.asarray((self.gradient(included) - chi3).reshape(runs, -1))

    def score(self, rows: Floats) -> Floats:
        """Classes 0 and 1 apart, along the features of the record: 1 with it, 0 without."""
        without, with_ = (self._apart(self.gradient(included)) for included in (False, True))
        line = with_ - without
        apart = self._apart(rows.reshape(len(rows), -1, self.classes))
        return np.asarray((apart - without) @ line / (line @ line))

    @staticmethod
    def _apart(gradient: Floats) -> Floats:
        return gradient[..., 0] - gradient[..., 1]


@final
@dataclass(frozen=True, kw_only=True)
class ObjectiveMemory:
    """What a task leaves behind: A = sum h h' and b = sum h y', noised once; a row for each run.

    A row has the upper triangle of A, times sqrt(2) off the diagonal, and b: what
    `privacy.functional` adds noise to.
    """

    multiplier: float
    objective: Logistic
    records: int = 20
    public_seed: int = 7

    def task(self, included: bool) -> tuple[Floats, NDArray[np.int64]]:
        """Features of length one, and labels; without the record, there is one fewer."""
        rng = np.random.default_rng(self.public_seed)
        x = rng.normal(size=(self.records, self.objective.features))
        y = rng.integers(self.objective.classes, size=self.records)
        chosen = slice(0 if included else 1, None)
        unit = np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))
        return unit[chosen], y[chosen]

    def exact(self, included: bool) -> Tensor:
        """A row without noise."""
        a, b = self.objective.coefficients(*self.task(included))
        i, j = torch.triu_indices(len(a), len(a))
        lengths = torch.where(i == j, 1.0, math.sqrt(2.0))
        return torch.cat([a[i, j] * lengths, b.flatten()])

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """All runs at once, by the noise of private runs."""
        sensitivity = self.objective.sensitivity("gaussian")
        noise = GaussianNoise(multiplier=self.multiplier, sensitivity=sensitivity)
        rows = self.exact(included).repeat(runs)
        noisy = noise.add_to(rows, step=0, stream=Randomness.seeded(seed).noise)
        return np.asarray(noisy.view(runs, -1).numpy())

    def score(self, rows: Floats) -> Floats:
        """The logarithm of the likelihood ratio, up to constants."""
        return np.asarray(rows @ (self.exact(True) - self.exact(False)).numpy())


def inputs() -> Subject:
    """The noised records that everything else is post-processing of."""
    return _refuted(
        "l2dp-inputs",
        MNIST.epsilon1 / MNIST.gamma_x,
        "two records of a task, of which one has a white pixel or a black one; the difference of "
        "the noised pixels is that of the pixels.",
        sample=NoisedBatch(scale=MNIST.input_scale),
        statistic=lambda rows: rows[:, 0] - rows[:, 1],
        runs=10_000,
    )


def rank() -> Subject:
    """The first gradient of Algorithm 3.6."""
    layer = FirstLayer(budgets=SIGNALS)
    return _refuted(
        "l2dp-rank",
        EPSILON,
        "120 known records, of which one is another. A gradient minus what the records make of "
        "it has rank two under the right ones only.",
        sample=layer,
        statistic=layer.score,
        runs=5_000,
    )


def labels() -> Subject:
    """The gradient of the last layer."""
    layer = LastLayer(budgets=MNIST)
    return _refuted(
        "l2dp-labels",
        LABELS,
        "2,500 known records, of which the label of one differs. The columns of two classes have "
        "the same noise.",
        sample=layer,
        statistic=layer.score,
        runs=1_000,
    )


def sound() -> Subject:
    """One noised objective for a task, at the same epsilon."""
    z = analytic_gaussian_multiplier(EPSILON, DELTA)
    memory = ObjectiveMemory(multiplier=z, objective=Logistic(features=4, classes=4))
    return Subject(
        name="l2dp-sound",
        claim=memory.objective.tradeoff("gaussian", z),
        delta=DELTA,
        pair="twenty known records, and one fewer; the coefficients along what it adds to them.",
        sample=memory,
        statistic=memory.score,
    )


def _refuted(
    name: str, claimed: float, pair: str, *, sample: Sample, statistic: Statistic, runs: int
) -> Subject:
    return Subject(
        name=name,
        flaw=FLAW,
        claim=Stated(claimed),
        adjacency=Adjacency.REPLACE_ONE,
        delta=0.0,
        pair=pair,
        sample=sample,
        statistic=statistic,
        runs=runs,
    )
