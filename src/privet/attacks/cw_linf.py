"""CW in linf: a bound on every pixel that shrinks from one success to the next (section VI-C).

| here | paper |
|---|---|
| d | delta = x' - x |
| tau | tau: up to here a pixel moves freely; begins at 1 |
| c | c, the price of not being fooled; doubled when tau was not reached |
| gap | 1 - 0.9: how far tau lies below the last success |
| reach | how far w can go at all |

    minimise c * max(margin(x') + kappa, 0) + sum_i max(|d_i| - tau, 0) over w, by Adam

Every success with all |d_i| <= tau sets tau to (1 - gap) * |d|_inf, at once, and the descent goes
on from there. So a run of Adam ends with a tau that it did not reach; the next one begins at the
nearest success so far, with twice the c. When all runs are over, the nearest success counts.

Deviations:

- A run that ends halves `gap`, too: with the paper's tenth, the answer may be 11 % too large.
- The paper doubles c up to a largest one, however long that takes; here the runs are counted, so
  that an image costs the same in both norms. One that is not fooled yet goes on where it is.
- w spans the box within `reach` of the image, not all of it: 1 at first (then that is all of it),
  and REACH times each success. Steps of Adam are alike in w; across the whole box a grey pixel
  would jump over a small tau while a black one crawls.
- The gradient of the margin is divided by its largest entry, so that c is compared with the slope 1
  of the penalty, and the units of scores do not matter.
- Without a target, the margin is that of one class, as in the paper, which tries them all: the one
  whose boundary would be nearest if scores were linear. Success at any class counts.
"""

from functools import partial
from typing import Final

import torch
from torch import Tensor

from privet.attacks.geometry import moved, norms
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim

INSIDE: Final = 1 - 1e-3  # pixels at the ends would have an infinite w, and hardly move
GAP: Final = 0.1
REACH: Final = 1.1
CANDIDATES: Final = 10  # classes whose boundaries are compared: a gradient for each


class Shrinking:
    """tau and c of each image, and the input that w stands for."""

    def __init__(self, x: Tensor, first_c: float) -> None:
        self._x, self._c = x, x.new_full((len(x),), first_c)
        self._tau, self._gap = torch.ones_like(self._c), torch.full_like(self._c, GAP)
        self._low, self._span = _within(x, self._tau)

    def input(self, w: Tensor) -> Tensor:
        """Inside of the box, and within reach."""
        return moved(self._low, self._span * (w.tanh() + 1) / 2)

    def stands_for(self, inputs: Tensor) -> Tensor:
        """The w of inputs within reach."""
        share = (inputs - self._low) / self._span
        return torch.atanh((2 * share - 1).clamp(-1, 1) * INSIDE)

    def slope(self, w: Tensor, tried: Tensor, gradient: Tensor) -> Tensor:
        """Of the objective in w, up to a factor for each pixel that Adam divides out again."""
        d = tried - self._x
        steepest = norms(gradient, "linf").clamp_min(torch.finfo(d.dtype).tiny)
        price = _wide(self._c, d) * (gradient / _wide(steepest, d))
        penalty = d.sign() * (d.abs() > _wide(self._tau, d))
        return (price + penalty) * (1 - w.tanh() ** 2)

    def shrink(self, w: Tensor, tried: Tensor, fooled: Tensor) -> Tensor:
        """Lower tau where it was reached, and bring w back to what reached it."""
        distance = norms(tried - self._x, "linf")
        reached = fooled & (distance <= self._tau)
        self._set(reached, distance)
        return torch.where(_wide(reached, w), self.stands_for(tried), w)

    def again(self, distance: Tensor) -> None:
        """After a run: `distance` is that of the nearest success so far, infinite for none."""
        found = distance.isfinite()
        self._c = 2 * self._c
        self._gap = torch.where(found, self._gap / 2, self._gap)
        self._set(found, distance)

    def _set(self, which: Tensor, distance: Tensor) -> None:
        """Begin anew from successes at these distances."""
        rows = which.nonzero()[:, 0]
        self._tau[rows] = (1 - self._gap[rows]) * distance[rows]
        self._low[rows], self._span[rows] = _within(self._x[rows], distance[rows])


def aimed(victim: Victim, x: Tensor, goal: Goal) -> Goal:
    """At the target, or else at the class whose linearised boundary is nearest."""
    if goal.targeted:
        return goal

    def towards(scores: Tensor, _: Goal, *, aim: Goal) -> Tensor:
        return aim.margin(scores)

    scores = victim.scores(x)
    others = scores.scatter(1, goal.labels[:, None], -torch.inf)
    rivals = others.topk(min(CANDIDATES, scores.shape[1] - 1), dim=1).indices
    aims = [Goal(labels=column, targeted=True) for column in rivals.T]
    slopes, gaps, _ = victim.gradients(x, goal, [partial(towards, aim=aim) for aim in aims])
    steep = norms(slopes.flatten(0, 1), "l1").view_as(gaps)
    index = (gaps / steep.clamp_min(1e-12)).argmin(1, keepdim=True)
    return Goal(labels=rivals.gather(1, index)[:, 0], targeted=True)


def _within(x: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """The lower end of the box within reach of x, and how far the upper end is from it."""
    reach = _wide(REACH * distance, x)
    low, high = (x - reach).clamp_min(0), (x + reach).clamp_max(1)
    return low, (high - low).clamp_min(torch.finfo(x.dtype).tiny)


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))
