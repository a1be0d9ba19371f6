"""How the gradient of a task and that of the memory become one step.

| A-GEM (Chaudhry et al., 2019) | here    | meaning                                    |
|-------------------------------|---------|--------------------------------------------|
| g                             | `g`     | gradient on the task that is being learned |
| g_ref                         | `g_ref` | gradient on a batch of the memory          |
| g~                            | result  | nearest to g that does not raise the memory's loss |

    g~ = g - (g'g_ref / g_ref'g_ref) g_ref    where g'g_ref < 0, else g

For the solution of min |g~ - g|^2 subject to g~'g_ref >= 0. It is a function of both gradients
alone: where they are private, so is the step, at no further cost.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

Combine = Callable[[Tensor, Tensor], Tensor]

NOTHING: Final = 1e-12  # a squared length below which a memory gives no direction


def projected(g: Tensor, g_ref: Tensor, *, always: bool = False) -> Tensor:
    """The step that A-GEM takes; `g` and `g_ref` are flat.

    Args:
        g: of the task.
        g_ref: of the memory; where its squared length is below 1e-12, g is taken as it is.
        always: project even where both agree, as L2DP-ML prints it: the step then does nothing
            for the memory at all, to first order.
    """
    length, agreement = g_ref @ g_ref, g @ g_ref
    free = length < NOTHING
    if not always:
        free = free | (agreement >= 0)
    share = torch.where(free, torch.zeros_like(length), agreement / length.clamp_min(NOTHING))
    return g - share * g_ref


def replayed(g: Tensor, g_ref: Tensor, *, share: float = 0.5) -> Tensor:
    """Experience replay: a step on both, of which the memory has this share."""
    return (1.0 - share) * g + share * g_ref
