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
        total: the sum of its numbers, where many updates were added up at once on a device that is
            still at it; whether they are finite is looked at later, for all at once.
    """

    client: str
    base_version: int
    change: Tensor
    total: Tensor | None = None

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
        if finite and self.total is None and not _finite(self.change):
            raise not_finite(self.client)


def not_finite(client: str) -> InputError:
    """What a client's update is refused for."""
    return InputError(
        f"an update of '{client}' is not a number somewhere",
        got="NaN or infinity",
        expected="finite numbers",
        fix="lower the client's learning rate",
    )


def _finite(change: Tensor) -> bool:
    """A sum is finite only if all parts are, and is much quicker; it may be infinite by itself."""
    return math.isfinite(float(change.sum())) or bool(torch.isfinite(change).all())
