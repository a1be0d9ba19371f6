"""I-FGSM, also known as BIM: FGSM in small steps (Kurakin, Goodfellow and Bengio, 2017).

    x_0 = x,    x_{t+1} = P(x_t + step * sign(gradient at x_t))

P projects onto the ball and the box. In l2 and l1 the gradient is normalised instead of its sign.
Deviation: images that are fooled leave, and the best input is returned, not the last.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from privet.attacks.iterated import Iterated


@final
@dataclass(frozen=True, kw_only=True)
class IFGSM(Iterated):
    """PGD without a random start: the same every time."""

    name: ClassVar[str] = "ifgsm"
    summary: ClassVar[str] = "FGSM in small steps (BIM)"
