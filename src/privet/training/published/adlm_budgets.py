"""Sensitivities, noise and budgets of AdLM, as published.

| paper        | here                      | MNIST                  | CIFAR-10                |
|--------------|---------------------------|------------------------|-------------------------|
| Delta_R      | 2d / n                    | 1,568 / 60,000         | 6,144 / 50,000          |
| Delta_h0     | `affine`                  | 2 * 14 * 14 * 25       | 2 * 3 * 10 * 10 * 3 * 3 |
|              |                           | = 9,800                | = 5,400                 |
| Delta_F      | M (|h| + |h|^2 / 4)       | 1,812.5                | 2,550                   |
| epsilon_1..3 | shares of the total       | 25, 25, 50 %           | 10, 60, 30 %            |
| |L|          | `batch`                   | 1,800                  | 7,200                   |

Scales at a total of 0.3 (MNIST): relevance 0.348, input j 72.6 / beta_j, loss 6.71.

The noise of input j is said to be epsilon_2-private for the sum of a batch. Drawn for each record
by itself it would have `for_each_record` = |L| epsilon_2 d / Delta_h0: 10.8 where 0.075 is claimed.
"""

import math
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.training.published.adlm_settings import AdlmPaperSettings


@final
@dataclass(frozen=True, kw_only=True)
class Budgets:
    """All that follows from the target, the network and the batch; epsilon1 is 0 for ILM."""

    epsilon1: float
    epsilon2: float
    epsilon3: float
    batch: int
    records: int
    inputs: int
    affine: float
    hidden: int
    classes: int

    @classmethod
    def of(
        cls,
        model: nn.Sequential,
        shape: tuple[int, ...],
        settings: AdlmPaperSettings,
        *,
        records: int,
    ) -> Self:
        """For filled settings."""
        last = model[-1]
        assert isinstance(last, nn.Linear)
        assert settings.batch is not None
        first, second, third = settings.shares
        return cls(
            epsilon1=first * settings.epsilon,
            epsilon2=second * settings.epsilon,
            epsilon3=third * settings.epsilon,
            batch=settings.batch,
            records=records,
            inputs=math.prod(shape),
            affine=affine_sensitivity(model, shape),
            hidden=last.in_features,
            classes=last.out_features,
        )

    @property
    def relevance_scale(self) -> float:
        """Delta_R / epsilon_1; none where there is no relevance."""
        return 2.0 * self.inputs / (self.records * self.epsilon1) if self.epsilon1 else 0.0

    @property
    def input_scale(self) -> float:
        """Delta_h0 / (|L| epsilon_2), of an input with beta 1."""
        return self.affine / (self.batch * self.epsilon2)

    @property
    def loss(self) -> float:
        """Delta_F."""
        return self.classes * (self.hidden + self.hidden**2 / 4.0)

    @property
    def loss_scale(self) -> float:
        """Delta_F / (|L| epsilon_3)."""
        return self.loss / (self.batch * self.epsilon3)

    @property
    def for_each_record(self) -> float:
        """Epsilon of the input's noise, drawn for each record by itself: sum over j of 1 / b_j."""
        return self.inputs / self.input_scale

    def figures(self) -> dict[str, Any]:
        """For a card."""
        return {
            "epsilon1": self.epsilon1,
            "epsilon2": self.epsilon2,
            "epsilon3": self.epsilon3,
            "sensitivity_relevance": 2.0 * self.inputs / self.records,
            "sensitivity_affine": self.affine,
            "sensitivity_loss": self.loss,
            "relevance_scale": self.relevance_scale,
            "input_scale": self.input_scale,
            "loss_scale": self.loss_scale,
            "input_epsilon_for_each_record": self.for_each_record,
        }


def affine_sensitivity(model: nn.Sequential, shape: tuple[int, ...]) -> float:
    """Delta_h0 of the first layer that has weights.

    Fully connected: 2 d |h_0|. A convolution: 2 times the channels, the size of the patch and the
    neurons of one feature map, behind the pooling that follows.
    """
    layers = list(model)
    place = next(i for i, m in enumerate(layers) if isinstance(m, nn.Linear | nn.Conv2d))
    first = layers[place]
    if isinstance(first, nn.Linear):
        return 2.0 * first.in_features * first.out_features
    if not isinstance(first, nn.Conv2d):
        raise InputError("no affine first layer", got=type(model).__name__, fix="--model adlm")
    end = place + 1
    while isinstance(layers[end], nn.ReLU | nn.MaxPool2d):
        end += 1
    with torch.no_grad():
        device = first.weight.device
        maps: Tensor = nn.Sequential(*layers[:end])(torch.zeros(1, *shape, device=device))
    return 2.0 * float(first.weight[0].numel() * maps[0, 0].numel())
