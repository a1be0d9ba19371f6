"""Rules of convolutions, in one, two or three dimensions: output gradients times input patches."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn
from torch.nn import functional as F

from privet.privacy.rules.forms import Dense, OuterSum, PerExample
from privet.privacy.rules.registry import rule

Straight = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: Straight, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """sum_t b_t (patch of a at t)^T, group by group."""
    return _forms(layer, b, _patches(layer, a, b.shape[2:]), b)


@rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed(layer: Transposed, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """The adjoint: input and output change places."""
    return _forms(layer, a, _patches(layer, b, a.shape[2:]), b)


def _patches(layer: Straight | Transposed, values: Tensor, grid: Sequence[int]) -> Tensor:
    """(n, channels * kernel, positions): what the kernel sees at each position of the grid.

    Windows are views; the copy comes last and at once (`F.unfold` goes example by example).
    """
    n, channels = values.shape[:2]
    padding = layer._reversed_padding_repeated_twice
    if any(padding):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        values = F.pad(values, padding, mode)
    for axis, count in enumerate(grid):
        kernel, dilation = layer.kernel_size[axis], layer.dilation[axis]
        windows = values.unfold(2 + axis, dilation * (kernel - 1) + 1, layer.stride[axis])
        # A padded output may reach a patch beyond.
        values = windows[..., ::dilation].narrow(2 + axis, 0, count)
    axes = len(grid)
    order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
    return values.permute(order).reshape(n, channels * prod(layer.kernel_size), prod(grid))


def _forms(
    layer: Straight | Transposed, left: Tensor, patches: Tensor, b: Tensor
) -> dict[str, PerExample]:
    """Products over positions in each group; the weight's first axis is that of `left`."""
    n, groups, positions = len(left), layer.groups, patches.shape[2]
    one = left.reshape(n, groups, -1, positions).transpose(2, 3)
    other = patches.reshape(n, groups, -1, positions).transpose(2, 3)
    forms: dict[str, PerExample] = {"weight": OuterSum(one, other, layer.weight.shape)}
    if layer.bias is not None:
        forms["bias"] = Dense(b.flatten(2).sum(2))
    return forms
