"""APGD: PGD whose step size looks after itself (Croce and Hein, ICML 2020, algorithm 1).

| here | paper |
|---|---|
| eta | step size of each image; begins at 2 size |
| x, before | x^(k), x^(k-1) |
| top, top_loss, top_gradient | x_max, f_max and the gradient there |
| ALPHA, RHO | alpha = 0.75, rho = 0.75 |
| checkpoints | w_j |

    z = P(x + eta * direction),    x^(k+1) = P(x + alpha (z - x) + (1 - alpha) (x - before))

At a checkpoint the step of an image is halved, and the image goes back to its x_max, if (1) the
loss rose in fewer than rho of the steps since the last checkpoint, or (2) neither step nor f_max
has changed since then.

Deviations: images that are fooled leave; with targets, the ratio of logits takes the best other
class in place of the true one; P is the exact projection onto ball and box.
"""

import math
from abc import ABC
from dataclasses import dataclass, fields
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import WithinBall
from privet.attacks.geometry import Norm, moved, project, random_point, steepest
from privet.attacks.keeping import Best
from privet.attacks.losses import LOSSES, Goal
from privet.attacks.victim import Victim
from privet.errors import InputError

ALPHA: Final = 0.75
RHO: Final = 0.75


def checkpoints(steps: int) -> list[int]:
    """w_j = ceil(p_j N): p_0 = 0, p_1 = 0.22, then gaps shrink by 0.03 down to 0.06."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # Rounded before the ceiling: 0.41 * 100 is a little more than 41 in binary.
    marks = [math.ceil(round(share * steps, 9)) for share in shares]
    return sorted({mark for mark in marks if mark <= steps})


@dataclass(kw_only=True)
class _Climb:
    """The state of the images that are still attacked; all fields have a row for each."""

    rows: Tensor
    x: Tensor
    before: Tensor
    eta: Tensor
    loss: Tensor
    rises: Tensor
    top: Tensor
    top_loss: Tensor
    top_gradient: Tensor
    eta_then: Tensor  # at the last checkpoint
    top_loss_then: Tensor

    def only(self, keep: Tensor) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[keep])

    def note(self, loss: Tensor, gradient: Tensor) -> None:
        """Loss and gradient at x."""
        self.rises += loss > self.loss
        self.loss = loss
        higher = loss > self.top_loss
        self.top[higher], self.top_gradient[higher] = self.x[higher], gradient[higher]
        self.top_loss = torch.where(higher, loss, self.top_loss)

    def check(self, gradient: Tensor, since: int) -> Tensor:
        """Halve steps and go back where conditions 1 or 2 say so; the gradient to go on with."""
        seldom = self.rises < RHO * since
        stuck = (self.eta == self.eta_then) & (self.top_loss == self.top_loss_then)
        back = seldom | stuck
        self.eta_then, self.top_loss_then = self.eta.clone(), self.top_loss.clone()
        self.rises = torch.zeros_like(self.rises)
        self.eta = torch.where(back, self.eta / 2, self.eta)
        gradient = gradient.clone()
        self.x[back], gradient[back] = self.top[back], self.top_gradient[back]
        return gradient


@dataclass(frozen=True, kw_only=True)
class APGD(WithinBall, ABC):
    """The same climb for both losses.

    Attributes:
        steps: gradients at each image.
        restarts: runs from new random starts, for images that hold.
    """

    steps: int = 100
    restarts: int = 1

    norms: ClassVar[tuple[Norm, ...]] = ("linf", "l2")
    loss: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("steps", "restarts")

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        generator = self._generator(x)
        for _ in range(self.restarts):
            if len(best.open()):
                self._climb(victim, x, goal, size, best, generator)

    def _climb(
        self,
        victim: Victim,
        x: Tensor,
        goal: Goal,
        size: float,
        best: Best,
        generator: torch.Generator,
    ) -> None:
        state = _started(best.open(), x, size, self.norm, generator)
        marks, last = set(checkpoints(self.steps)) - {0}, 0
        for k in range(self.steps):
            at = goal.at(state.rows)
            gradient, loss, scores = victim.gradient(state.x, at, LOSSES[self.loss])
            best.offer(state.rows, state.x, scores)
            state.note(loss, gradient)
            keep = best.among(state.rows)
            state.only(keep)
            if not len(state.rows):
                return
            gradient = gradient[keep]
            if k in marks:
                gradient, last = state.check(gradient, k - last), k
            self._move(state, x[state.rows], gradient, size, ALPHA if k else 1.0)
        best.offer(state.rows, state.x, victim.scores(state.x))

    def _move(self, state: _Climb, x: Tensor, gradient: Tensor, size: float, alpha: float) -> None:
        eta = state.eta.view(-1, *[1] * (x.dim() - 1))
        ahead = state.x + eta * steepest(gradient, self.norm)
        z = project(ahead - x, x, size, self.norm) + x
        mixed = state.x + alpha * (z - state.x) + (1 - alpha) * (state.x - state.before)
        state.before = state.x
        state.x = moved(x, project(mixed - x, x, size, self.norm))


def _started(
    rows: Tensor, x: Tensor, size: float, norm: Norm, generator: torch.Generator
) -> _Climb:
    x = x[rows]
    start = moved(x, random_point(x, size, norm, generator))
    per_row = torch.zeros(len(rows), dtype=x.dtype, device=x.device)
    low = torch.full_like(per_row, -torch.inf)
    eta = torch.full_like(per_row, 2 * size)
    return _Climb(
        rows=rows,
        x=start,
        before=start.clone(),
        eta=eta,
        loss=torch.full_like(per_row, torch.inf),  # the first loss is no rise
        rises=per_row,
        top=start.clone(),
        top_loss=low,
        top_gradient=torch.zeros_like(start),
        eta_then=torch.full_like(per_row, torch.nan),  # the first checkpoint compares with nothing
        top_loss_then=low.clone(),
    )


@final
@dataclass(frozen=True, kw_only=True)
class APGDCE(APGD):
    """On the cross entropy: the strongest first choice where scores are logits."""

    name: ClassVar[str] = "apgd-ce"
    summary: ClassVar[str] = "PGD with adaptive steps, on the cross entropy"
    loss: ClassVar[str] = "ce"


@final
@dataclass(frozen=True, kw_only=True)
class APGDDLR(APGD):
    """On the ratio of logits, which large or squeezed scores do not flatten."""

    name: ClassVar[str] = "apgd-dlr"
    summary: ClassVar[str] = "PGD with adaptive steps, on a scale-free ratio of logits"
    loss: ClassVar[str] = "dlr"

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        needed = 4 if goal.targeted else 3
        if victim.classifier.classes < needed:
            raise InputError(
                "apgd-dlr compares more classes than there are",
                got=victim.classifier.classes,
                expected=f"at least {needed}",
                fix="use apgd-ce",
            )
        super()._improve(victim, x, goal, size, best)
