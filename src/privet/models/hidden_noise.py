"""A layer of noise inside a network: drawn in training, absent in evaluation.

PixelDP and SecureSGD train through noise behind the first linear map, and predict with noise there.
In training this layer draws it, for each example by itself. In evaluation it is the identity, and a
release holds nothing of it: `privet certify --hidden-scale` adds the noise of a prediction itself,
of whatever scale is certified. So a release is an ordinary network that other tools can read too.

The draws say nothing about any record: private training is as private with the layer as without.
Each entry of a batch has a draw of its own. One draw for all rows would be a constant offset that
the next layers learn to subtract; and a private run refuses it (`privacy.separation`).

Weights keep their names: a network with the layer and one without read each other's files.
"""

from collections.abc import Iterator
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.errors import InputError

KINDS: Final = ("gaussian", "laplace")
NAME: Final = "noise"  # of the layer in its network
LINEAR_MAPS: Final = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@final
class HiddenNoise(nn.Module):
    """Adds fresh noise to every entry of a batch, in training alone.

    Attributes:
        kind: 'gaussian', whose scales are standard deviations, or 'laplace'.
        scale: of each entry of an example, or one for all; no part of what is saved.
    """

    scale: Tensor

    def __init__(self, kind: str, scale: Tensor) -> None:
        super().__init__()
        if kind not in KINDS:
            raise InputError("unknown noise", got=kind, expected=" or ".join(KINDS))
        if not bool((torch.isfinite(scale) & (scale > 0)).all()):
            raise InputError("bad scale of hidden noise", expected="positive, finite numbers")
        self.kind = kind
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x, in training with noise."""
        if not self.training:
            return x
        # By shape and not `_like`: the draws must not depend on how the rows lie in memory.
        if self.kind == "gaussian":
            draws = torch.randn(x.shape, dtype=x.dtype, device=x.device)
        else:
            uniform = torch.rand((2, *x.shape), dtype=x.dtype, device=x.device)
            draws = torch.log1p(-uniform[0]) - torch.log1p(-uniform[1])
        return x + self.scale.to(x.dtype) * draws

    def extra_repr(self) -> str:
        """Kind and least scale."""
        return f"{self.kind}, at least {float(self.scale.min()):.4g}"


def with_noise(network: nn.Module, noise: HiddenNoise, *, layer: int = 1) -> nn.Sequential:
    """The same layers with noise behind the first linear map, or on the input for layer 0."""
    if layer not in (0, 1):
        raise InputError("bad place of the noise", got=layer, expected="0 (input) or 1")
    at = layer and _first_linear(network) + 1
    named = list(network.named_children())
    parts = nn.Sequential()
    for name, part in (*named[:at], (NAME, noise), *named[at:]):
        parts.add_module(name, part)
    return parts.train(network.training)


def first_map(network: nn.Module) -> nn.Sequential:
    """The network up to and with its first linear map; the very same layers."""
    return nn.Sequential(*list(network.children())[: _first_linear(network) + 1])


def after_first_map(network: nn.Module) -> nn.Sequential:
    """What follows the first linear map; a layer of noise, too, where there is one."""
    return nn.Sequential(*list(network.children())[_first_linear(network) + 1 :])


def noise_of(network: nn.Module) -> HiddenNoise:
    """The layer of noise that `with_noise` put in."""
    noise = network.get_submodule(NAME)
    assert isinstance(noise, HiddenNoise)
    return noise


def _first_linear(network: nn.Module) -> int:
    """The place of the first linear map; nothing in front of it may have weights."""
    for place, part in _in_sequence(network):
        if type(part) in LINEAR_MAPS:
            return place
        if any(True for _ in part.parameters()):
            break
    raise InputError(
        "no first linear map to put noise behind",
        got=type(network).__name__,
        expected="a network that begins with a linear layer or a convolution",
        fix="--model published-gn, cnn, cnn-tiny or mlp",
    )


def _in_sequence(network: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    if type(network) is nn.Sequential:
        yield from enumerate(network.children())
