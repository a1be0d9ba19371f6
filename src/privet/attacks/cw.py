"""CW: Carlini and Wagner's attacks in l2 and linf (IEEE S&P 2017).

| here | paper |
|---|---|
| w | w: x' = (tanh(w) + 1) / 2 lies in the box by itself |
| c | c, the price of not being fooled, found by binary search |
| confidence | kappa |

    l2: minimise |x' - x|_2^2 + c * max(margin(x') + kappa, 0) over w, by Adam

A c under which the image is fooled is an upper end of its search, any other a lower one; without
an upper end, c grows tenfold. The nearest success of all iterations is kept.

Of the linf norm only the largest pixel has a gradient; there, a bound on all pixels shrinks: see
`cw_linf`, which shares the settings and what is said below of w, the rate and the end.

Deviations: fewer iterations by default, in larger steps (the paper's 10,000 x 20 take hours;
`iterations`, `searches` and `rate` are yours); w begins a thousandth inside the box, since black
and white pixels would not move within so few iterations; the learning rate falls linearly, so that
steps become smaller than small perturbations; a c is an upper end if the image was fooled in the
last tenth of its iterations, since the first steps of Adam overshoot; no search ends early; in the
end the way to the success is bisected (`halvings`).
"""

from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import MinimumNorm
from privet.attacks.cw_linf import INSIDE, Shrinking, aimed
from privet.attacks.geometry import Norm
from privet.attacks.keeping import Nearest
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import InputError

BETA1: Final = 0.9
BETA2: Final = 0.999


@final
@dataclass(frozen=True, kw_only=True)
class CW(MinimumNorm):
    """The smallest perturbation, by slow and thorough optimisation.

    Attributes:
        searches: values of c that are tried for each image, one run of Adam each.
        iterations: of Adam, for each c.
        rate: first learning rate of Adam; it falls to zero in each run.
        first_c: where the search begins; in linf, the units of scores are divided out.
        confidence: by how much the wrong class must lead, in units of scores.
    """

    norm: Norm = "l2"
    searches: int = 9
    iterations: int = 200
    rate: float = 0.05
    first_c: float = 0.01
    confidence: float = 0.0

    name: ClassVar[str] = "cw"
    summary: ClassVar[str] = "smallest perturbation, by optimisation"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("searches", "iterations")
        if not (self.rate > 0 and self.first_c > 0 and self.confidence >= 0):
            raise InputError(
                "bad settings of cw",
                got=f"rate {self.rate}, first_c {self.first_c}, confidence {self.confidence}",
                expected="rate and first_c above 0, confidence 0 or more",
            )

    def _approach(self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest) -> None:
        rows = (nearest.distance > 0).nonzero()[:, 0]
        if len(rows):
            search = self._search_c if self.norm == "l2" else self._shrink_tau
            search(victim, x[rows], goal.at(rows), nearest, rows)

    def _search_c(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor
    ) -> None:
        """For l2: a binary search."""
        low = x.new_zeros(len(rows))
        high, c = torch.full_like(low, torch.inf), torch.full_like(low, self.first_c)
        for _ in range(self.searches):
            fooled = self._minimise(victim, x, goal, nearest, rows, c)
            low, high = torch.where(fooled, low, c), torch.where(fooled, c, high)
            c = torch.where(high.isinf(), 10 * c, (low + high) / 2)

    def _minimise(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor, c: Tensor
    ) -> Tensor:
        """Run Adam under one c for each image; which are fooled in the end."""
        fooled = torch.zeros_like(c).bool()
        w = torch.atanh((2 * x - 1) * INSIDE)
        adam = _Adam(w, self.rate, self.iterations)
        for t in range(1, self.iterations + 1):
            slope, tried, scores = self._slope(victim, x, goal, w, c)
            reached = nearest.offer(rows, tried, scores)
            if t > 0.9 * self.iterations:
                fooled |= reached
            w = adam.step(w, slope)
        return fooled

    def _slope(
        self, victim: Victim, x: Tensor, goal: Goal, w: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of the objective in w; the input that w stands for, and its scores."""
        tanh = w.tanh()
        tried = (tanh + 1) / 2
        gradient, _, scores = victim.gradient(tried, goal, self._hinge)
        price = c.view(-1, *[1] * (x.dim() - 1))
        slope = (2 * (tried - x) + price * gradient) * (1 - tanh**2) / 2
        return slope, tried, scores

    def _hinge(self, scores: Tensor, goal: Goal) -> Tensor:
        return (goal.margin(scores) + self.confidence).clamp_min(0)

    def _shrink_tau(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor
    ) -> None:
        """For linf: each run begins at the nearest success, or where the last one ended."""
        aim, state, tried = aimed(victim, x, goal), Shrinking(x, self.first_c), x
        for _ in range(self.searches):
            found = nearest.distance[rows].isfinite().view(-1, *[1] * (x.dim() - 1))
            w = state.stands_for(torch.where(found, nearest.x[rows], tried))
            adam = _Adam(w, self.rate, self.iterations)
            for _ in range(self.iterations):
                tried = state.input(w)
                gradient, _, scores = victim.gradient(tried, aim, self._hinge)
                fooled = nearest.offer(rows, tried, scores)
                w = adam.step(w, state.slope(w, tried, gradient))
                w = state.shrink(w, tried, fooled)
            state.again(nearest.distance[rows])


class _Adam:
    """Steps whose rate falls linearly to zero."""

    def __init__(self, w: Tensor, rate: float, iterations: int) -> None:
        self._rate, self._iterations, self._t = rate, iterations, 0
        self._first, self._second = torch.zeros_like(w), torch.zeros_like(w)

    def step(self, w: Tensor, slope: Tensor) -> Tensor:
        """Where the next step leads."""
        rate = self._rate * (1 - self._t / self._iterations)
        self._t += 1
        self._first = BETA1 * self._first + (1 - BETA1) * slope
        self._second = BETA2 * self._second + (1 - BETA2) * slope**2
        spread = (self._second / (1 - BETA2**self._t)).sqrt() + 1e-8
        return w - rate * self._first / (1 - BETA1**self._t) / spread
