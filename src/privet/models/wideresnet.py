"""Wide residual networks for private training.

Zagoruyko and Komodakis, "Wide residual networks" (2016), as De et al., "Unlocking high-accuracy
differentially private image classification through scale" (2022), train them: GroupNorm with 16
groups instead of BatchNorm, convolutions with standardised weights, and ReLU before each
normalisation. `wrn-D-K` has depth D = 6 n + 4 and widening factor K; De et al. use wrn-16-4 and
wrn-40-4 on CIFAR-10.

Deviations: inputs are centred by a public constant instead of the data's mean and deviation.
"""

from typing import Final

from torch import Tensor, nn

from privet.errors import InputError
from privet.models.registry import Centre, Shape, family, image_shape, model
from privet.models.standardised import ChannelAffine, WSConv2d

GROUPS: Final = 16


class Block(nn.Module):
    """Two 3x3 convolutions beside a way past them."""

    def __init__(self, before: int, after: int, stride: int, projected: bool) -> None:
        super().__init__()
        self.past = _unit(before, after, 1, stride) if projected else nn.Identity()
        self.through = nn.Sequential(
            *_unit(before, after, 3, stride),
            *_unit(after, after, 3, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        total: Tensor = self.past(x) + self.through(x)
        return total


@family("wrn-D-K", r"wrn-(\d+)-(\d+)")
def wide_resnet(shape: Shape, n_classes: int, depth: int, widening: int) -> nn.Module:
    """Three stages of (depth - 4) / 6 blocks, of 16, 32 and 64 times `widening` channels."""
    channels, _, _ = image_shape(shape)
    if depth < 10 or depth % 6 != 4 or widening < 1:
        raise InputError(
            "no such wide residual network",
            got=f"wrn-{depth}-{widening}",
            expected="wrn-D-K with D = 10, 16, 22, 28, ... and K at least 1",
        )
    blocks: list[nn.Module] = []
    before = 16
    for stage in range(3):
        after = 16 * widening * 2**stage
        for i in range((depth - 4) // 6):
            first = i == 0
            blocks.append(Block(before, after, 2 if first and stage > 0 else 1, projected=first))
            before = after
    return nn.Sequential(
        Centre(),
        *_convolution(channels, 16, 3, 1),
        *blocks,
        nn.ReLU(),
        nn.GroupNorm(GROUPS, before),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(before, n_classes),
    )


@model("wrn-16-4")
def wrn_16_4(shape: Shape, n_classes: int) -> nn.Module:
    """De et al.'s network for CIFAR-10 at small epsilon."""
    return wide_resnet(shape, n_classes, 16, 4)


def _unit(before: int, after: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        nn.GroupNorm(GROUPS, before),
        *_convolution(before, after, kernel, stride),
    )


def _convolution(before: int, after: int, kernel: int, stride: int) -> list[nn.Module]:
    layer = WSConv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
    return [layer, ChannelAffine(after)]
