"""What an attack has found so far: nothing better is ever given up for something worse."""

from typing import Final

import torch
from torch import Tensor

from privet.attacks.geometry import Norm, norms
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim

# Of the largest score, by which a shortened way still leads: in a batch of another size the same
# input has scores that differ by rounding, and a judge must not find it on the other side.
CLEAR: Final = 2.0**-18


class Best:
    """The input nearest to the goal, for each image: begins with the image itself.

    One that reaches the goal beats one that does not; among equals the lower margin wins.
    """

    def __init__(self, victim: Victim, x: Tensor, goal: Goal, scores: Tensor | None = None) -> None:
        """`scores` of x, where the caller has them already."""
        self.x, self._goal, self._goes_on = x.clone(), goal, victim.random
        scores = victim.scores(x) if scores is None else scores
        self._reached, self._margin = goal.reached(scores), goal.margin(scores)

    def open(self) -> Tensor:
        """Rows worth more work: not at the goal yet, or perhaps there by luck."""
        return self.among(torch.arange(len(self.x), device=self.x.device)).nonzero()[:, 0]

    def among(self, rows: Tensor) -> Tensor:
        """Which of these rows are worth more work; success at a random classifier may be luck."""
        return torch.ones_like(self._reached[rows]) if self._goes_on else ~self._reached[rows]

    def offer(self, rows: Tensor, x: Tensor, scores: Tensor) -> Tensor:
        """Take what is better, and say where it was."""
        goal = self._goal.at(rows)
        reached, margin = goal.reached(scores), goal.margin(scores)
        as_good = reached == self._reached[rows]
        better = (reached & ~self._reached[rows]) | (as_good & (margin < self._margin[rows]))
        which = rows[better]
        self.x[which], self._margin[which] = x[better], margin[better]
        self._reached[which] = reached[better]
        return better


class Nearest:
    """The smallest perturbation that reaches the goal; none for images that are there already."""

    def __init__(self, victim: Victim, x: Tensor, goal: Goal, norm: Norm) -> None:
        self.x, self._clean, self._goal, self._norm = x.clone(), x, goal, norm
        there = goal.reached(victim.scores(x))
        self.distance = torch.where(there, 0.0, torch.inf).to(x.dtype)

    def offer(self, rows: Tensor, x: Tensor, scores: Tensor, *, clear: float = 0.0) -> Tensor:
        """Take what reaches the goal from nearer, and say which reached it at all.

        `clear` is by how much of the largest score, at least.
        """
        goal = self._goal.at(rows)
        reached = goal.reached(scores) & (goal.margin(scores) <= -clear * scores.abs().amax(1))
        distance = norms(x - self._clean[rows], self._norm)
        nearer = reached & (distance < self.distance[rows])
        self.x[rows[nearer]], self.distance[rows[nearer]] = x[nearer], distance[nearer]
        return reached

    def shorten(self, victim: Victim, halvings: int) -> None:
        """Bisect the way to what was found, as far as the goal stays clearly reached."""
        rows = ((self.distance > 0) & self.distance.isfinite()).nonzero()[:, 0]
        if not len(rows):
            return
        start, way = self._clean[rows], self.x[rows] - self._clean[rows]
        shape = (-1, *[1] * (way.dim() - 1))
        low, high = (way.new_full((len(rows),), end) for end in (0.0, 1.0))
        for _ in range(halvings):
            middle = (low + high) / 2
            tried = start + middle.view(shape) * way
            reached = self.offer(rows, tried, victim.scores(tried), clear=CLEAR)
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
