"""What a client sends: how far its weights moved away from a version of the model."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The weights after local work less those before it, as one flat vector.

    Attributes:
        client: whose it is.
        base_version: of the model that the client started from.
        change: Delta, a vector of as many numbers as the model has weights.
        finite: whether all its numbers are, where that was found out for many updates at once.
    """

    client: str
    base_version: int
    change: Tensor
    finite: bool | None = None

    def require_for(self, size: int, *, finite: bool = True) -> None:
        """Refuse what cannot be added to a model of `size` weights.

        Where clipping makes a zero of what is not finite, `finite` need not be asked for.
        """
        if self.change.shape != (size,):
            raise InputError(
                f"an update of '{self.client}' does not fit the model",
                got=f"shape {tuple(self.change.shape)}",
                expected=f"one vector of {size} numbers",
            )
        if finite and not (_finite(self.change) if self.finite is None else self.finite):
            raise InputError(
                f"an update of '{self.client}' is not a number somewhere",
                got="NaN or infinity",
                expected="finite numbers",
                fix="lower the client's learning rate",
            )


def _finite(change: Tensor) -> bool:
    """A sum is finite only if all parts are, and is much quicker; it may be infinite by itself."""
    return math.isfinite(float(change.sum())) or bool(torch.isfinite(change).all())
