"""What an attack wants, and the functions of scores that it raises to get there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """Away from the label of each input, or towards its target.

    Attributes:
        labels: the true classes, or the targets.
        targeted: which of the two.
    """

    labels: Tensor
    targeted: bool

    def at(self, rows: Tensor) -> "Goal":
        """The same for some of the inputs."""
        return Goal(labels=self.labels[rows], targeted=self.targeted)

    def reached(self, scores: Tensor) -> Tensor:
        """Whether the likeliest class is another one, or the target.

        Scores with a NaN name no class: not the true one, and no target either.
        """
        named = (scores.argmax(1) == self.labels) & ~scores.isnan().any(1)
        return named == self.targeted

    def margin(self, scores: Tensor) -> Tensor:
        """How far the scores are from the goal; negative once it is reached."""
        own = scores.gather(1, self.labels[:, None])[:, 0]
        lead = own - self.rival(scores)
        return -lead if self.targeted else lead

    def rival(self, scores: Tensor) -> Tensor:
        """The best score among the other classes."""
        others = scores.scatter(1, self.labels[:, None], -torch.inf)
        return others.amax(1)


Loss = Callable[[Tensor, Goal], Tensor]


def cross_entropy(scores: Tensor, goal: Goal) -> Tensor:
    """Of the true class, to be raised; of the target, to be lowered."""
    loss = F.cross_entropy(scores, goal.labels, reduction="none")
    return -loss if goal.targeted else loss


def negative_margin(scores: Tensor, goal: Goal) -> Tensor:
    """Lead of the best other class, or of the target."""
    return -goal.margin(scores)


def logits_ratio(scores: Tensor, goal: Goal) -> Tensor:
    """Difference of logits ratio (Croce and Hein, 2020): the margin, free of scale and shift.

    Divided by z1 - z3 of the sorted scores, or by z1 - (z3 + z4) / 2 with targets. Where the paper
    has the true class against the target, we take the best other class.
    """
    ordered = scores.topk(4 if goal.targeted else 3, dim=1).values
    third = (ordered[:, 2] + ordered[:, 3]) / 2 if goal.targeted else ordered[:, 2]
    return -goal.margin(scores) / (ordered[:, 0] - third + 1e-12)


LOSSES: Final[dict[str, Loss]] = {
    "ce": cross_entropy,
    "margin": negative_margin,
    "dlr": logits_ratio,
}


def find_loss(name: str) -> Loss:
    """A loss by name; an unknown one is bad input."""
    if name in LOSSES:
        return LOSSES[name]
    raise InputError("unknown loss", got=name, expected=f"one of {', '.join(LOSSES)}")
