"""Several random views of each example: augmentation multiplicity.

De et al., "Unlocking high-accuracy differentially private image classification through scale"
(2022), section 3.4: average the gradients of K views of an example *before* clipping. The unit of
privacy is still the example, so K views cost nothing.

| symbol | here    | meaning                                                     |
|--------|---------|-------------------------------------------------------------|
| K      | `views` | random views of each example; the unchanged one is not kept |
| sigma  | `noise` | of Gaussian noise, drawn anew for every entry of every view |

Guarantee: views leave the privacy of a step as it is. Row r of the result is a function of its
own example and of the draws of row r. The draws of all rows are independent and distributed alike,
so one may suppose that each example brings its own: given them, removing an example removes its
rows and changes no other, and the clipped mean of its rows is bounded as ever.

Noise is what randomized smoothing trains with (Cohen, Rosenfeld and Kolter, 2019). It is added last
and not cut off at the bounds of the inputs: `certify` does not do that either.

Deviation: for 'flip-crop' the border is reflected about the border pixel; De et al.'s code repeats
that pixel.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from privet.errors import InputError

AUGMENTATIONS: Final = ("none", "shift", "flip-crop")
SHIFT: Final = 14  # the reach is one in so many pixels of the shorter side: 2 of MNIST's 28
MARGIN: Final = 4  # pixels


@dataclass(frozen=True)
class Views:
    """K random views of each example.

    Attributes:
        name: 'shift' (digits: moved by up to a fourteenth of the shorter side each way, rounded
            and at least one pixel; what comes in is black, the lower bound), 'flip-crop' (colour
            photographs: flipped left to right half the time, border reflected by 4 pixels and
            cropped at random), or 'none' (as it is). The first two are for images only.
        views: K.
        noise: standard deviation of the noise on each view; inputs are in [0, 1].
    """

    name: str
    views: int
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in AUGMENTATIONS:
            raise InputError(
                "unknown augmentation",
                got=f"'{self.name}'",
                expected=f"one of {', '.join(AUGMENTATIONS)}",
            )
        if self.views < 1:
            raise InputError("no views", got=self.views, expected="at least 1")
        if not 0 <= self.noise < float("inf"):
            raise InputError("bad noise", got=self.noise, expected="a finite number, at least 0")

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(n, *shape) -> (n * K, *shape): row i K + k is view k of example i."""
        seen = self._moved(x, generator)
        if not self.noise:
            return seen
        draws = torch.randn(seen.shape, generator=generator, device=seen.device, dtype=seen.dtype)
        return seen + self.noise * draws

    def _moved(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Before noise."""
        example = torch.arange(len(x), device=x.device).repeat_interleave(self.views)
        if self.name == "none":
            return x[example]
        height, width = _require_images(x)
        reach = _shift(min(height, width)) if self.name == "shift" else MARGIN
        moved = _whole(-reach, reach, (2, len(example), 1), generator)
        down = moved[0] + torch.arange(height, device=x.device)
        across = moved[1] + torch.arange(width, device=x.device)
        if self.name == "shift":
            return _looked_up(x, example, down, across) * _inside(down, across, height, width)
        flipped = _whole(0, 1, (len(example), 1), generator).bool()
        across = torch.where(flipped, across.flip(1), across)
        return _looked_up(x, example, _reflected(down, height), _reflected(across, width))


def _shift(side: int) -> int:
    """The reach of 'shift': it follows from the public shape alone."""
    return max(1, (2 * side + SHIFT) // (2 * SHIFT))


def _whole(low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Whole numbers from low to high, both included, on the generator's device."""
    device = generator.device
    return torch.randint(low, high + 1, shape, generator=generator, device=device)


def _looked_up(x: Tensor, example: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Pixel (down[r, i], across[r, j]) of row r's example; beyond the border, the nearest one."""
    _, channels, height, width = x.shape
    return x[
        example[:, None, None, None],
        torch.arange(channels, device=x.device)[:, None, None],
        down.clamp(0, height - 1)[:, None, :, None],
        across.clamp(0, width - 1)[:, None, None, :],
    ]


def _inside(down: Tensor, across: Tensor, height: int, width: int) -> Tensor:
    rows, columns = (down >= 0) & (down < height), (across >= 0) & (across < width)
    return rows[:, None, :, None] & columns[:, None, None, :]


def _reflected(places: Tensor, size: int) -> Tensor:
    """Places beyond the border, mirrored at the border pixel."""
    return (size - 1) - ((size - 1) - places.abs()).abs()


def _require_images(x: Tensor) -> tuple[int, int]:
    if x.dim() != 4 or min(x.shape[2:]) <= MARGIN:
        raise InputError(
            "views are made of images only",
            got=f"examples of shape {tuple(x.shape[1:])}",
            expected=f"(channels, height, width), more than {MARGIN} pixels each way",
            fix="use --augment none",
        )
    return x.shape[2], x.shape[3]
