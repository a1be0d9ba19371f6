"""The network that is attacked: small, trained here without privacy, the same for every seed.

It travels to the worker as a list of layers and a file of arrays, so that the other environment
needs neither Privet nor a pickle.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.data.dataset import Dataset

BATCH: Final = 128
RATE: Final = 2e-3
STEPS: Final = 600
Layers = list[tuple[str, list[int]]]


@final
@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network, and the images that are attacked."""

    model: nn.Module
    layers: Layers
    x: Tensor
    y: Tensor

    def save(self, folder: Path) -> None:
        """Weights and images, for the worker."""
        weights = {name: value.cpu().numpy() for name, value in self.model.state_dict().items()}
        np.savez(folder / "weights.npz", **weights)
        np.savez(folder / "images.npz", x=self.x.cpu().numpy(), y=self.y.cpu().numpy())

    @property
    def clean(self) -> float:
        """Accuracy without an attack."""
        with torch.no_grad():
            return float((self.model(self.x).argmax(1) == self.y).double().mean())


def layers_for(shape: tuple[int, ...], classes: int) -> Layers:
    """Two convolutions and a linear layer; the first one strides where images are large."""
    channels, height, width = shape
    kernel, stride = (5, 2) if min(height, width) >= 16 else (3, 1)
    sides = [((side - kernel) // stride + 1 - 4) // 2 + 1 for side in (height, width)]
    return [
        ("Conv2d", [channels, 16, kernel, stride]),
        ("ReLU", []),
        ("Conv2d", [16, 32, 4, 2]),
        ("ReLU", []),
        ("Flatten", []),
        ("Linear", [32 * sides[0] * sides[1], classes]),
    ]


def built(layers: Layers) -> nn.Sequential:
    """The network of a list of layers."""
    return nn.Sequential(*(getattr(nn, kind)(*settings) for kind, settings in layers))


def trained(data: Dataset, examples: int, device: torch.device, seed: int = 0) -> Subject:
    """Plain Adam, seeded; evenly spread test images."""
    layers = layers_for(data.shape, len(data.classes))
    x, y = (torch.as_tensor(part, device=device) for part in _scaled(data, data.train))
    order = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = built(layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,), generator=order).to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval().requires_grad_(False)
    chosen = np.linspace(0, len(data.test) - 1, min(examples, len(data.test))).round().astype(int)
    images, labels = (torch.as_tensor(part[chosen]) for part in _scaled(data, data.test))
    return Subject(model, layers, images.to(device), labels.to(device))


def _scaled(data: Dataset, part: Any) -> tuple[Any, Any]:
    return data.bounds.clamp_and_scale(part.x), part.y.astype(np.int64)
