"""The networks of L2DP-ML, with noise that was drawn once and stays.

| inputs             | network                                                               |
|--------------------|-----------------------------------------------------------------------|
| 28x28, one channel | conv 32, 64, 96 (5x5), 512 units                                      |
| 32x32, colour      | residual, 18 layers: conv 64 (4x4), then 64, 128, 128, 160; 256 units |
| signals (100, 3)   | conv 32, 64, 96 (2x2), 128 units                                      |
| other images       | conv 16, 32 (3x3), 64 units: for small images and tests               |

| thesis     | here             | meaning                                                       |
|------------|------------------|---------------------------------------------------------------|
| theta1     | `first`          | auto-encoder: a convolution, its transpose reconstructs       |
| h_1        | `encoded`        | clip(theta1' x-bar, -1, 1) plus its noise                     |
| theta2     | `hidden`, `last` | the rest; h_pi, in [-1, 1] by tanh, lies between them         |
| chi1 / N   | `input_noise`    | on the input, on the scale [-1, 1]                            |
| 2 chi2 / N | `hidden_noise`   | on the first layer                                            |

The convolution of the first layer is the auto-encoder, and the first of those listed. Columns of
theta1, the weights into one neuron, have l1 norm `column_norm`, or less after training
(`renormalise`). First and last layer have no biases: the formulas know none. Before a run has drawn
noise, it is zero.

Deviations. Where the thesis is silent, its authors' programs for StoBatch are followed: batch
normalisation (without it the shared noise saturates all that follows), of colour images the middle
28x28 pixels, which alone give the published 14x14 neurons. A signal is an image of one channel;
its map is as large as it is. What has one channel and one side of at least eight times the other is
taken for a signal, whichever way round.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.models.published import Residual
from privet.models.published_noised import CROPPED
from privet.models.registry import ELONGATED, Centre, Shape, image_shape, model

LIFELONG: Final = "published-lifelong"


class Autoencoded(nn.Module):
    """last(hidden(clip(first(x + input noise)) + hidden noise)), x centred to [-1, 1]."""

    input_noise: Tensor
    hidden_noise: Tensor

    def __init__(
        self, first: nn.Conv2d, body: list[nn.Module], units: int, shape: Shape, classes: int
    ) -> None:
        """`body` leads from the first layer to `units` features, for inputs of `shape`."""
        super().__init__()
        self.margin = CROPPED.get(shape, 0)
        self.seen = tuple(side - 2 * self.margin for side in shape[-2:])
        self.channels = first.in_channels
        self.centre, self.first = Centre(), first
        with torch.no_grad():
            encoded = first(torch.zeros(1, self.channels, *self.seen))
            width = nn.Sequential(*body).eval()(encoded).flatten(1).shape[1]
        dense = [nn.Linear(width, units), nn.BatchNorm1d(units), nn.Tanh()]
        self.hidden = nn.Sequential(*body, nn.Flatten(), *dense).train()
        self.last = nn.Linear(units, classes, bias=False)
        self.register_buffer("input_noise", torch.zeros(self.channels, *self.seen))
        self.register_buffer("hidden_noise", torch.zeros_like(encoded[0]))
        self.renormalise(1.0, exactly=True)

    @torch.no_grad()
    def renormalise(self, column_norm: float, *, exactly: bool = False) -> None:
        """Shorten the columns of theta1 to this l1 norm; `exactly`: lengthen shorter ones, too."""
        norms = self.first.weight.abs().sum((1, 2, 3), keepdim=True)
        factors = column_norm / norms.clamp_min(1e-12)
        self.first.weight.mul_(factors if exactly else factors.clamp_max(1.0))

    def noised(self, x: Tensor) -> Tensor:
        """Inputs in [0, 1] as images, cropped, centred and noised: x-bar."""
        images = x.reshape(len(x), self.channels, *x.shape[-2:])
        noised: Tensor = self.centre(F.pad(images, [-self.margin] * 4)) + self.input_noise
        return noised

    def encoded(self, noised: Tensor) -> Tensor:
        """h_1 with its noise."""
        first: Tensor = self.first(noised)
        return first.clamp(-1.0, 1.0) + self.hidden_noise

    def above(self, encoded: Tensor) -> Tensor:
        """Scores of a noised first layer: h_pi W."""
        scores: Tensor = self.last(self.hidden(encoded))
        return scores

    def forward(self, x: Tensor) -> Tensor:
        """Scores of inputs in [0, 1]."""
        return self.above(self.encoded(self.noised(x)))


@model(LIFELONG)
def published_lifelong(shape: Shape, n_classes: int) -> nn.Module:
    """What L2DP-ML as published releases: with its two draws of noise."""
    shape = tuple(shape)
    channels, height, width = image_shape((1, *shape) if len(shape) == 2 else shape)
    signal = channels == 1 and max(height, width) >= ELONGATED * min(height, width)
    if shape == (1, 28, 28):
        first, body, units = _convolution(1, 32, 5, stride=2), _three(5, pooled=(2, 2)), 512
    elif shape == (3, 32, 32):
        first = nn.Conv2d(3, 64, 4, stride=2, padding=1, bias=False)
        body, units = _residual(), 256
    elif signal:
        halved = (2, 1) if height > width else (1, 2)
        first, units = nn.Conv2d(1, 32, 2, stride=halved, bias=False), 128
        body = _three(2, pooled=halved)
    else:
        first, units = _convolution(channels, 16, 3), 64
        body = [
            nn.BatchNorm2d(16), nn.AvgPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(32),
        ]  # fmt: skip
    return Autoencoded(first, body, units, shape, n_classes)


def _convolution(before: int, after: int, side: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, side, stride=stride, padding=side // 2, bias=False)


def _three(side: int, pooled: tuple[int, int]) -> list[nn.Module]:
    """The second and third of three convolutions."""
    layers: list[nn.Module] = [nn.BatchNorm2d(32)]
    for before, after in ((32, 64), (64, 96)):
        layers += [nn.Conv2d(before, after, side, padding=side // 2), nn.ReLU()]
        layers += [nn.BatchNorm2d(after), nn.AvgPool2d(pooled)]
    return layers


def _residual() -> list[nn.Module]:
    """Four stages of two blocks behind the first layer: ResNet-18 with the thesis's widths."""
    layers, before = list[nn.Module](), 64
    for after, stride in ((64, 1), (128, 2), (128, 2), (160, 2)):
        layers.append(Residual(before, after, stride, nn.BatchNorm2d))
        layers.append(Residual(after, after, 1, nn.BatchNorm2d))
        before = after
    return [*layers, nn.BatchNorm2d(before), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
