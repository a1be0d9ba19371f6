"""Perturbers by name: networks that make an adversarial perturbation of an image in one pass.

| name                  | network                                                              |
|-----------------------|----------------------------------------------------------------------|
| `ain-W`               | the Adversarial Imitation Network with channels W, 2W, 4W, 8W        |
| `ain-W-without-PARTS` | the same for ablations; PARTS: attention-residual-label-noise-smooth |
| `ain-published`       | that of AIN's authors, for 28x28 of one channel and 64x64 in colour  |
| `atn-W`               | a plain autoencoder of the layout of `ain-W`: no part of the five;   |
|                       | it gives the image itself, out = sigmoid(its last layer) - x         |
| `advgan`              | the generator of AdvGAN (Xiao et al., 2018)                          |

| symbol | here                  | meaning                                                      |
|--------|-----------------------|--------------------------------------------------------------|
| out    | `Perturber.forward`   | what the last layer gives, without a bound                   |
| B      | `bound`               | p = B tanh(out); published: min(max(out, -B), B)             |
| x'     | `bounded`             | x + p, within [0, 1]                                         |
| h_c    | `LabelChannel`        | state of the label, one channel beside those of the image    |
| r      | `CodeNoise`           | code <- LayerNorm(code + r), r Gaussian, in evaluation too   |
| gamma  | `Gain.gamma`          | u + gamma o, where attention joins its input; 0 at first     |

The network of AIN. Unit i of the encoder is convolution -> LayerNorm -> LeakyReLU -> dropout ->
residual blocks; kernels and strides are 4, 2 and 3, 1 in turn. There are four units, and five for
images of 64 pixels each way and more. The decoder mirrors them: residual blocks -> transposed
convolution -> LayerNorm -> LeakyReLU -> dropout, but nothing behind the last convolution. A side
that is odd is filled up by one on the way down and cut off on the way up. Attention stands before
the second unit and after the second to last:

    f, g, h = W_f u, W_g u, W_h u,   S = softmax(g f^T) over positions,   o = W_o (S h).

For 28x28 images of one channel and 10 classes:

| W       | parameters | multiply-adds in a pass | of them g f^T, Sh |
|---------|------------|-------------------------|-------------------|
| 8       | 109,475    |  5.1 million            | 1.2 million       |
| 12      | 209,715    | 10.5 million            | 1.8 million       |
| 16      | 343,427    | 17.8 million            | 2.5 million       |
| 32      | 1,212,995  | 65.8 million            | 4.9 million       |
| authors | 15,456,131 | 767.9 million           | 4.9 million       |

Every layer treats images apart: there is no BatchNorm, LayerNorm has the statistics of one image
(its gains are those of channels: GroupNorm with one group), and noise and dropout draw for each.

Deviations:

- The label state is sigmoid and LayerNorm of a learned row for each class, trained with the rest;
  the authors train an autoencoder of labels first and keep its states.
- The noise is 0.01 times a Gaussian draw times a state in (0, 1) of the label, as in the authors'
  program; without the label, 0.01 times the draw. Their third state, a matrix by which the label
  mixes the channels of the second to last map, is left out.
- `ain-W` approaches the bound smoothly: an output beyond a bound that is cut off at has no slope,
  and does not come back. `ain-W-without-smooth` and `ain-published` cut off.
- Gradients pass the cut of images at 0 and 1 (`bounded`): most pixels of a digit are 0.
- First weights are torch's; those of the last convolution are a tenth of them. Where `out` lies
  beyond the bound, no gradient comes back, so it begins inside.
- `advgan` keeps sizes by filling up with zeros; its discriminator has LayerNorm, since nothing of a
  small image is left that InstanceNorm could take a variance of.
"""

import difflib
import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.registry import Shape

LEAK: Final = 0.2  # slope of LeakyReLU below zero
STEPS: Final = ((4, 2), (3, 1))  # kernel and stride of a unit, in turn
NOISE: Final = 0.01  # deviation of r where the label's state is one
QUIET: Final = 0.1  # of the usual first weights, for the last convolution
SMALLEST: Final = 8  # pixels a side that these leave something of
LARGE: Final = 64  # pixels a side from which there is a fifth unit
NARROWEST: Final = 4
WIDEST: Final = 128  # a central code of the authors' 1,024 channels
PARTS: Final = ("attention", "residual", "label", "noise", "smooth")

