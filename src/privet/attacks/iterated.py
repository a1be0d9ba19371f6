"""Projected ascent: the loop that I-FGSM, MIM and PGD share.

| here | meaning |
|---|---|
| d | perturbation of each open row |
| memory | what the direction is taken from: the gradient, or its running sum |
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import moved, norms, project, random_point, steepest
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal, find_loss
from privet.attacks.victim import Victim
from privet.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Iterated(WithinBall):
    """Many small steps along the gradient, each projected onto the ball and the box.

    Attributes:
        steps: gradients at each image.
        step: length of one, as a share of the size; default 2.5 / steps, which can cross the ball.
        loss: ce, margin or dlr.
    """

    steps: int = 40
    step: float | None = None
    loss: str = "ce"

    random_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("steps")
        find_loss(self.loss)
        if self.step is not None and not self.step > 0:
            raise InputError(f"bad step of {self.name}", got=self.step, expected="above 0")

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        self._ascend(victim, x, goal, size, best, self._generator(x))

    def _ascend(
        self,
        victim: Victim,
        x: Tensor,
        goal: Goal,
        size: float,
        best: Best,
        generator: torch.Generator,
    ) -> None:
        """One run over the rows that are open; those that reach the goal leave it."""
        rows, loss = best.open(), find_loss(self.loss)
        length = size * (2.5 / self.steps if self.step is None else self.step)
        d, memory = torch.zeros_like(x[rows]), torch.zeros_like(x[rows])
        if self.random_start:
            d = self._start(x[rows], size, generator)
        for _ in range(self.steps):
            tried = moved(x[rows], d)
            gradient, _, scores = victim.gradient(tried, goal.at(rows), loss)
            best.offer(rows, tried, scores)
            keep = best.among(rows)
            rows, d, memory = rows[keep], d[keep], memory[keep]
            if not len(rows):
                return
            memory = self._remembered(memory, gradient[keep])
            d = project(d + length * steepest(memory, self.norm), x[rows], size, self.norm)
        tried = moved(x[rows], d)
        best.offer(rows, tried, victim.scores(tried))

    def _start(self, x: Tensor, size: float, generator: torch.Generator) -> Tensor:
        d = random_point(x, size, self.norm, generator)
        if self.norm == "linf":
            return d
        # In many dimensions nearly all of a ball is its surface, the worst place to begin at: the
        # distance is uniform, too.
        share = torch.empty_like(d.flatten(1)[:, 0]).uniform_(generator=generator)
        return d * share.view(-1, *[1] * (d.dim() - 1))

    def _remembered(self, memory: Tensor, gradient: Tensor) -> Tensor:
        """The gradient alone; MIM has a memory."""
        return gradient


def per_l1(gradient: Tensor) -> Tensor:
    """The gradient divided by its l1 norm."""
    length = norms(gradient, "l1").clamp_min(1e-30)
    return gradient / length.view(-1, *[1] * (gradient.dim() - 1))
