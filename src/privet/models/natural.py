"""What is known of natural images before any is seen: how their colours and their spectra go.

Field, "Relations between the statistics of natural images and the response properties of cortical
cells" (1987): the amplitude of natural images falls with frequency as 1 / f ("pink" noise). And
their colour channels are alike, so brightness and differences of colour tell more than red, green
and blue. Both are public knowledge: features scaled by pink noise instead of by the data's own
statistics need no budget.

| symbol | here                  | meaning                                                    |
|--------|-----------------------|------------------------------------------------------------|
| f      | `_pink`               | cycles a pixel                                             |
| Y U V  | `LumaChroma`          | brightness and two differences of colour (ITU-R BT.601)    |
| m, s   | `PinkStandardised`    | mean and deviation of a map over pink noise                |
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

IMAGES: Final = 256  # of noise; each map is averaged over their positions too
MEAN, DEVIATION = 0.47, 0.22  # of the pixels of photographs scaled to [0, 1]
SHARED: Final = 0.8  # of the variance of a pixel, by all colours together
FLOOR: Final = 1e-6  # of a deviation: a map that noise does not move stays as it is, scaled up
BT601: Final = (
    (0.299, 0.587, 0.114),
    (-0.147, -0.289, 0.436),
    (0.615, -0.515, -0.100),
)


class LumaChroma(nn.Module):
    """Red, green and blue to Y, U and V; images with another number of channels stay."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        matrix = torch.tensor(BT601) if channels == 3 else torch.eye(channels)
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """One product of the channels."""
        return torch.einsum("kc,nchw->nkhw", self.get_buffer("matrix"), x)


class PinkStandardised(nn.Module):
    """The maps of `features`, each less its mean and over its deviation for pink noise.

    The statistics are constants of the kind and the size of the images. They are kept with the
    weights, so that a release does not depend on how a machine draws its noise.
    """

    def __init__(self, features: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.features = features
        with torch.no_grad():
            maps = features(pink_images(IMAGES, shape))
        self.register_buffer("mean", maps.mean((0, 2, 3))[:, None, None])
        self.register_buffer("deviation", maps.std((0, 2, 3)).clamp_min(FLOOR)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """(F(x) - m) / s."""
        maps: Tensor = self.features(x)
        return (maps - self.get_buffer("mean")) / self.get_buffer("deviation")


def pink_images(n: int, shape: tuple[int, int, int]) -> Tensor:
    """Images of pink noise of a shape, always the same ones."""
    channels, height, width = shape
    generator = torch.Generator().manual_seed(0)
    common = _pink((n, 1, height, width), generator)
    own = _pink((n, channels, height, width), generator)
    mixed = math.sqrt(SHARED) * common + math.sqrt(1.0 - SHARED) * own
    return MEAN + DEVIATION * mixed


def _pink(shape: tuple[int, int, int, int], generator: torch.Generator) -> Tensor:
    """White noise with its spectrum divided by f, of variance one in the mean.

    On a torus of twice the size, of which a part is kept: images do not close at their borders.
    """
    n, channels, height, width = shape
    white = torch.randn(n, channels, 2 * height, 2 * width, generator=generator)
    rows, columns = (torch.fft.fftfreq(2 * side) for side in (height, width))
    f = (rows[:, None].square() + columns[None, :].square()).sqrt()
    f[0, 0] = 0.5 / max(height, width)  # the mean of an image varies like its slowest wave
    noise = torch.fft.ifft2(torch.fft.fft2(white) / f).real[..., :height, :width]
    scaled: Tensor = noise / noise.std()
    return scaled
