"""Sensitivities, noise and budgets of DPAL and StoBatch, as published.

| papers         | here                | meaning                                                |
|----------------|---------------------|--------------------------------------------------------|
| m              | `batch`             | records in a batch                                     |
| d, beta        | `patch`, `neurons`  | inputs of a neuron (all channels), neurons of one map  |
| |h_pi|         | `features`          | width of the last hidden layer                         |
| |theta1|_{1,1} | `column_norm`       | largest l1 norm of the weights into a neuron           |
| Delta_R        | `reconstruction`    | d (beta + 2)                                           |
| Delta_L2       | `labels`            | 2 |h_pi|                                               |
| gamma_x, gamma | `gamma_x`, `gamma`  | Delta_R / m, and 2 Delta_R / (m |theta1|_{1,1})        |
| epsilon_1      | `epsilon1`          | (epsilon - epsilon_2) / (1 + 1/gamma + 1/gamma_x)      |
| b_x, b_h       | `input_scale`, `hidden_scale` | Laplace scales of chi1 / m and of 2 chi2 / m |
| chi1, chi2     | `Draws`             | Lap(Delta_R / epsilon_1), drawn once for the whole run |
| chi3           | `Draws.labels`      | Lap(Delta_L2 / epsilon_2), drawn once                  |

A convolution is counted as if it had one map and one position of its patch. The norm of theta1 is
that of its first values; training changes it. The total is what the papers claim for any number of
steps: epsilon_1 + epsilon_1 / gamma_x + epsilon_1 / gamma + epsilon_2. No such thing is proved;
`stobatch` lists the gaps.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.published_noised import Noised
from privet.privacy.noise import LaplaceNoise
from privet.privacy.randomness import SecretStream

LABEL_NOISES: Final = ("vector", "matrix")


class Drawn(Protocol):
    """A network that noise is drawn for."""

    input_noise: Tensor
    hidden_noise: Tensor
    last: nn.Linear


@final
@dataclass(frozen=True, kw_only=True)
class Budgets:
    """All that follows from the target, the network and the batch."""

    epsilon: float
    epsilon2: float
    batch: int
    patch: int
    neurons: int
    features: int
    column_norm: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon2 < self.epsilon:
            raise InputError(
                "no budget is left for the inputs",
                got=f"epsilon2 {self.epsilon2:g} of epsilon {self.epsilon:g}",
                expected="0 < epsilon2 < epsilon",
                fix="a larger --epsilon, or a smaller --epsilon2",
            )

    @classmethod
    def of(cls, model: Noised, *, epsilon: float, epsilon2: float, batch: int) -> Self:
        """For a network with its first weights."""
        columns = model.first.weight.detach().double().abs().flatten(1).sum(1)
        return cls(
            epsilon=epsilon,
            epsilon2=epsilon2,
            batch=batch,
            patch=model.first.weight[0].numel(),
            neurons=model.hidden_noise[0].numel(),
            features=model.last.in_features,
            column_norm=float(columns.max()),
        )

    @property
    def reconstruction(self) -> float:
        """Delta_R."""
        return float(self.patch * (self.neurons + 2))

    @property
    def labels(self) -> float:
        """Delta_L2."""
        return 2.0 * self.features

    @property
    def gamma_x(self) -> float:
        """Lemma 3.10, with its sensitivity of one for a record."""
        return self.reconstruction / self.batch

    @property
    def gamma(self) -> float:
        """The same of the first layer."""
        return 2.0 * self.reconstruction / (self.batch * self.column_norm)

    @property
    def epsilon1(self) -> float:
        """Solved for the total."""
        return (self.epsilon - self.epsilon2) / (1.0 + 1.0 / self.gamma + 1.0 / self.gamma_x)

    @property
    def input_scale(self) -> float:
        """b_x = (1 + gamma_x + |theta1| / 2) / (epsilon - epsilon_2)."""
        return self.reconstruction / (self.batch * self.epsilon1)

    @property
    def hidden_scale(self) -> float:
        """b_h, twice b_x."""
        return 2.0 * self.input_scale

    @property
    def total(self) -> float:
        """What is claimed."""
        return self.epsilon1 * (1.0 + 1.0 / self.gamma_x + 1.0 / self.gamma) + self.epsilon2

    def figures(self) -> dict[str, Any]:
        """For a card."""
        return {
            "sensitivity_reconstruction": self.reconstruction,
            "sensitivity_labels": self.labels,
            "column_norm": self.column_norm,
            "gamma_x": self.gamma_x,
            "gamma": self.gamma,
            "epsilon1": self.epsilon1,
            "epsilon2": self.epsilon2,
            "input_scale": self.input_scale,
            "hidden_scale": self.hidden_scale,
            "label_scale": self.labels / self.epsilon2,
        }


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """The noise of a run: on an input, on the first layer, on the label term of a batch.

    Attributes:
        inputs: chi1 / m, of the shape of an input.
        hidden: 2 chi2 / m, of the shape of the first layer.
        labels: chi3 as (classes, |h_pi|): equal rows where it is one vector, as in the text.
    """

    inputs: Tensor
    hidden: Tensor
    labels: Tensor

    @classmethod
    def drawn(cls, budgets: Budgets, model: Drawn, label_noise: str, stream: SecretStream) -> Self:
        """Once for a run."""

        def laplace(shape: tuple[int, ...], sensitivity: float, epsilon: float, at: int) -> Tensor:
            noise = LaplaceNoise(scale=1.0 / epsilon, sensitivity=sensitivity)
            return torch.from_numpy(noise.add_to(np.zeros(shape), step=at, stream=stream))

        classes, features = model.last.weight.shape
        rows = classes if label_noise == "matrix" else 1
        delta, m = budgets.reconstruction, budgets.batch
        chi1 = laplace(tuple(model.input_noise.shape), delta, budgets.epsilon1, 0)
        chi2 = laplace(tuple(model.hidden_noise.shape), delta, budgets.epsilon1, 1)
        chi3 = laplace((rows, features), budgets.labels, budgets.epsilon2, 2)
        return cls(inputs=chi1 / m, hidden=2.0 * chi2 / m, labels=chi3.expand(classes, -1))
