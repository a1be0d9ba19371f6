"""Networks by name. Every network takes inputs scaled to [0, 1] and returns one score a class."""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from privet.errors import InputError

Shape = tuple[int, ...]
SMALL: Final = ("cnn-tiny", "mlp", "linear")  # for small images, too
ELONGATED: Final = 8  # a signal is at least so many times as long as it has channels
Builder = Callable[[Shape, int], nn.Module]
Activation = Callable[[], nn.Module]
_BUILDERS: dict[str, Builder] = {}
_FAMILIES: dict[str, tuple[str, Callable[..., nn.Module]]] = {}


def model(name: str) -> Callable[[Builder], Builder]:
    """Register a builder (shape of one example, number of classes) -> network."""

    def register(builder: Builder) -> Builder:
        _BUILDERS[name] = builder
        return builder

    return register


def family(
    form: str, pattern: str
) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Register a builder (shape, classes, *parts) for all names of a form such as wrn-D-K.

    Parts of a name that are numbers are given as such.
    """

    def register(builder: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        _FAMILIES[form] = (pattern, builder)
        return builder

    return register


def names() -> list[str]:
    """All networks registered by name; those of a family go by their form."""
    return sorted(_BUILDERS)


def describe() -> list[tuple[str, str]]:
    """Name and first line of each network, and of each family."""
    families = {form: builder for form, (_, builder) in _FAMILIES.items()}
    builders: dict[str, Callable[..., nn.Module]] = {**_BUILDERS, **families}
    return [(name, _first_line(builders[name])) for name in sorted(builders)]


def create(
    name: str,
    shape: Shape,
    n_classes: int,
    *,
    init_seed: int = 0,
    instead: Sequence[str] = SMALL,
) -> nn.Module:
    """Build a network; its first weights depend on the public `init_seed` alone.

    `instead`: what to suggest to someone whose images are too small for it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        return build(name, shape, n_classes, instead=instead)


def build(name: str, shape: Shape, n_classes: int, *, instead: Sequence[str] = SMALL) -> nn.Module:
    """The same, for weights that will be loaded or that the caller has a seed for."""
    builder = builder_of(name)
    try:
        return builder(shape, n_classes)
    except RuntimeError:  # torch: a kernel larger than what is left of the image
        raise InputError(
            f"network '{name}' cannot take examples of this shape",
            got=shape,
            expected="larger images",
            fix=f"use --model {' or '.join(instead)}",
        ) from None


def builder_of(name: str) -> Builder:
    """What builds the network of this name; an unknown one is bad input."""
    builder = _find(name)
    if builder is None:
        near = difflib.get_close_matches(name, names(), n=1)
        raise InputError(
            "unknown model",
            got=f"'{name}'",
            expected=f"one of {', '.join([*names(), *_FAMILIES])}",
            fix=f"did you mean '{near[0]}'?" if near else "choose one of them",
        )
    return builder


def _first_line(builder: Callable[..., nn.Module]) -> str:
    return (builder.__doc__ or "").strip().split("\n")[0]


def _find(name: str) -> Builder | None:
    for pattern, builder in _FAMILIES.values():
        if found := re.fullmatch(pattern, name):
            parts = [int(part) if part.isdigit() else part for part in found.groups()]
            return lambda shape, n_classes: builder(shape, n_classes, *parts)
    return _BUILDERS.get(name)


def default_model(shape: Shape) -> str:
    """The network for examples of this shape when none was named."""
    if len(shape) == 2 and shape[1] >= max(ELONGATED * shape[0], 24):
        return "har-wild-64"  # far longer than wide: a signal
    if len(shape) != 3:
        return "mlp"
    return "cnn" if shape[1] >= 24 else "cnn-tiny"


class Centre(nn.Module):
    """Inputs from [0, 1] to [-1, 1]: public constants, no statistics of the data."""

    def forward(self, x: Tensor) -> Tensor:
        """2x - 1."""
        return 2.0 * x - 1.0


@model("linear")
def linear(shape: Shape, n_classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(Centre(), nn.Flatten(), nn.Linear(math.prod(shape), n_classes))


@model("mlp")
def mlp(shape: Shape, n_classes: int) -> nn.Module:
    """One hidden layer of 64 tanh units."""
    return nn.Sequential(
        Centre(), nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Tanh(), nn.Linear(64, n_classes)
    )


@model("cnn-tiny")
def cnn_tiny(shape: Shape, n_classes: int) -> nn.Module:
    """For images of about 8x8: two small convolutions."""
    channels, height, width = image_shape(shape)
    features = 32 * (height // 2) * (width // 2)
    return nn.Sequential(
        Centre(),
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(features, n_classes),
    )


@model("cnn")
def cnn(shape: Shape, n_classes: int, activation: Activation = nn.Tanh) -> nn.Module:
    """The network of most DP-SGD papers on MNIST, with tanh (26,010 parameters at 28x28)."""
    channels, height, width = image_shape(shape)
    body = nn.Sequential(
        Centre(),
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        activation(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        activation(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        features = body(torch.zeros(1, channels, height, width)).shape[1]
    return nn.Sequential(*body, nn.Linear(features, 32), activation(), nn.Linear(32, n_classes))


@model("cnn-strided")
def cnn_strided(shape: Shape, n_classes: int) -> nn.Module:
    """Two ReLU convolutions of stride 2, a layer of 128: quick to evaluate, for smoothing."""
    channels, height, width = image_shape(shape)
    features = 64 * math.ceil(height / 4) * math.ceil(width / 4)
    return nn.Sequential(
        Centre(),
        nn.Conv2d(channels, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        nn.Linear(128, n_classes),
    )


@model("cnn-deep")
def cnn_deep(shape: Shape, n_classes: int, activation: Activation = nn.Tanh) -> nn.Module:
    """For 32x32 colour images: six tanh convolutions in three stages (Tramer and Boneh's shape)."""
    channels, height, width = image_shape(shape)
    layers: list[nn.Module] = [Centre()]
    widths = [channels, 32, 64, 128]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), activation()]
        layers += [nn.Conv2d(after, after, 3, padding=1), activation(), nn.MaxPool2d(2)]
    features = 128 * (height // 8) * (width // 8)
    head = [nn.Flatten(), nn.Linear(features, 128), activation(), nn.Linear(128, n_classes)]
    return nn.Sequential(*layers, *head)


def image_shape(shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width, or a refusal of what is not an image."""
    if len(shape) != 3:
        raise InputError(
            "a convolutional network needs images",
            got=f"examples of shape {shape}",
            expected="(channels, height, width)",
            fix="use --model mlp or --model linear",
        )
    return shape[0], shape[1], shape[2]
