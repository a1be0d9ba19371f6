"""The networks of AdLM's comparisons (Phan, Wu, Hu and Dou, 2017).

| images             | network                                                              |
|--------------------|----------------------------------------------------------------------|
| 28x28, one channel | conv 32 (5x5), pool, conv 64 (5x5), pool, 25 units                   |
| 32x32, colour      | the central 20x20; conv 128 (3x3, stride 2), conv 128 (5x5) beside   |
|                    | its input, conv 256 (5x5), pool, 30 units                            |
| other images       | conv 16 (3x3), pool, 25 units: for small images and tests            |
| tables             | 16 units, 25 units                                                   |

The first layer is affine in the input, the last hidden layer lies within [-1, 1], the output has no
bias: what the paper's noise and its loss rest on. Inputs stay in [0, 1], as in its text.

Deviations: normalisation is that of the authors' program (batch statistics, then a clip). The text
has the least and the largest activation of a batch instead, by which no single record could be
classified, and local responses. The program crops images at random while it trains.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

from privet.models.published import BesideInput
from privet.models.registry import Shape, image_shape, model

MNIST: Final = (1, 28, 28)
CIFAR: Final = (3, 32, 32)


class CentralCrop(nn.Module):
    """The central square of an image."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """Rows and columns cut off on all sides."""
        top, left = ((length - self.side) // 2 for length in x.shape[-2:])
        return x[..., top : top + self.side, left : left + self.side]


@model("adlm")
def adlm(shape: Shape, n_classes: int) -> nn.Module:
    """AdLM's network for examples of this shape, with BatchNorm: not for private training."""
    colour = shape == CIFAR
    units, last = (30, [nn.Hardtanh()]) if colour else (25, [nn.ReLU(), nn.Hardtanh()])
    body = _for_cifar() if colour else _for_mnist() if shape == MNIST else _small(shape)
    layers = nn.Sequential(*body, nn.Flatten())
    with torch.no_grad():
        features = layers.eval()(torch.zeros(1, *shape)).shape[1]
    layers.train()
    return nn.Sequential(
        *layers,
        nn.Linear(features, units),
        nn.BatchNorm1d(units, eps=1e-3),
        *last,
        nn.Linear(units, n_classes, bias=False),
    )


def _for_mnist() -> list[nn.Module]:
    return [
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def _for_cifar() -> list[nn.Module]:
    return [
        CentralCrop(20),
        nn.Conv2d(3, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.BatchNorm2d(128, eps=1e-3),
        BesideInput(nn.Sequential(nn.Conv2d(128, 128, 5, padding=2), nn.ReLU())),
        nn.BatchNorm2d(256, eps=1e-3),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        nn.BatchNorm2d(256, eps=1e-3),
        nn.AvgPool2d(2),
    ]


def _small(shape: Shape) -> list[nn.Module]:
    if len(shape) != 3:
        return [nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.ReLU()]
    channels, _, _ = image_shape(shape)
    return [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
