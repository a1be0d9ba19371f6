"""Rules of convolutions, in one, two or three dimensions: output gradients times input patches."""

from torch import Tensor, nn
from torch.nn import functional as F

from privet.privacy.rules.forms import Dense, PerExample
from privet.privacy.rules.registry import rule
from privet.privacy.rules.windowed import Windowed

Straight = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: Straight, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """sum_t b_t (patch of a at t)^T, group by group."""
    return _forms(layer, b, a, b)


@rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed(layer: Transposed, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """The adjoint: input and output change places."""
    return _forms(layer, a, b, b)


def _forms(
    layer: Straight | Transposed, left: Tensor, seen: Tensor, b: Tensor
) -> dict[str, PerExample]:
    """The weight's first axis is that of `left`; the kernel slides over `seen`."""
    weight = Windowed(
        left=left,
        seen=_padded(layer, seen),
        shape=layer.weight.shape,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    forms: dict[str, PerExample] = {"weight": weight}
    if layer.bias is not None:
        forms["bias"] = Dense(b.flatten(2).sum(2))
    return forms


def _padded(layer: Straight | Transposed, values: Tensor) -> Tensor:
    padding = layer._reversed_padding_repeated_twice
    if not any(padding):
        return values
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(values, padding, mode)
