"""He et al.'s residual networks for CIFAR-10 (2016), with BatchNorm: fixed, behind a denoiser.

`resnet-cifar-N` has N = 6 n + 2 layers: one convolution, three stages of n blocks with 16, 32 and
64 channels, a linear layer on the means. Where a block halves the image, the way past it takes
every other pixel and fills channels up with zeros (option A: no parameters).

Names of the weights are those of Y. Idelbayev's implementation ("Proper ResNet Implementation for
CIFAR10/CIFAR100 in PyTorch", 2018), whose published weights fit. Inputs are taken as they are:
whatever normalisation the weights expect stands before the network (`models.fixed_classifier`).
"""

from typing import Final, final

from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models.registry import Shape, family, image_shape

WIDTHS: Final = (16, 32, 64)
DEPTHS: Final = (20, 32, 44, 56)


@final
class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a way past them that has no parameters."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.stride, self.more = stride, (after - before) // 2

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        past = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, self.more, self.more))
        through = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(through + past)


@final
class CifarResNet(nn.Module):
    """Three stages of n blocks."""

    def __init__(self, channels: int, n_classes: int, n: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], n)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], n)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], n)
        self.linear = nn.Linear(WIDTHS[2], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.layer3(self.layer2(self.layer1(h)))
        scores: Tensor = self.linear(h.mean((-2, -1)))
        return scores


@family("resnet-cifar-N", r"resnet-cifar-(\d+)")
def cifar_resnet(shape: Shape, n_classes: int, depth: int) -> nn.Module:
    """He et al.'s ResNet of N layers for CIFAR-10, with BatchNorm: not for private training."""
    channels, _, _ = image_shape(shape)
    if depth not in DEPTHS:
        raise InputError(
            "no such residual network",
            got=f"resnet-cifar-{depth}",
            expected=f"N = {', '.join(map(str, DEPTHS))}",
        )
    return CifarResNet(channels, n_classes, (depth - 2) // 6)


def _stage(before: int, after: int, n: int) -> nn.Sequential:
    first = ResidualBlock(before, after, 1 if before == after else 2)
    return nn.Sequential(first, *(ResidualBlock(after, after, 1) for _ in range(n - 1)))
