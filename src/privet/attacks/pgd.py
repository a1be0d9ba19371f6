"""PGD: projected gradient descent from random starts (Madry et al., ICLR 2018).

    x_0 = x + a uniform point of the ball,    x_{t+1} = P(x_t + step * sign(gradient at x_t))

In l2 and l1 the gradient is normalised instead of its sign, and the start lies on the way to that
uniform point, any part of the way being equally likely; P is exact with the box in all three
(`geometry`). Deviation: images that are fooled leave, and the best input of all steps and restarts
is returned.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from privet.attacks.iterated import Iterated
from privet.attacks.keeping import Best
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim


@final
@dataclass(frozen=True, kw_only=True)
class PGD(Iterated):
    """The usual yardstick, and the inner loop of adversarial training.

    Attributes:
        restarts: runs from new random starts, for images that hold.
    """

    restarts: int = 1

    name: ClassVar[str] = "pgd"
    summary: ClassVar[str] = "projected ascent from random starts"
    random_start: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("restarts")

    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        generator = self._generator(x)
        for _ in range(self.restarts):
            if len(best.open()):
                self._ascend(victim, x, goal, size, best, generator)
