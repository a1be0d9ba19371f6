"""AdLM's three releases under audit: affine layer, loss, relevance.

Phan, Wu, Hu and Dou (ICDM 2017), "Adaptive Laplace mechanism". Settings are those of the public
program for MNIST, where the text has none; `training.published.adlm` has the whole method.

| paper         | here            | value                                                      |
|---------------|-----------------|------------------------------------------------------------|
| epsilon_1..3  | `EPSILON_1`..   | 0.075, 0.075, 0.15: 0.3 in all, for one record replaced    |
| |L|           | `BATCH`         | 1,800                                                      |
| Delta_h0      | `AFFINE`        | 9,800: noise of scale 72.6 / beta_j on input j             |
| Delta_F       | `LOSS`          | 1,812.5: noise N3 of scale 6.71 on each output weight      |
| beta_j        |                 | 1 for all inputs, as where all are equally relevant        |
| d, n          |                 | of relevance: inputs and records of the audited data       |

**adlm** (gap A2), the weights after one step. All images are black; in one world one label is 1, in
the other all are 0. Affine layer h = w.(x + nu), one unit u = a h + c behind it, cut off at -1 and
1, scores z_l = W_l u, first weights public. The gradients of a and c hold no noise of their own:

    dc = mean_i sum_l [(1/2 - y_il) W_l + W_l^2 u / 4]        da = h dc

So h = da / dc and u = a h + c are known to whoever sees both updates, and dc less the second sum is
the mean of W over the labels: exact, whatever nu and N3 are. That is all of the label.

**adlm-affine** (gap A1), the first layer, normalised by the least and largest value of a batch as
the text has it. All images are black but for the record, one pixel of which is grey or white, and a
white one. The noise is added to all of them and taken off with the least value.

**adlm-relevance** (gap A3), the noised mean of relevances. Two inputs are equal in all records, and
tell the class. A network trained on these records weighs them alike. One record in which the first
is 1, the second 0, and the class is the other one, turns the weight of the first round: the
relevances of all records change, not those of one. With 1,000 records the mean moves by 0.27 in L1,
34 times what is accounted for.

Deviations: small networks for large ones; the gaps are in the noise, which is the paper's. For
relevance the network is one linear layer, trained to convergence.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import nn

from privet.audits.mechanism import Floats, Sample, Subject
from privet.audits.statistics import Statistic
from privet.guarantee import Adjacency
from privet.models.relevance import relevance
from privet.privacy.tradeoff import Stated

EPSILON_1: Final = 0.075
EPSILON_2: Final = 0.075
EPSILON_3: Final = 0.15
BATCH: Final = 1800
AFFINE: Final = 9800.0
LOSS: Final = 1812.5
RUNS: Final = 20_000
SATURATED: Final = 1e-9  # an update of a below it: the unit was cut off, and tells nothing


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """The weights a, c and W after a step from public ones, a row a run."""

    classes: int = 10
    patch: int = 25
    learning_rate: float = 0.1
    slope: float = 1e-3
    offset: float = 0.2

    @property
    def output(self) -> Floats:
        """W, public."""
        return np.linspace(-1.0, 1.0, self.classes)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """After the step; `included`: one label is 1 instead of 0."""
        rng = np.random.default_rng(seed)
        # w is a mean over the patch; x is 0, so what is left of h is the shared noise.
        h = rng.laplace(0.0, AFFINE / (BATCH * EPSILON_2), (runs, self.patch)).mean(1)
        n3 = rng.laplace(0.0, LOSS / (BATCH * EPSILON_3), (runs, self.classes))
        before = self.slope * h + self.offset
        u = np.clip(before, -1.0, 1.0)
        labels = np.zeros(self.classes)
        labels[0], labels[1] = (1 - 1 / BATCH, 1 / BATCH) if included else (1.0, 0.0)
        w = self.output
        by_score = 0.5 - labels + u[:, None] * w / 4
        dc = np.where(np.abs(before) < 1.0, by_score @ w, 0.0)
        dw = by_score * u[:, None] - n3
        rate = self.learning_rate
        a, c = self.slope - rate * h * dc, self.offset - rate * dc
        return np.column_stack([a, c, w - rate * dw])

    def labels_seen(self, rows: Floats) -> Floats:
        """Mean of W over the labels, in units of what one label moves it, from a and c alone."""
        da = (self.slope - rows[:, 0]) / self.learning_rate
        dc = (self.offset - rows[:, 1]) / self.learning_rate
        told = np.abs(dc) > SATURATED
        h = np.divide(da, dc, out=np.zeros_like(da), where=told)
        u, w = self.slope * h + self.offset, self.output
        mean = w.sum() / 2 + np.square(w).sum() * u / 4 - dc
        one = (w[1] - w[0]) / BATCH
        return np.where(told, np.round((mean - w[0]) / one, 3), 0.5)


@dataclass(frozen=True, kw_only=True)
class AffineLayer:
    """The normalised first layer of three records, a row a run: black, white, and the changed."""

    patch: int = 25

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """One neuron, its weights all 1 / patch; `included`: the third record is white, too."""
        rng = np.random.default_rng(seed)
        nu = rng.laplace(0.0, AFFINE / (BATCH * EPSILON_2), (runs, self.patch))
        x = np.zeros((3, self.patch))
        x[1] = 1.0
        x[2, 0] = 1.0 if included else 0.5
        h = (x[None] + nu[:, None]).mean(2)
        low, high = h.min(1, keepdims=True), h.max(1, keepdims=True)
        return np.asarray((h - low) / (high - low))


@dataclass(frozen=True, kw_only=True)
class NoisedRelevance:
    """R~ of a network that is trained on the records, a row a run."""

    size: int = 1000
    inputs: int = 4
    steps: int = 2000

    @property
    def scale(self) -> float:
        """Of the noise: Delta_R / epsilon_1, Delta_R = 2d / n."""
        return 2 * self.inputs / (self.size * EPSILON_1)

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """`included`: one record says that the first input speaks for the other class."""
        noise = np.random.default_rng(seed).laplace(0.0, self.scale, (runs, self.inputs))
        return mean_relevance(self, included) + noise

    def likelier(self, rows: Floats) -> Floats:
        """The log likelihood ratio of the two worlds: nothing tells more."""
        without, with_ = (mean_relevance(self, included) for included in (False, True))
        apart = np.abs(rows - without) - np.abs(rows - with_)
        return np.asarray(apart.sum(1) / self.scale)

    def records(self, included: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Two classes, by the first two inputs, which are equal; the last record may say no."""
        y = (torch.arange(self.size) % 4 > 0).long()
        x = torch.full((self.size, self.inputs), 0.5, dtype=torch.float64)
        x[:, :2] = y[:, None].double()
        if included:
            x[-1, 1], y[-1] = 0.0, 0
        return x, y

    def trained(self, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        """Adam from zero, by the cross entropy; nothing is drawn."""
        layer = nn.Linear(self.inputs, 2, bias=False).double()
        nn.init.zeros_(layer.weight)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
        for _ in range(self.steps):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(layer(x), y))
            optimizer.step()
        return layer