Size = tuple[int, int]
"""Height and width of a map."""


class Perturber(nn.Module, ABC):
    """(n, *shape) within [0, 1] and n labels -> (n, *shape) without a bound, each by itself.

    Attributes:
        smooth: whether the bound is approached, p = B tanh(out), and not cut off at.
    """

    smooth: bool = False

    @abstractmethod
    def forward(
        self, x: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """What `bounded` makes a perturbation of.

        Args:
            x: images.
            labels: their classes; a network without label conditioning does not look.
            generator: of the injected noise; torch's own if none. Dropout draws from torch's own.
        """

    def perturbed(
        self, x: Tensor, labels: Tensor, bound: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """X'."""
        out = self(x, labels, generator)
        return bounded(bound * torch.tanh(out) if self.smooth else out, x, bound)


def bounded(out: Tensor, x: Tensor, bound: float) -> Tensor:
    """The perturbed image: out cut off at the bound, added to x, cut off at 0 and 1.

    For x within [0, 1], as for every other attack: each pixel is within the bound (as a number of
    this precision, float32 for anything coarser) up to the one rounding of the sum, at most 2^-25
    in float32. To cut off at 0 and 1 brings a pixel closer to x. An output that is no number moves
    nothing: a network that is broken must not pass for one that fools.

    Gradients pass the cut at 0 and 1 as if it were not there: a black pixel that is to be darkened
    would otherwise never learn that it should be brightened.
    """
    if not 0 <= bound < math.inf:
        raise InputError("bad bound", got=bound, expected="a finite number, 0 or more")
    # In bfloat16 the bound itself would be rounded, and up: 0.3 to 0.30078.
    wide = out.to(torch.promote_types(out.dtype, torch.float32))
    moved = x + wide.clamp(-bound, bound).nan_to_num(0.0)
    return moved.detach().clamp(0, 1) + (moved - moved.detach())


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The units of AIN's encoder, first to last.

    Attributes:
        channels: behind the convolution of each unit; the first is the width of attention.
        dropouts: rates behind the convolutions.
        blocks: residual blocks of a unit.
        block_dropout: rate inside them.
    """

    channels: tuple[int, ...]
    dropouts: tuple[float, ...]
    blocks: int = 1
    block_dropout: float = 0.0


LAYOUTS: Final[dict[Shape, Layout]] = {
    (1, 28, 28): Layout(
        channels=(32, 128, 256, 1024),
        dropouts=(0.0, 0.8, 0.2, 0.0),
        blocks=4,
        block_dropout=0.4,
    ),
    (3, 64, 64): Layout(
        channels=(64, 128, 256, 512, 1024),
        dropouts=(0.0, 0.8, 0.2, 0.6, 0.0),
        blocks=3,
        block_dropout=0.4,
    ),
}


@final
class Ain(Perturber):
    """A conditional residual convolutional autoencoder with self-attention and noise inside.

    Attributes:
        whole: whether the last layer gives the image, by a sigmoid, and not what to add to it.
    """

    def __init__(
        self,
        shape: Shape,
        n_classes: int,
        layout: Layout,
        without: Sequence[str] = (),
        *,
        whole: bool = False,
    ) -> None:
        super().__init__()
        self.whole = whole
        channels, size = shape[0], (shape[1], shape[2])
        labelled, attentive = "label" not in without, "attention" not in without
        self.smooth = "smooth" not in without
        layout = replace(layout, blocks=0) if "residual" in without else layout
        sizes = _sizes(size, len(layout.channels))
        self.label = LabelChannel(n_classes, size) if labelled else None
        self.encoder = _encoder(channels + int(labelled), sizes, layout, attentive)
        code = (layout.channels[-1], *sizes[-1])
        self.noise = None
        if "noise" not in without:
            self.noise = CodeNoise(code, n_classes if labelled else None)
        self.after_noise = _layer_norm(code[0])
        self.decoder = _decoder(channels, sizes, layout, attentive)

    def forward(
        self, x: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """The last convolution's output, near zero at first; or what leads to the whole image."""
        seen = x if self.label is None else torch.cat([x, self.label(labels)], 1)
        code = self.encoder(seen)
        if self.noise is not None:
            code = code + self.noise(code, labels, generator)
        out: Tensor = self.decoder(self.after_noise(code))
        return torch.sigmoid(out) - x if self.whole else out


@final
class LabelChannel(nn.Module):
    """Labels -> (n, 1, height, width): a learned state of each class."""

    def __init__(self, n_classes: int, size: Size) -> None:
        super().__init__()
        self.state = nn.Embedding(n_classes, math.prod(size))
        self.norm = nn.LayerNorm(math.prod(size))
        self.size = size

    def forward(self, labels: Tensor) -> Tensor:
        """h_c."""
        h: Tensor = self.norm(torch.sigmoid(self.state(labels)))
        return h.view(-1, 1, *self.size)


@final
class CodeNoise(nn.Module):
    """A fresh Gaussian draw for every entry of every image's code, in evaluation too.

    Attributes:
        silent: leaves it out.
    """

    def __init__(self, code: Shape, n_classes: int | None) -> None:
        super().__init__()
        self.silent = False
        self.state = None if n_classes is None else nn.Embedding(n_classes, math.prod(code))

    def forward(
        self, code: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """r, of the shape of the code."""
        if self.silent:
            return torch.zeros_like(code)
        device = code.device if generator is None else generator.device
        # By shape and not `_like`: the draws must not depend on how the rows lie in memory.
        draws = torch.randn(code.shape, generator=generator, device=device, dtype=code.dtype)
        r = NOISE * draws.to(code.device)
        return r if self.state is None else torch.sigmoid(self.state(labels)).view(r.shape) * r


@final
class Gain(nn.Module):
    """One learned factor, zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        return self.gamma * x


@final
class SelfAttention(nn.Module):
    """Every position sees all others of its image (Zhang et al., SAGAN, 2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.f, self.g, self.h, self.o = (
            nn.Conv2d(channels, channels, 1, bias=False) for _ in range(4)
        )
        self.gain = Gain()

    def forward(self, u: Tensor) -> Tensor:
        """The map with what its positions saw: u + gamma o."""
        f, g, h = (layer(u).flatten(2).transpose(1, 2) for layer in (self.f, self.g, self.h))
        seen = torch.softmax(g @ f.transpose(1, 2), -1) @ h
        joined: Tensor = u + self.gain(self.o(seen.transpose(1, 2).reshape(u.shape)))
        return joined


@final
class Residual(nn.Module):
    """u + layers(u)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, u: Tensor) -> Tensor:
        """The sum of both ways."""
        total: Tensor = u + self.layers(u)
        return total


def _encoder(before: int, sizes: list[Size], layout: Layout, attentive: bool) -> nn.Sequential:
    stages = nn.Sequential()
    for i, after in enumerate(layout.channels):
        if i == 1 and attentive:
            stages.append(SelfAttention(before))
        layers = _down(before, after, *STEPS[i % 2], sizes[i]) + _after(after, layout.dropouts[i])
        stages.append(nn.Sequential(*layers, *_blocks(after, layout)))
        before = after
    return stages


def _decoder(image: int, sizes: list[Size], layout: Layout, attentive: bool) -> nn.Sequential:
    stages = nn.Sequential()
    ends = (image, *layout.channels)
    for i in reversed(range(1, len(layout.channels))):
        before, after = ends[i + 1], ends[i]
        layers = _up(before, after, *STEPS[i % 2], sizes[i]) + _after(after, layout.dropouts[i])
        stages.append(nn.Sequential(*_blocks(before, layout), *layers))
    if attentive:
        stages.append(SelfAttention(ends[1]))
    last, *trimmed = _up(ends[1], image, *STEPS[0], sizes[0])
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(QUIET)
    return stages.append(nn.Sequential(*_blocks(ends[1], layout), last, *trimmed))


def _sizes(size: Size, units: int) -> list[Size]:
    """Of the image, then behind each unit."""
    sizes = [size]
    for i in range(units):
        height, width = (math.ceil(side / STEPS[i % 2][1]) for side in sizes[-1])
        sizes.append((height, width))
    return sizes


def _down(before: int, after: int, kernel: int, stride: int, size: Size) -> list[nn.Module]:
    """To sides divided by the stride, rounded up: one that is odd is filled up at its end."""
    layer = nn.Conv2d(before, after, kernel, stride=stride, padding=1)
    return [*_trimmed(size, stride, 1), layer]


def _up(before: int, after: int, kernel: int, stride: int, size: Size) -> list[nn.Module]:
    """The adjoint of `_down`: to sides that may be odd, by cutting off their ends."""
    layer = nn.ConvTranspose2d(before, after, kernel, stride=stride, padding=1)
    return [layer, *_trimmed(size, stride, -1)]


def _trimmed(size: Size, stride: int, by: int) -> list[nn.Module]:
    rows, columns = (by * (side % stride) for side in size)
    return [nn.ZeroPad2d((0, columns, 0, rows))] if rows or columns else []


def _after(channels: int, dropout: float) -> list[nn.Module]:
    """What follows a convolution."""
    layers: list[nn.Module] = [_layer_norm(channels), nn.LeakyReLU(LEAK)]
    return [*layers, nn.Dropout(dropout)] if dropout else layers


def _blocks(channels: int, layout: Layout) -> list[nn.Module]:
    """Residual blocks of one 1x1 convolution each."""
    return [
        Residual(nn.Conv2d(channels, channels, 1), *_after(channels, layout.block_dropout))
        for _ in range(layout.blocks)
    ]


def _layer_norm(channels: int) -> nn.Module:
    """Over all of one image's map, with gains of channels: at any size."""
    return nn.GroupNorm(1, channels)


@final
class AdvGan(Perturber):
    """Down to a quarter of the sides, four residual blocks, up again; outputs within [-1, 1]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        channels, fine = shape[0], (shape[1], shape[2])
        middle = (math.ceil(fine[0] / 2), math.ceil(fine[1] / 2))
        self.body = nn.Sequential(
            *_instance(nn.Conv2d(channels, 8, 3, padding=1, bias=False), 8),
            *_instance(nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), 16),
            *_instance(nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), 32),
            *(_instance_block(32) for _ in range(4)),
            *_instance(_transposed(32, 16, middle), 16),
            *_instance(_transposed(16, 8, fine), 8),
            nn.Conv2d(8, channels, 3, padding=1),
            nn.Tanh(),
        )

    def forward(
        self, x: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """G(x); it looks at no label and draws nothing."""
        out: Tensor = self.body(x)
        return out


def _instance(convolution: nn.Module, channels: int) -> list[nn.Module]:
    return [convolution, nn.InstanceNorm2d(channels), nn.ReLU()]


def _instance_block(channels: int) -> nn.Module:
    first, second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
    return Residual(*_instance(first, channels), second, nn.InstanceNorm2d(channels))


def _transposed(before: int, after: int, to: Size) -> nn.Module:
    """From half of the sides, rounded up, to sides that may be odd."""
    more = (1 - to[0] % 2, 1 - to[1] % 2)
    return nn.ConvTranspose2d(
        before, after, 3, stride=2, padding=1, output_padding=more, bias=False
    )


def discriminator(shape: Shape, *, init_seed: int = 0) -> nn.Module:
    """AdvGAN's judge: (n, *shape) -> n scores, above zero for what it takes for a clean image.

    Three convolutions of stride 2 with 8, 16 and 32 channels, then a linear layer.
    """
    _require_image(shape)
    ends, sizes = (shape[0], 8, 16, 32), [(shape[1], shape[2])]
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        for before, after in itertools.pairwise(ends):
            height, width = sizes[-1]
            layers += _down(before, after, 4, 2, (height, width))
            layers += _after(after, 0.0)
            sizes.append((math.ceil(height / 2), math.ceil(width / 2)))
        layers += [nn.Flatten(), nn.Linear(ends[-1] * math.prod(sizes[-1]), 1), nn.Flatten(0)]
    return nn.Sequential(*layers)


Builder = Callable[..., Perturber]


def advgan(shape: Shape, n_classes: int) -> Perturber:
    """AdvGAN's generator: instance norm and four residual blocks, no label, no noise."""
    _require_image(shape)
    return AdvGan(shape)


def ain(shape: Shape, n_classes: int, width: int, without: Sequence[str] = ()) -> Perturber:
    """The Adversarial Imitation Network with W channels behind its first convolution."""
    return Ain(shape, n_classes, _layout(shape, width), without)


def _layout(shape: Shape, width: int) -> Layout:
    """W channels behind the first convolution, twice as many behind each other one."""
    _require_image(shape)
    _require_width(width)
    units = 5 if min(shape[1:]) >= LARGE else 4
    channels = tuple(width * 2**i for i in range(units))
    return Layout(channels=channels, dropouts=(0.0,) * units)


def ablated(shape: Shape, n_classes: int, width: int, parts: str) -> Perturber:
    """`ain-W` without some of attention, residual, label, noise and smooth, for ablations."""
    without = parts.split("-")
    if without != [part for part in PARTS if part in without]:
        raise InputError(
            "no such parts to leave out",
            got=f"'{parts}'",
            expected=f"some of {'-'.join(PARTS)}, in this order",
        )
    return ain(shape, n_classes, width, without)


def ain_12(shape: Shape, n_classes: int) -> Perturber:
    """The default: `ain-W` of width 12."""
    return ain(shape, n_classes, 12)


def ain_published(shape: Shape, n_classes: int) -> Perturber:
    """AIN's authors' own: for 28x28 of one channel and for 64x64 in colour."""
    layout = LAYOUTS.get(tuple(shape))
    if layout is None:
        raise InputError(
            "perturber 'ain-published' is not made for such images",
            got=f"examples of shape {tuple(shape)}",
            expected=" or ".join(map(str, LAYOUTS)),
            fix=f"use {default_perturber(shape)}",
        )
    return Ain(shape, n_classes, layout, without=("smooth",))


def atn(shape: Shape, n_classes: int, width: int) -> Perturber:
    """A plain convolutional autoencoder of the layout of `ain-W`, for the ATN baseline."""
    return Ain(shape, n_classes, _layout(shape, width), PARTS, whole=True)


_BUILDERS: Final[dict[str, Builder]] = {
    "advgan": advgan,
    "ain-12": ain_12,
    "ain-published": ain_published,
}
_FAMILIES: Final[dict[str, tuple[str, Builder]]] = {
    "ain-W": (r"ain-(\d+)", ain),
    "ain-W-without-PARTS": (r"ain-(\d+)-without-([a-z-]+)", ablated),
    "atn-W": (r"atn-(\d+)", atn),
}


def perturber_names() -> list[str]:
    """All perturbers that have a name; those of a family go by their form."""
    return sorted(_BUILDERS)


def describe_perturbers() -> list[tuple[str, str]]:
    """Name and first line of each perturber, and of each family."""
    builders = _BUILDERS | {form: builder for form, (_, builder) in _FAMILIES.items()}
    return [(name, (builders[name].__doc__ or "").split("\n")[0]) for name in sorted(builders)]


def default_perturber(shape: Shape) -> str:
    """The perturber for images of this shape when none was named."""
    _require_image(shape)
    return "ain-12"


def create_perturber(name: str, shape: Shape, n_classes: int, *, init_seed: int = 0) -> Perturber:
    """Build a perturber; its first weights depend on the public `init_seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        return build_perturber(name, shape, n_classes)


def build_perturber(name: str, shape: Shape, n_classes: int) -> Perturber:
    """The same, for weights that will be loaded: the first ones are from torch's generator."""
    for pattern, builder in _FAMILIES.values():
        if found := re.fullmatch(pattern, name):
            width, *parts = found.groups()
            return builder(shape, n_classes, int(width), *parts)
    if name in _BUILDERS:
        return _BUILDERS[name](shape, n_classes)
    near = difflib.get_close_matches(name, perturber_names(), n=1)
    raise InputError(
        "unknown perturber",
        got=f"'{name}'",
        expected=f"one of {', '.join([*perturber_names(), *_FAMILIES])}",
        fix=f"did you mean '{near[0]}'?" if near else "choose one of them",
    )


def _require_image(shape: Shape) -> None:
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise InputError(
            "a perturber needs images",
            got=f"examples of shape {tuple(shape)}",
            expected=f"(channels, height, width), at least {SMALLEST} pixels each way",
        )


def _require_width(width: int) -> None:
    if not NARROWEST <= width <= WIDEST:
        expected = f"from {NARROWEST} to {WIDEST}"
        raise InputError("no perturber of such a width", got=width, expected=expected)
