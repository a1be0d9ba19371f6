"""Private examples on a device, scaled by public bounds as they are used."""

from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.data.dataset import Bounds, Dataset, Split

UNIT: Final = Bounds(low=(0.0,), high=(1.0,))


class Examples:
    """The records of one split as tensors; integers stay small until a batch is asked for."""

    def __init__(self, x: Tensor, y: Tensor, bounds: Bounds, device: torch.device) -> None:
        self._x = x.to(device)
        self._y = y.to(device)
        shape = (1, -1) if len(bounds.low) > 1 else (1,)
        self._low = torch.tensor(bounds.low, dtype=torch.float32, device=device).reshape(shape)
        high = torch.tensor(bounds.high, dtype=torch.float32, device=device).reshape(shape)
        self._width = high - self._low

    @classmethod
    def of(cls, split: Split, bounds: Bounds, device: torch.device) -> Self:
        """From arrays."""
        if split.x.dtype == np.uint8:
            x: NDArray[Any] = np.ascontiguousarray(split.x)
        else:  # scaled before it is rounded to single precision, as a release scales its inputs
            x, bounds = bounds.clamp_and_scale(split.x), UNIT
        return cls(torch.from_numpy(x), torch.from_numpy(split.y), bounds, device)

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen examples, clamped and scaled to [0, 1], with their labels."""
        chosen = indices.to(self._y.device)
        scaled = (self._x[chosen].float() - self._low) / self._width
        return scaled.clamp(0.0, 1.0), self._y[chosen]


def made_up_batch(data: Dataset, device: torch.device, n: int = 4) -> tuple[Tensor, Tensor]:
    """Inputs and labels that have the data's public shape and nothing else of it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, *data.shape, generator=generator)
    y = torch.randint(0, len(data.classes), (n,), generator=generator)
    return x.to(device), y.to(device)
