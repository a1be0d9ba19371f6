"""The average of the last weights, which generalises better than the last ones.

Post-processing: the average is a function of the private updates alone.
"""

from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.privacy.clipping import trainable


class WeightAverage:
    """Exponential moving average of the trained weights (De et al., 2022).

    The decay rises with the steps done, (1 + t) / (10 + t), up to `decay`: the first weights, which
    nothing was learned for yet, are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise InputError("bad decay of the weight average", got=decay, expected="0 < decay < 1")
        self.decay = decay
        self._weights = {name: p.detach().clone() for name, p in trainable(model).items()}

    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step` (from 0)."""
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        new = [p.detach() for p in trainable(model).values()]
        torch._foreach_lerp_(list(self._weights.values()), new, 1.0 - decay)

    def copy_to(self, model: nn.Module) -> None:
        """Give the average to a model of the same shape."""
        with torch.no_grad():
            for name, parameter in trainable(model).items():
                parameter.copy_(self._weights[name])

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return self._weights

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, weights in self._weights.items():
            weights.copy_(state[name])
