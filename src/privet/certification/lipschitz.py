"""How far a layer can move when the input moves: the sensitivity of noise inside a network.

| part                                     | l2                      | l1                   |
|------------------------------------------|-------------------------|----------------------|
| linear maps, as long as they follow      | `operator_norm`         | `l1_norm`            |
| activations, entry by entry              | largest slope           | largest slope        |
| maximum over windows                     | sqrt(windows per entry) | windows per entry    |

Guarantee: |path(x) - path(x')| <= bound * |x - x'| in the norm asked for, for all real x and x'.

Proof. Bounds of maps that follow one another multiply. An activation works on each entry alone and
moves it by at most its largest slope. A maximum over a window moves by at most the largest move
within the window, so the moves of all windows are at most, squared and summed, the squares of all
entries' moves, each counted as often as windows read it; likewise without squares in l1. With
kernel k, dilation t and stride s, an entry is read along an axis by the windows at o with
s o + t j = place, j < k: at most ceil(k / (s / gcd(s, t))). Products are rounded up.

A module that is not listed is refused: normalisation over a layer has no such constant, and a skip
is not a sequence.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

from privet.certification.operator_norm import l1_norm, operator_norm, parts_of
from privet.certification.singular_values import UNIT, up
from privet.errors import InputError
from privet.models.activations import TemperedSigmoid

SLOPES: Final[dict[type[nn.Module], Callable[[Any], float]]] = {
    nn.Dropout: lambda part: 1.0,  # of a network in evaluation mode
    nn.ELU: lambda part: max(1.0, abs(part.alpha)),
    nn.Hardtanh: lambda part: 1.0,
    nn.LeakyReLU: lambda part: max(1.0, abs(part.negative_slope)),
    nn.ReLU: lambda part: 1.0,
    nn.ReLU6: lambda part: 1.0,
    nn.Sigmoid: lambda part: 0.25,
    nn.Tanh: lambda part: 1.0,
    TemperedSigmoid: lambda part: up(abs(part.scale * part.temperature) / 4.0),
}
MAXIMA: Final[dict[type[nn.Module], int]] = {
    nn.MaxPool1d: 1,
    nn.MaxPool2d: 2,
    nn.MaxPool3d: 3,
}  # axes of a window


def lipschitz(path: nn.Module, shape: tuple[int, ...], norm: str) -> float:
    """A bound of how much further outputs move than inputs of `shape` do; both in `norm`.

    Args:
        path: a Sequential of known layers, in evaluation mode.
        shape: of one input.
        norm: l1 or l2.
    """
    if norm not in ("l1", "l2"):
        raise InputError("unknown norm", got=norm, expected="l1 or l2")
    bound, factors, linear = 1.0, 0, list[nn.Module]()
    start = shape
    for _, part in parts_of(path):
        factor = _factor(part, shape, norm)
        if factor is None:  # linear, or refused by name when its run ends
            linear.append(part)
        else:
            bound *= _of_linear(linear, start, norm) * factor
            factors += 2
        with torch.no_grad():
            shape = tuple(part(torch.zeros(1, *shape, **_kind(path))).shape[1:])
        if factor is not None:
            start, linear = shape, []
    return up(bound * _of_linear(linear, start, norm) * (1.0 + UNIT) ** (2 * factors + 2))


def _of_linear(parts: list[nn.Module], shape: tuple[int, ...], norm: str) -> float:
    if not parts:
        return 1.0
    run = nn.Sequential(*parts)
    return operator_norm(run, shape).bound if norm == "l2" else l1_norm(run, shape)


def _factor(part: nn.Module, shape: tuple[int, ...], norm: str) -> float | None:
    """Of a part that is not linear; None for all others."""
    if type(part) in SLOPES:
        return SLOPES[type(part)](part)
    if type(part) in MAXIMA:
        axes = MAXIMA[type(part)]
        if len(shape) != axes + 1:  # PyTorch would take the batch for channels
            raise InputError(
                "a maximum over something else than channels of a grid",
                got=f"{type(part).__name__} on inputs of shape {shape}",
                expected=f"channels and {axes} axes",
            )
        windows = _windows(part, axes)
        return float(windows) if norm == "l1" else up(math.sqrt(windows))
    return None


def _windows(part: Any, axes: int) -> int:
    """In how many windows one entry may be."""
    if part.return_indices:
        raise InputError("a maximum that also gives its places", got=type(part).__name__)
    extent, stride, dilation = (
        tuple(value) if isinstance(value, tuple | list) else (value,) * axes
        for value in (part.kernel_size, part.stride, part.dilation)
    )
    return math.prod(
        -(-k // (s // math.gcd(s, t))) for k, s, t in zip(extent, stride, dilation, strict=True)
    )


def _kind(path: nn.Module) -> dict[str, Any]:
    tensor = next(iter([*path.parameters(), *path.buffers()]), torch.zeros(()))
    return {"dtype": tensor.dtype, "device": tensor.device}
