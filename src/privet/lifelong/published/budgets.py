"""Sensitivities, budgets and noise of L2DP-ML, as published.

The arithmetic is StoBatch's (`training.published.budgets` has its symbols), with three differences:

| thesis             | here                | meaning                                               |
|--------------------|---------------------|-------------------------------------------------------|
| N                  | `batch`             | lambda (Algorithm 3.7), or a whole task (3.6)         |
| |theta1|_{1,1}     | `column_norm`       | kept by renormalising after each step, not only begun |
| beta               | `neurons`           | of one feature map; 14x14 for signals, as printed     |
| chi1, chi2, chi3   | `Noise`             | one draw for all batches, all tasks, all releases     |

A batch of N records has chi1/N on every input, 2 chi2/N on every first layer, and chi3/N on the
mean gradient of W. Claimed for all of it, and any number of tasks:

    epsilon_1 + epsilon_1 / gamma_x + epsilon_1 / gamma + epsilon_2

In Algorithm 3.6 tasks may differ in size; the claim is then that of the largest, which is the worst
(gamma and gamma_x fall with N).
"""

from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from privet.models.published_lifelong import Autoencoded
from privet.privacy.randomness import SecretStream
from privet.training.published.budgets import Budgets, Draws

SIGNALS: Final = (100, 3)
PRINTED_NEURONS: Final = 14 * 14  # of signals; their map has 50 x 2


def budgets_of(
    network: Autoencoded,
    *,
    epsilon: float,
    epsilon_labels: float,
    batch: int,
    column_norm: float,
) -> Budgets:
    """All that follows from the target, the network and N."""
    printed = sorted(network.seen) == sorted(SIGNALS)
    return Budgets(
        epsilon=epsilon,
        epsilon2=epsilon_labels,
        batch=batch,
        patch=network.first.weight[0].numel(),
        neurons=PRINTED_NEURONS if printed else network.hidden_noise[0].numel(),
        features=network.last.in_features,
        column_norm=column_norm,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """The noise of a run, drawn once.

    Attributes:
        inputs: chi1, of the shape of an input.
        hidden: 2 chi2, of the shape of the first layer.
        labels: chi3 as (classes, |h_pi|), with equal rows: it is one vector.
    """

    inputs: Tensor
    hidden: Tensor
    labels: Tensor

    @classmethod
    def drawn(cls, budgets: Budgets, network: Autoencoded, stream: SecretStream) -> Self:
        """Line 1 of both algorithms."""
        draws, n = Draws.drawn(budgets, network, "vector", stream), budgets.batch
        like = network.last.weight
        return cls(
            inputs=(n * draws.inputs).to(like),
            hidden=(n * draws.hidden).to(like),
            labels=draws.labels.to(like),
        )

    @classmethod
    def none(cls, network: Autoencoded) -> Self:
        """Of what is not private, nor claims to be."""
        like = network.last.weight.detach()
        parts = (network.input_noise, network.hidden_noise, like)
        return cls(**dict(zip(("inputs", "hidden", "labels"), map(_zeros, parts), strict=True)))

    def to(self, device: torch.device) -> "Noise":
        """The same on a device."""
        return Noise(**{name: value.to(device) for name, value in vars(self).items()})

    def over(self, n: int) -> "Noise":
        """What a batch of n records gets."""
        return Noise(inputs=self.inputs / n, hidden=self.hidden / n, labels=self.labels / n)


def _zeros(like: Tensor) -> Tensor:
    return like.new_zeros(like.shape)
