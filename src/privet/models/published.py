"""The networks of PixelDP's, SecureSGD's, DPAL's and StoBatch's comparisons.

| images             | network                                                           |
|--------------------|-------------------------------------------------------------------|
| 28x28, one channel | conv 32 (5x5, stride 2), pool, conv 64 (5x5, stride 2), 256 units |
| 32x32 and 28x28,   | conv 128 (4x4, stride 2), conv 128 (5x5) beside its input,        |
| colour             | conv 256 (5x5), pool, 256 units                                   |
| 64x64, colour      | ResNet-18 (first layer 7x7, stride 2), 256 units                  |
| others             | conv 16 (3x3), pool, 64 units: for small images and tests         |

All have a first layer that is linear in the input, and a last hidden layer within [-1, 1]: the
papers put noise behind the first, and their loss is a polynomial of what follows the last. `parts`
cuts a network there. Inputs are centred, [0, 1] to [-1, 1], as in the papers.

`published` has batch normalisation, as the authors' programs do; it mixes examples, so that no
private run takes it. `published-gn` normalises each example by itself.

Deviations: images of 32x32 are cropped to 28x28 by `published-noised` alone. The residual network
is not pre-trained.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.registry import Centre, Shape, image_shape, model

GROUPS: Final = 16
Norm = Callable[[int], nn.Module]


class Parts(NamedTuple):
    """A network as rest(first(x)), and rest as last(hidden(h))."""

    first: nn.Sequential
    hidden: nn.Sequential
    last: nn.Linear


def parts(network: nn.Module) -> Parts:
    """Centring and the first convolution; what leads to the last hidden layer; the output."""
    layers = list(network.children())
    if not (
        isinstance(network, nn.Sequential)
        and len(layers) > 3
        and isinstance(layers[1], nn.Conv2d)
        and isinstance(layers[-2], nn.Hardtanh)
        and isinstance(layers[-1], nn.Linear)
    ):
        raise InputError(
            "no network of these papers",
            got=type(network).__name__,
            expected="a first convolution, and a last hidden layer within [-1, 1]",
            fix="--model published, or published-gn",
        )
    return Parts(nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:-1]), layers[-1])


@model("published")
def published(shape: Shape, n_classes: int) -> nn.Module:
    """The papers' network for images of this size, with BatchNorm: not for private training."""
    return _network(shape, n_classes, _batch_norm)


@model("published-gn")
def published_gn(shape: Shape, n_classes: int) -> nn.Module:
    """The same with GroupNorm: each example is normalised by itself."""
    return _network(shape, n_classes, _group_norm)


class BesideInput(nn.Module):
    """Channels of the input, then those of a module of it."""

    def __init__(self, through: nn.Module) -> None:
        super().__init__()
        self.through = through

    def forward(self, x: Tensor) -> Tensor:
        """Both, one behind the other."""
        return torch.cat([x, self.through(x)], 1)


class Residual(nn.Module):
    """Two 3x3 convolutions, normalised and rectified before each, beside a way past them."""

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.ready = nn.Sequential(norm(before), nn.ReLU())
        self.past = (
            nn.Identity()
            if before == after and stride == 1
            else nn.Conv2d(before, after, 1, stride, bias=False)
        )
        self.through = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            norm(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        ready = self.ready(x)
        total: Tensor = self.past(ready) + self.through(ready)
        return total


def _network(shape: Shape, n_classes: int, norm: Norm) -> nn.Module:
    channels, height, width = image_shape(shape)
    size = (channels, height, width)
    if size == (1, 28, 28):
        layers, units = _for_mnist(norm), 256
    elif size in ((3, 32, 32), (3, 28, 28)):
        layers, units = _for_cifar(norm), 256
    elif size == (3, 64, 64):
        layers, units = _resnet_18(norm), 256
    else:
        layers, units = _small(channels, norm), 64
    body = nn.Sequential(Centre(), *layers, nn.Flatten())
    with torch.no_grad():
        features = body.eval()(torch.zeros(1, *size)).shape[1]
    body.train()
    return nn.Sequential(
        *body, nn.Linear(features, units), norm(units), nn.Hardtanh(), nn.Linear(units, n_classes)
    )


def _for_mnist(norm: Norm) -> list[nn.Module]:
    return [
        nn.Conv2d(1, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        norm(32),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 5, stride=2, padding=2),
        nn.ReLU(),
    ]


def _for_cifar(norm: Norm) -> list[nn.Module]:
    second = nn.Sequential(nn.Conv2d(128, 128, 5, padding=2), nn.ReLU())
    return [
        nn.Conv2d(3, 128, 4, stride=2, padding=1),
        nn.ReLU(),
        norm(128),
        BesideInput(second),
        norm(256),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        norm(256),
        nn.AvgPool2d(2),
    ]


def _resnet_18(norm: Norm) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, stride=2, padding=3)]
    before = 64
    for stage, after in enumerate((64, 128, 256, 512)):
        layers.append(Residual(before, after, 1 if stage == 0 else 2, norm))
        layers.append(Residual(after, after, 1, norm))
        before = after
    return [*layers, norm(before), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]


def _small(channels: int, norm: Norm) -> list[nn.Module]:
    return [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), norm(16), nn.AvgPool2d(2)]


def _batch_norm(channels: int) -> nn.Module:
    # In front of a flat layer, too: both kinds take their channels second.
    return _AnyBatchNorm(channels)


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, channels)


class _AnyBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Of images and of flat layers."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions."""
