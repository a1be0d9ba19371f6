"""DeepFool: step to the nearest boundary of the linearised classifier (Moosavi-Dezfooli et al.,
CVPR 2016).

| here | paper |
|---|---|
| gap | f'_k = f_k - f_label, for the class k that would take over |
| slope | w'_k, the gradient of gap |
| overshoot | eta |

The nearest class has the least |gap| / |slope|_q; q is 2 for l2 and 1 for linf. The step is

    l2: |gap| / |slope|_2^2 * slope        linf: |gap| / |slope|_1 * sign(slope)

repeated until the class changes; steps are 1 + overshoot as long.

Deviations. A step is the shortest one inside the box (`reaching`): one that is clipped falls short,
and the boundary would be approached for ever. For the same reason it aims behind the boundary by
more than rounding (`clearance`), and the overshoot is applied in each step, not to their sum. Then,
`returns` times, an image goes back to BACK of its way and steps again, over the boundary to the
likeliest class, as in FAB (Croce and Hein, 2020): one gradient each, and a shorter way. In the end
the way is bisected (`halvings`). With targets, the only boundary is the one between the target and
the likeliest other class.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.attack import MinimumNorm
from privet.attacks.geometry import Norm, moved, norms, reaching
from privet.attacks.keeping import Nearest
from privet.attacks.losses import Goal, negative_margin
from privet.attacks.victim import Victim
from privet.errors import InputError

BACK: Final = 0.7


@final
@dataclass(frozen=True, kw_only=True)
class DeepFool(MinimumNorm):
    """A small perturbation, in few steps: one gradient for each class that is considered.

    Attributes:
        iterations: steps at most.
        candidates: classes considered, those with the highest scores at the image.
        overshoot: how much longer than needed on a linear classifier each step is.
        returns: gradients for a shorter way after the first arrival; 0 is the paper's. Not at a
            random classifier, where the shortest success would be the luckiest.
    """

    norm: Norm = "l2"
    iterations: int = 50
    candidates: int = 10
    overshoot: float = 0.02
    returns: int = 10

    name: ClassVar[str] = "deepfool"
    summary: ClassVar[str] = "small perturbation, by steps to the nearest boundary"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("iterations", "candidates")
        if not (self.overshoot >= 0 and self.returns >= 0):
            raise InputError(
                "bad settings of deepfool",
                got=f"overshoot {self.overshoot}, returns {self.returns}",
                expected="0 or more",
            )

    def _approach(self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest) -> None:
        rows = (nearest.distance > 0).nonzero()[:, 0]
        if len(rows):
            self._arrive(victim, x, goal, nearest, rows)
            if not victim.random:
                self._return(victim, x, goal, nearest, rows[nearest.distance[rows].isfinite()])

    def _arrive(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor
    ) -> None:
        """Steps over the nearest boundary, until an image is clearly beyond."""
        here, scores = x[rows], victim.scores(x[rows])
        rivals = self._rivals(scores, goal.at(rows))
        for _ in range(self.iterations):
            gaps, slopes = _linearised(victim, here, goal.at(rows), rivals)
            clear = nearest.clearance(scores)
            here = self._step(here, *self._nearest(gaps, slopes), clear)
            # Scores first: a gradient for each rival would be wasted on those that have arrived.
            scores = victim.scores(here)
            open_ = ~nearest.offer(rows, here, scores)
            rows, rivals, here, scores = rows[open_], rivals[open_], here[open_], scores[open_]
            if not len(rows):
                return

    def _return(
        self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest, rows: Tensor
    ) -> None:
        """Back on the shortest way so far and over the boundary again: with every arrival."""
        at, start, arrived = goal.at(rows), x[rows], torch.ones_like(rows).bool()
        here = nearest.x[rows]
        for _ in range(self.returns if len(rows) else 0):
            back = start + BACK * (nearest.x[rows] - start)
            here = torch.where(_wide(arrived, here), back, here)
            slope, gap, scores = victim.gradient(here, at, negative_margin)
            here = self._step(here, gap, slope, nearest.clearance(scores))
            arrived = nearest.offer(rows, here, victim.scores(here))

    def _rivals(self, scores: Tensor, goal: Goal) -> Tensor:
        """The classes that may take over, (n, candidates)."""
        if goal.targeted:
            return goal.labels[:, None]
        others = scores.scatter(1, goal.labels[:, None], -torch.inf)
        return others.topk(min(self.candidates, scores.shape[1] - 1), dim=1).indices

    def _nearest(self, gaps: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Gap and slope of the nearest boundary, of (n, candidates) and (n, candidates, *shape)."""
        n, k = gaps.shape
        dual: Norm = "l2" if self.norm == "l2" else "l1"
        steep = norms(slopes.flatten(0, 1), dual).view(n, k).clamp_min(1e-12)
        index = (gaps.abs() / steep).argmin(1)
        each = torch.arange(n, device=gaps.device)
        return gaps[each, index], slopes[each, index]

    def _step(self, here: Tensor, gap: Tensor, slope: Tensor, clear: Tensor) -> Tensor:
        """Over the boundary of a linear classifier, and a little further: `clear` of rounding."""
        missing = (-gap).clamp_min(0) + 2 * clear
        gain = (1 + self.overshoot) * missing
        return moved(here, reaching(slope, here, gain, self.norm))


def _wide(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))


def _linearised(victim: Victim, x: Tensor, goal: Goal, rivals: Tensor) -> tuple[Tensor, Tensor]:
    """Gap and slope for each rival."""

    def lead(scores: Tensor, goal: Goal, column: Tensor) -> Tensor:
        ours = scores.gather(1, goal.labels[:, None])[:, 0]
        if goal.targeted:
            return ours - goal.rival(scores)
        return scores.gather(1, column[:, None])[:, 0] - ours

    leads = [partial(lead, column=column) for column in rivals.T]
    slopes, gaps, _ = victim.gradients(x, goal, leads)
    return gaps, slopes
