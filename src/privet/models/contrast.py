"""Fronts that perturbations do not pass: constants, with nothing to learn and nothing to pay for.

The constants were chosen on a part of the training records of MNIST; there a card says so.

Where most pixels are black or white (digits, letters, line drawings), small changes of them can be
undone: below `low` a pixel is taken for black, above `high` for white.

| symbol | here         | meaning                                                             |
|--------|--------------|---------------------------------------------------------------------|
| t(x)   | `Contrast`   | clamp((x - low) / (high - low), 0, 1) + leak x                      |
| g * x  | `Blur`       | Gaussian blur, against noise that is drawn for each pixel           |

An attack of linf size s moves t(x) only where x is within s of the ramp: for low = s, high = 1 - s
nothing happens to a black or a white pixel but leak s. Grey pixels move more, by up to
s / (high - low): contrast helps images that have few of them. On photographs it does harm.

The leak is there for honesty: a flat front would hide the gradient from an attacker who follows
it, and make a model look stronger than it is. With it t rises everywhere, so that the sign of every
partial derivative is that of the network behind the front, and attacks that step by signs lose
nothing. And since t is increasing and continuous, what an attacker of linf size s can reach
behind the front is exactly the box from t(x - s) to t(x + s).

Guarantee: none of its own. Each example is treated by itself, and nothing is learned, so a private
run is as private with such a front as without.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.models.fronted import Fronted
from privet.models.registry import Shape, cnn, model
from privet.models.scatternet import scatter_linear

LEAK: Final = 0.01
STILLING: Final = 0.7  # pixels; with the contrast of `still-...`, the best of 0.7 and 1.0 on MNIST


class Contrast(nn.Module):
    """A ramp from black at `low` to white at `high`, with a slope of `leak` everywhere."""

    def __init__(self, low: float, high: float, leak: float = LEAK) -> None:
        super().__init__()
        self.low, self.high, self.leak = low, high, leak

    def forward(self, x: Tensor) -> Tensor:
        """t(x), pixel by pixel."""
        return ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0) + self.leak * x


class Blur(nn.Module):
    """Each pixel becomes the Gaussian mean of those around it; black beyond the border."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        reach = math.ceil(4.0 * deviation)
        weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / deviation) ** 2)
        kernel = torch.outer(weights, weights) / weights.sum() ** 2
        self.register_buffer("kernel", kernel, persistent=False)
        self.reach = reach

    def forward(self, x: Tensor) -> Tensor:
        """The mean around each pixel, channel by channel."""
        channels = x.shape[1]
        kernel = self.get_buffer("kernel").to(x.dtype).expand(channels, 1, -1, -1)
        return F.conv2d(x, kernel, padding=self.reach, groups=channels)


@model("contrast-cnn")
def contrast_cnn(shape: Shape, n_classes: int) -> nn.Module:
    """`cnn` behind a front of high contrast: for images in black and white, under linf attacks."""
    return _behind([Contrast(0.3, 0.7)], cnn(shape, n_classes))


@model("contrast-scatter")
def contrast_scatter(shape: Shape, n_classes: int) -> nn.Module:
    """`scatter-linear` behind a front of high contrast: the same at small epsilon."""
    return _behind([Contrast(0.3, 0.7)], scatter_linear(shape, n_classes))


@model("still-scatter")
def still_scatter(shape: Shape, n_classes: int) -> nn.Module:
    """`contrast-scatter` behind a blur: for images in black and white under noise, to certify."""
    return _behind([Blur(STILLING), Contrast(0.3, 0.7)], scatter_linear(shape, n_classes))


@model("still-cnn")
def still_cnn(shape: Shape, n_classes: int) -> nn.Module:
    """`cnn` behind a blur and high contrast."""
    return _behind([Blur(STILLING), Contrast(0.3, 0.7)], cnn(shape, n_classes))


def _behind(front: list[nn.Module], network: nn.Module) -> nn.Module:
    """One front and one trained head, whatever the network is."""
    if isinstance(network, Fronted):
        return Fronted(nn.Sequential(*front, network.front), network.head)
    return Fronted(nn.Sequential(*front), network)
