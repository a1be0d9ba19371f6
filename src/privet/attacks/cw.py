"""CW: Carlini and Wagner's attack in l2 (IEEE S&P 2017).

| here | paper |
|---|---|
| w | w: x' = (tanh(w) + 1) / 2 lies in the box by itself |
| c | c, the price of not being fooled, found by binary search |
| confidence | kappa |

    minimise |x' - x|_2^2 + c * max(margin(x') + kappa, 0) over w, by Adam

A c under which the image is fooled is an upper end of its search, any other a lower one; without
an upper end, c grows tenfold. The nearest success of all iterations is kept.

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
from privet.attacks.geometry import Norm
from privet.attacks.keeping import Nearest
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import InputError

INSIDE: Final = 1 - 1e-3  # pixels at 0 and 1 would have an infinite w, and hardly move
BETA1: Final = 0.9
BETA2: Final = 0.999


@final
@dataclass(frozen=True, kw_only=True)
class CW(MinimumNorm):
    """The smallest l2 perturbation, by slow and thorough optimisation.

    Attributes:
        searches: values of c that are tried for each image.
        iterations: of Adam, for each c.
        rate: first learning rate of Adam; it falls to zero.
        first_c: where the search begins.
        confidence: by how much the wrong class must lead, in units of scores.
    """

    norm: Norm = "l2"
    searches: int = 9
    iterations: int = 200
    rate: float = 0.05
    first_c: float = 0.01
    confidence: float = 0.0

    name: ClassVar[str] = "cw"
    summary: ClassVar[str] = "smallest l2 perturbation, by optimisation"
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

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
        low = x.new_zeros(len(rows))
        high, c = torch.full_like(low, torch.inf), torch.full_like(low, self.first_c)
        for _ in range(self.searches):
            if len(rows):
                fooled = self._minimise(victim, x, goal, nearest, rows, c)
                low, high = torch.where(fooled, low, c), torch.where(fooled, c, high)
                c = torch.where(high.isinf(), 10 * c, (low + high) / 2)

    def _minimise(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor, c: Tensor
    ) -> Tensor:
        """Run Adam under one c for each image; which are fooled in the end."""
        fooled = torch.zeros_like(c).bool()
        w = torch.atanh((2 * x[rows] - 1) * INSIDE)
        first, second = torch.zeros_like(w), torch.zeros_like(w)
        for t in range(1, self.iterations + 1):
            slope, tried, scores = self._slope(victim, x[rows], goal.at(rows), w, c)
            reached = nearest.offer(rows, tried, scores)
            if t > 0.9 * self.iterations:
                fooled |= reached
            first = BETA1 * first + (1 - BETA1) * slope
            second = BETA2 * second + (1 - BETA2) * slope**2
            spread = (second / (1 - BETA2**t)).sqrt() + 1e-8
            rate = self.rate * (1 - (t - 1) / self.iterations)
            w = w - rate * first / (1 - BETA1**t) / spread
        return fooled

    def _slope(
        self, victim: Victim, x: Tensor, goal: Goal, w: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of the objective in w; the input that w stands for, and its scores."""

        def hinge(scores: Tensor, goal: Goal) -> Tensor:
            return (goal.margin(scores) + self.confidence).clamp_min(0)

        tanh = w.tanh()
        tried = (tanh + 1) / 2
        gradient, _, scores = victim.gradient(tried, goal, hinge)
        price = c.view(-1, *[1] * (x.dim() - 1))
        slope = (2 * (tried - x) + price * gradient) * (1 - tanh**2) / 2
        return slope, tried, scores
