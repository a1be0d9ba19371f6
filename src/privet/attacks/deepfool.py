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

Deviations: inputs are clipped to the box; the overshoot is applied in each step, not to their sum,
and in the end the way is bisected (`halvings`), which takes it back; with targets, the only
boundary is the one between the target and the likeliest other class.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from privet.attacks.attack import MinimumNorm
from privet.attacks.geometry import Norm, norms
from privet.attacks.keeping import Nearest
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class DeepFool(MinimumNorm):
    """A small perturbation, in few steps: one gradient for each class that is considered.

    Attributes:
        iterations: steps at most.
        candidates: classes considered, those with the highest scores at the image.
        overshoot: how much longer than needed on a linear classifier each step is.
    """

    norm: Norm = "l2"
    iterations: int = 50
    candidates: int = 10
    overshoot: float = 0.02

    name: ClassVar[str] = "deepfool"
    summary: ClassVar[str] = "small perturbation, by steps to the nearest boundary"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("iterations", "candidates")
        if not self.overshoot >= 0:
            raise InputError("bad overshoot", got=self.overshoot, expected="0 or more")

    def _approach(self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest) -> None:
        rows = (nearest.distance > 0).nonzero()[:, 0]
        if not len(rows):
            return
        rivals = self._rivals(victim.scores(x[rows]), goal.at(rows))
        here = x[rows]
        for _ in range(self.iterations):
            gaps, slopes = _linearised(victim, here, goal.at(rows), rivals)
            here = (here + (1 + self.overshoot) * self._step(gaps, slopes)).clamp(0, 1)
            # Scores first: a gradient for each rival would be wasted on those that have arrived.
            open_ = ~nearest.offer(rows, here, victim.scores(here))
            rows, rivals, here = rows[open_], rivals[open_], here[open_]
            if not len(rows):
                return

    def _rivals(self, scores: Tensor, goal: Goal) -> Tensor:
        """The classes that may take over, (n, candidates)."""
        if goal.targeted:
            return goal.labels[:, None]
        others = scores.scatter(1, goal.labels[:, None], -torch.inf)
        return others.topk(min(self.candidates, scores.shape[1] - 1), dim=1).indices

    def _step(self, gaps: Tensor, slopes: Tensor) -> Tensor:
        """To the nearest boundary: gaps (n, candidates), slopes (n, candidates, *shape)."""
        n, k = gaps.shape
        dual: Norm = "l2" if self.norm == "l2" else "l1"
        steep = norms(slopes.flatten(0, 1), dual).view(n, k).clamp_min(1e-12)
        # A step that falls a hair short would stand still at the boundary for ever.
        missing = (-gaps).clamp_min(0) + 1e-6
        index = (missing / steep).argmin(1)
        each = torch.arange(n, device=gaps.device)
        slope, steep, missing = slopes[each, index], steep[each, index], missing[each, index]
        direction = slope.sign() if self.norm == "linf" else slope / _wide(steep, slope)
        return _wide(missing / steep, slope) * direction


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
