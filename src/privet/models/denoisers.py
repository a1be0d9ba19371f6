"""Denoisers by name: from noisy images to images of the same shape.

| name     | network                                                                          |
|----------|----------------------------------------------------------------------------------|
| `conv`   | that of TransDenoiser's authors, for 28x28 of one channel and 32x32 in colour    |
| `unet-W` | a small U-Net (Ronneberger et al., 2015) of width W, for images of 8x8 and more  |

| symbol  | here              | meaning                                                       |
|---------|-------------------|---------------------------------------------------------------|
| g       | `Denoiser`        | noisy image -> image                                          |
| theta_1 | `Denoiser.first`  | the first convolution                                         |
| theta_3 | `Denoiser.last`   | the last convolution, transposed in `conv`                    |
| theta_2 | `slices`          | everything else                                               |

`conv` ends in a sigmoid: its images lie within [0, 1]. `unet-W` gives the noisy image plus a
correction, which is near zero at first, so that it begins as a denoiser that does nothing; its
images may leave [0, 1], as the noisy ones do.

Every layer treats examples apart: there is no BatchNorm, and dropout draws for each example.

`conv` against the authors' program: layers and sizes are those of the program, and so are the
numbers of parameters of the three slices, which leave none for the normalisation. Not known, and
chosen here: the slope of LeakyReLU (TensorFlow's default), that residual and skip links are sums,
and that its dropout flag of 0.5 is a rate.
"""

import difflib
import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models.registry import Shape

LEAK: Final = 0.2  # slope of LeakyReLU below zero
DROPOUT: Final = 0.5
LEVELS: Final = 2  # halvings of a U-Net
SMALLEST: Final = 8  # pixels a side that these leave something of
QUIET: Final = 0.1  # of the usual first weights, for the last layer of a U-Net
GROUPS: Final = 8
WIDEST: Final = 512  # a U-Net of 95 million parameters


class Denoiser(nn.Module, ABC):
    """(n, *shape) -> (n, *shape), each image by itself."""

    first: nn.Conv2d
    last: nn.Module
    noise: nn.Module
    """Behind the first convolution: nothing, unless a method of training puts a layer here."""

    gain: float
    """What an input is multiplied with before the first convolution."""

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """g(z)."""


def slices(denoiser: Denoiser) -> dict[str, tuple[nn.Parameter, ...]]:
    """The parameters in three parts: theta_1, theta_2 and theta_3, disjoint and together all."""
    first, last = tuple(denoiser.first.parameters()), tuple(denoiser.last.parameters())
    ends = {id(parameter) for parameter in (*first, *last)}
    middle = tuple(p for p in denoiser.parameters() if id(p) not in ends)
    return {"first": first, "middle": middle, "last": last}


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Channels of the authors' network: of its two layers at each end, then down, then up again."""

    ends: int
    down: tuple[int, ...]
    up: tuple[int, ...]


WIDTHS: Final[dict[Shape, Widths]] = {
    (1, 28, 28): Widths(ends=32, down=(128, 128, 128), up=(128, 128, 32)),
    (3, 32, 32): Widths(ends=16, down=(128, 128, 128, 512), up=(128, 128, 128, 16)),
}


