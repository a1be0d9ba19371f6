"""What an attack has found so far: nothing better is ever given up for something worse."""

from typing import Final

import torch
from torch import Tensor

from privet.attacks.geometry import Norm, norms
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim

# Of the largest score: in a batch of another size the same input has scores that differ by
# rounding, and a judge must not find it on the other side.
CLEAR: Final = 2.0**-18


def clearance(scores: Tensor, usual: Tensor) -> Tensor:
    """The lead from which on no rounding turns the likeliest class into another.

    `usual` is how large scores are elsewhere: where they vanish, rounding does not.
    """
    return CLEAR * scores.abs().amax(1).clamp_min(usual)


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
        """Take what is better; the margins of all that is offered."""
        goal = self._goal.at(rows)
        reached, margin = goal.reached(scores), goal.margin(scores)
        as_good = reached == self._reached[rows]
        better = (reached & ~self._reached[rows]) | (as_good & (margin < self._margin[rows]))
        which = rows[better]
        self.x[which], self._margin[which] = x[better], margin[better]
        self._reached[which] = reached[better]
        return margin


class Nearest:
    """The smallest perturbation that reaches the goal; none for images that are there already.

    One that reaches it clearly (`clearance`) beats one that may be rounding; among equals the
    shorter one wins.
    """

    def __init__(self, victim: Victim, x: Tensor, goal: Goal, norm: Norm) -> None:
        self.x, self._clean, self._goal, self._norm = x.clone(), x, goal, norm
        scores = victim.scores(x)
        there = goal.reached(scores)
        self._usual = scores.abs().amax().nan_to_num(0.0) if len(x) else scores.new_zeros(())
        self.distance = torch.where(there, 0.0, torch.inf).to(x.dtype)
        self._clear = there

    def clearance(self, scores: Tensor) -> Tensor:
        """See `keeping.clearance`; what is usual are the scores of the clean images."""
        return clearance(scores, self._usual)

    def offer(self, rows: Tensor, x: Tensor, scores: Tensor) -> Tensor:
        """Take what is better, and say which reached the goal clearly."""
        goal = self._goal.at(rows)
        reached = goal.reached(scores)
        clear = reached & ~(goal.margin(scores) > -self.clearance(scores))  # NaN is beyond doubt
        distance = norms(x - self._clean[rows], self._norm)
        as_good = reached & (clear == self._clear[rows]) & (distance < self.distance[rows])
        better = (clear & ~self._clear[rows]) | as_good
        which = rows[better]
        self.x[which], self.distance[which] = x[better], distance[better]
        self._clear[which] = clear[better]
        return clear

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
            reached = self.offer(rows, tried, victim.scores(tried))
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