@lru_cache
def mean_relevance(mechanism: NoisedRelevance, included: bool) -> Floats:
    """R(D): without noise, the same in all runs."""
    x, y = mechanism.records(included)
    rows = relevance(mechanism.trained(x, y), x)
    low = rows.amin(1, keepdim=True)
    width = rows.amax(1, keepdim=True) - low
    return np.asarray(((rows - low) / width.clamp_min(1e-30)).mean(0))


def weights() -> Subject:
    """Seen at the weights after one step."""
    step = OneStep()
    return _subject(
        "adlm",
        EPSILON_1 + EPSILON_2 + EPSILON_3,
        flaw="The noise of the loss has no derivative with respect to lower layers, which are "
        "trained on labels without noise; the noise of the inputs is shared, and cancels.",
        pair="black images of one class; one has another label. The updates of the unit below the "
        "last layer give the mean label away, exactly.",
        sample=step,
        statistic=step.labels_seen,
    )


def affine() -> Subject:
    """Seen at the first layer."""
    return _subject(
        "adlm-affine",
        EPSILON_2,
        flaw="One draw of noise is added to all records of a batch: differences of records are "
        "exact, and a normalisation over the batch takes the draw off.",
        pair="a black and a white image, and a record of which one pixel is grey or white. Its "
        "normalised activation is the same in every run.",
        sample=AffineLayer(),
        statistic=lambda rows: np.round(rows[:, 2], 9),
    )


def relevances() -> Subject:
    """Seen at the noised mean of relevances."""
    mechanism = NoisedRelevance()
    return _subject(
        "adlm-relevance",
        EPSILON_1,
        flaw="The network that gives the relevances is trained on the records: one of them changes "
        "the relevances of all, by up to d, where 2d / n is accounted for.",
        pair="two inputs that are equal in all records but one, which says that the first of them "
        "speaks for the other class: the network turns its weight round.",
        sample=mechanism,
        statistic=mechanism.likelier,
    )


def _subject(
    name: str, epsilon: float, *, flaw: str, pair: str, sample: Sample, statistic: Statistic
) -> Subject:
    return Subject(
        name=name,
        claim=Stated(epsilon),
        delta=0.0,
        adjacency=Adjacency.REPLACE_ONE,
        flaw=flaw,
        pair=pair,
        sample=sample,
        statistic=statistic,
        runs=RUNS,
    )