@final
class ConvDenoiser(Denoiser):
    """Convolutions and as many transposed ones, with residual and skip links."""

    gain = 1.0

    def __init__(self, shape: Shape, widths: Widths) -> None:
        super().__init__()
        self.noise = nn.Identity()
        channels, side, ends = shape[0], shape[1] // 2, widths.ends
        self.first = nn.Conv2d(channels, ends, 4, stride=2, padding=1)
        self.after_first = _after(ends, side)
        self.second = nn.Sequential(nn.Conv2d(ends, ends, 3, padding=1), *_after(ends, side))
        sides = [math.ceil(side / 2**i) for i in range(len(widths.down) + 1)]
        steps = zip((ends, *widths.down), widths.down, sides, sides[1:], strict=False)
        self.down = nn.Sequential(*(_halved(*step) for step in steps))
        upwards = zip((widths.down[-1], *widths.up), widths.up, sides[-2::-1], strict=False)
        self.up = nn.Sequential(*(_doubled(*step) for step in upwards))
        transposed = nn.ConvTranspose2d(ends, ends, 3, padding=1)
        self.second_to_last = nn.Sequential(transposed, *_after(ends, side))
        self.last = nn.ConvTranspose2d(ends, channels, 4, stride=2, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """g(z), within [0, 1]."""
        h = self.after_first(self.noise(self.first(z)))
        skipped = h + self.second(h)
        h = self.up(self.down(skipped))
        h = h + self.second_to_last(h) + skipped
        return torch.sigmoid(self.last(h))


def _after(channels: int, side: int) -> nn.Sequential:
    """What follows each convolution."""
    return nn.Sequential(
        nn.LeakyReLU(LEAK),
        nn.Dropout(DROPOUT),
        nn.LayerNorm((channels, side, side), elementwise_affine=False),
    )


def _halved(before: int, after: int, side: int, to: int) -> nn.Sequential:
    """To half of a side, rounded up: an odd one is filled up at its end."""
    odd = side % 2
    return nn.Sequential(
        nn.ZeroPad2d((0, odd, 0, odd)),
        nn.Conv2d(before, after, 4, stride=2, padding=1),
        *_after(after, to),
    )


def _doubled(before: int, after: int, to: int) -> nn.Sequential:
    """The adjoint of `_halved`: to a side that may be odd, by cutting off its end."""
    odd = to % 2
    return nn.Sequential(
        nn.ConvTranspose2d(before, after, 4, stride=2, padding=1),
        nn.ZeroPad2d((0, -odd, 0, -odd)),
        *_after(after, to),
    )


@final
class UNet(Denoiser):
    """z + correction: two halvings, links between equal sizes, GroupNorm throughout."""

    gain = 2.0

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.noise = nn.Identity()
        widths = [width * 2**level for level in range(LEVELS + 1)]
        pairs = list(itertools.pairwise(widths))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.after_first = nn.Sequential(*_normalised(width))
        self.before = nn.ModuleList(_level(fine) for fine, _ in pairs)
        self.down = nn.ModuleList(_halving(fine, coarse) for fine, coarse in pairs)
        self.bottom = _level(widths[-1])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in reversed(pairs)
        )
        self.behind = nn.ModuleList(_level(fine) for fine, _ in reversed(pairs))
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        with torch.no_grad():
            for parameter in self.last.parameters():
                parameter.mul_(QUIET)

    def forward(self, z: Tensor) -> Tensor:
        """g(z); it may leave [0, 1]."""
        height, width = z.shape[-2:]
        # Zeros of the centred image, as at the border of every convolution.
        filled = F.pad(self.gain * z - 1.0, (0, -width % 2**LEVELS, 0, -height % 2**LEVELS))
        h: Tensor = self.after_first(self.noise(self.first(filled)))
        links = []
        for before, down in zip(self.before, self.down, strict=True):
            links.append(before(h))
            h = down(links[-1])
        h = self.bottom(h)
        for up, behind, link in zip(self.up, self.behind, reversed(links), strict=True):
            h = behind(up(h) + link)
        correction: Tensor = self.last(h)[..., :height, :width]
        return z + correction


def _level(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), *_normalised(channels))


def _halving(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1), *_normalised(after))


def _normalised(channels: int) -> list[nn.Module]:
    return [nn.GroupNorm(math.gcd(GROUPS, channels), channels), nn.SiLU()]


Builder = Callable[..., Denoiser]


def conv(shape: Shape) -> Denoiser:
    """TransDenoiser's own: for 28x28 of one channel and for 32x32 in colour."""
    widths = WIDTHS.get(tuple(shape))
    if widths is None:
        raise InputError(
            "denoiser 'conv' is not made for such images",
            got=f"examples of shape {tuple(shape)}",
            expected=" or ".join(map(str, WIDTHS)),
            fix="use --denoiser unet-16",
        )
    return ConvDenoiser(shape, widths)


def unet(shape: Shape, width: int) -> Denoiser:
    """A small U-Net of width W with GroupNorm, for images of 8x8 pixels and more."""
    _require_image(shape)
    if not 4 <= width <= WIDEST or width % 4:
        expected = f"unet-4, unet-8, ... unet-{WIDEST}"
        raise InputError("no such U-Net", got=f"unet-{width}", expected=expected)
    return UNet(shape[0], width)


def unet_16(shape: Shape) -> Denoiser:
    """The default: `unet-W` of width 16, about 95,000 parameters."""
    return unet(shape, 16)


_BUILDERS: Final[dict[str, Builder]] = {"conv": conv, "unet-16": unet_16}
_UNET: Final = "unet-W"


def denoiser_names() -> list[str]:
    """All denoisers that have a name; those of a family go by their form."""
    return sorted(_BUILDERS)


def describe_denoisers() -> list[tuple[str, str]]:
    """Name and first line of each denoiser, and of the family."""
    builders = {**_BUILDERS, _UNET: unet}
    return [(name, (builders[name].__doc__ or "").split("\n")[0]) for name in sorted(builders)]


def default_denoiser(shape: Shape) -> str:
    """The denoiser for images of this shape when none was named."""
    _require_image(shape)
    return "unet-16"


def create_denoiser(name: str, shape: Shape, *, init_seed: int = 0) -> Denoiser:
    """Build a denoiser; its first weights depend on the public `init_seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        return build_denoiser(name, shape)


def build_denoiser(name: str, shape: Shape) -> Denoiser:
    """The same, with first weights from torch's generator as it stands."""
    if found := re.fullmatch(r"unet-(\d+)", name):
        return unet(shape, int(found[1]))
    if name in _BUILDERS:
        return _BUILDERS[name](shape)
    near = difflib.get_close_matches(name, denoiser_names(), n=1)
    raise InputError(
        "unknown denoiser",
        got=f"'{name}'",
        expected=f"one of {', '.join([*denoiser_names(), _UNET])}",
        fix=f"did you mean '{near[0]}'?" if near else "choose one of them",
    )


def _require_image(shape: Shape) -> None:
    if len(shape) != 3 or min(shape[1:]) < SMALLEST:
        raise InputError(
            "a denoiser needs images",
            got=f"examples of shape {tuple(shape)}",
            expected=f"(channels, height, width), at least {SMALLEST} pixels each way",
        )
