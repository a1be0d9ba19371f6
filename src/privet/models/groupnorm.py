"""A small convolutional network with group normalisation.

What BatchNorm does for ordinary training, GroupNorm (Wu and He 2018) does here: it normalises each
example by itself, so per-example clipping stays possible.
"""

import itertools

from torch import nn

from privet.errors import InputError
from privet.models.registry import Centre, Shape, image_shape, model


@model("cnn-gn")
def cnn_gn(shape: Shape, n_classes: int) -> nn.Module:
    """Three stages of convolution, GroupNorm (8 groups), ReLU and pooling, then a linear layer."""
    channels, height, width = image_shape(shape)
    if min(height, width) < 8:
        raise InputError(
            "images too small for three halvings",
            got=f"{height}x{width} pixels",
            expected="at least 8 pixels each way",
            fix="use --model mlp",
        )
    layers: list[nn.Module] = [Centre()]
    for before, after in itertools.pairwise([channels, 32, 64, 128]):
        # GroupNorm brings a bias of its own.
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.GroupNorm(8, after)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    features = 128 * (height // 8) * (width // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, n_classes))
