"""FGSM: one step along the gradient (Goodfellow, Shlens and Szegedy, ICLR 2015).

    x' = argmax of <gradient of the loss at x, x'> over the ball and the box

In linf that is the paper's x + size * sign(gradient), clipped. For l2 and l1 (which the paper does
not have) it is the exact maximum with the box in mind, not a normalised step that is clipped.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from privet.attacks.attack import Attack, at_most_the_box
from privet.attacks.geometry import furthest, moved
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal, find_loss
from privet.attacks.victim import Victim


@final
@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """Cheap and weak: for adversarial training, and to tell whether others are any good.

    Attributes:
        loss: ce, margin or dlr.
    """

    loss: str = "ce"

    name: ClassVar[str] = "fgsm"
    summary: ClassVar[str] = "one step along the gradient"

    def _within(self, victim: Victim, x: Tensor, goal: Goal, size: float) -> Tensor:
        # One pass gives the gradient and says who is right: every other pass counts here.
        gradient, _, scores = victim.gradient(x, goal, find_loss(self.loss))
        best = Best(victim, x, goal, scores)
        rows, size = best.open(), at_most_the_box(size, x, self.norm)
        if len(rows):
            tried = moved(x[rows], furthest(gradient[rows], x[rows], size, self.norm))
            best.offer(rows, tried, victim.scores(tried))
        return best.x
