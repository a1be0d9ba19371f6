"""MIM: I-FGSM with momentum (Dong et al., CVPR 2018).

| here | paper |
|---|---|
| memory | g_t |
| decay | mu |

    g_{t+1} = mu * g_t + gradient / |gradient|_1,    x_{t+1} = P(x_t + step * sign(g_{t+1}))

In l2 and l1 the memory is normalised instead of its sign. Deviation: as in `ifgsm`.
"""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from privet.attacks.iterated import Iterated, per_l1
from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class MIM(Iterated):
    """Steps that remember: made for inputs that fool other models, too.

    Attributes:
        decay: of the memory; 0 is I-FGSM.
    """

    decay: float = 1.0

    name: ClassVar[str] = "mim"
    summary: ClassVar[str] = "I-FGSM with momentum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.decay >= 0:
            raise InputError("bad decay of mim", got=self.decay, expected="0 or more")

    def _remembered(self, memory: Tensor, gradient: Tensor) -> Tensor:
        return self.decay * memory + per_l1(gradient)
