"""Small networks on top of scattering: the strongest known without other data, for small epsilon.

Tramer and Boneh, "Differentially private learning needs better features (or much more data)"
(2021), sections 3 and C: J = 2, L = 8, groups of the scattering maps normalised for each image by
itself (no statistics of the data, hence nothing to pay for), then a linear or a convolutional
classifier with tanh. Parameters at the papers' sizes: see docs/models.md.

Deviations: layers follow the image's size instead of supposing 28 or 32 pixels; images of one
channel get the paper's network for MNIST, others the one for CIFAR-10. `scatter-natural` is our
own: brightness and colour differences are scattered, maps are scaled by pink noise (see `natural`)
and then each image by itself, and a mix of the maps at each place comes before the one convolution.
"""

import math
from typing import Final

from torch import nn

from privet.models.fronted import Fronted
from privet.models.natural import LumaChroma, PinkStandardised
from privet.models.registry import Shape, image_shape, model
from privet.models.scattering import Scattering2d

GROUPS: Final = 27  # the paper's choice, of 9, 27 and 81
MIXED: Final = 128  # mixtures of maps in `scatter-natural`


@model("scatter-linear")
def scatter_linear(shape: Shape, n_classes: int) -> nn.Module:
    """Logistic regression on normalised scattering maps."""
    front, (channels, height, width) = _front(shape)
    return Fronted(
        front, nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, n_classes))
    )


@model("scatter-cnn")
def scatter_cnn(shape: Shape, n_classes: int) -> nn.Module:
    """Two convolutions on normalised scattering maps."""
    front, maps = _front(shape)
    head = _grey_head if shape[0] == 1 else _colour_head
    return Fronted(front, head(maps, n_classes))


@model("scatter-natural")
def scatter_natural(shape: Shape, n_classes: int) -> nn.Module:
    """Two convolutions on scattering maps scaled as those of natural images; for photographs."""
    image = image_shape(shape)
    channels, height, width = image
    scattering = Scattering2d(height, width)
    maps, (rows, columns) = (
        channels * scattering.maps,
        (height >> scattering.J, width >> scattering.J),
    )
    front = nn.Sequential(
        PinkStandardised(nn.Sequential(LumaChroma(channels), scattering), image),
        nn.GroupNorm(1, maps, affine=False),
    )
    head = nn.Sequential(
        nn.Conv2d(maps, MIXED, 1),
        nn.Tanh(),
        nn.Conv2d(MIXED, MIXED, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(MIXED * (rows // 2) * (columns // 2), n_classes),
    )
    return Fronted(front, head)


def _front(shape: Shape) -> tuple[nn.Module, tuple[int, int, int]]:
    channels, height, width = image_shape(shape)
    scattering = Scattering2d(height, width)
    maps = channels * scattering.maps
    # Nothing to learn in the normalisation either: a scale for each map is the next layer's job.
    normalised = nn.Sequential(scattering, nn.GroupNorm(GROUPS, maps, affine=False))
    return normalised, (maps, height >> scattering.J, width >> scattering.J)


def _grey_head(maps: tuple[int, int, int], n_classes: int) -> nn.Module:
    channels, *sides = maps
    features = 32 * math.prod(math.ceil(side / 2) for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(features, 32),
        nn.Tanh(),
        nn.Linear(32, n_classes),
    )


def _colour_head(maps: tuple[int, int, int], n_classes: int) -> nn.Module:
    channels, *sides = maps
    features = 64 * math.prod(side // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(features, n_classes),
    )
