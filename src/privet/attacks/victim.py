"""The classifier as attacks see it: scores and gradients, averaged over its own noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privet.attacks.losses import Goal, Loss
from privet.classifiers import Classifier
from privet.errors import InputError


@dataclass(frozen=True, eq=False)
class Victim:
    """Scores and gradients of a classifier.

    Expectation over transformation (Athalye et al., 2018): a random classifier is asked `draws`
    times, one call after the other, since some draw one noise for the whole batch. Gradients of
    the loss and scores are averaged.
    """

    classifier: Classifier
    draws: int

    @property
    def random(self) -> bool:
        """Whether one success may be luck."""
        return self.classifier.random

    def scores(self, x: Tensor) -> Tensor:
        """Mean scores."""
        with torch.no_grad():
            total = self.classifier.scores(x)
            for _ in range(self.draws - 1):
                total = total + self.classifier.scores(x)
        return total / self.draws

    def gradient(self, x: Tensor, goal: Goal, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient of the mean loss of each input, mean losses, mean scores.

        NaN and infinite entries of the gradient become zero: they point nowhere.
        """
        gradients, losses, scores = self.gradients(x, goal, [loss])
        return gradients[:, 0], losses[:, 0], scores

    def gradients(
        self, x: Tensor, goal: Goal, losses: Sequence[Loss]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same for several losses after one pass: (n, losses, ...) each, and scores."""
        slopes, values, scores = self._once(x, goal, losses)
        for _ in range(self.draws - 1):
            more = self._once(x, goal, losses)
            slopes, values, scores = slopes + more[0], values + more[1], scores + more[2]
        slopes = (slopes / self.draws).nan_to_num(0.0, 0.0, 0.0)
        return slopes, values / self.draws, scores / self.draws

    def _once(self, x: Tensor, goal: Goal, losses: Sequence[Loss]) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            inputs = x.detach().requires_grad_()
            scores = self.classifier.scores(inputs)
            values = [loss(scores, goal) for loss in losses]
            slopes = [self._slope(v, inputs, last=v is values[-1]) for v in values]
        return torch.stack(slopes, 1), torch.stack(values, 1).detach(), scores.detach()

    def _slope(self, losses: Tensor, inputs: Tensor, *, last: bool) -> Tensor:
        # Each input's scores depend on that input alone: the sum keeps gradients apart.
        found = (
            torch.autograd.grad(losses.sum(), inputs, retain_graph=not last, allow_unused=True)
            if losses.requires_grad
            else (None,)
        )
        if found[0] is None:
            raise InputError(
                "no gradient goes through the classifier",
                got=self.classifier.name,
                fix="attack it by scores alone: square",
            )
        return found[0]
