"""A model's state as one vector, and back: what clients are sent and what they send changes of.

Parameters that learn, and floating-point buffers: the running statistics of a BatchNorm move with
the weights, as they do where a framework ships "all weights". Frozen parameters stay at home.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from privet.errors import InputError


def travelling(model: nn.Module) -> dict[str, Tensor]:
    """What of a model travels, by name, each tensor once."""
    found: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found |= {name: b for name, b in model.named_buffers() if b.is_floating_point()}
    return found


def flat(model: nn.Module) -> Tensor:
    """All of it as one vector in single precision; a copy."""
    parts = [tensor.detach().reshape(-1).float() for tensor in travelling(model).values()]
    if not parts:
        raise InputError("a model without weights that learn", fix="thaw some of its layers")
    return torch.cat(parts)


def load_flat(model: nn.Module, vector: Tensor) -> None:
    """Set what travels to the numbers of a vector; a variance below 0 becomes 0.

    Noise for privacy, or a server's long step, can take it there, and scores would be NaN.
    """
    with torch.no_grad():
        own = travelling(model)
        for name, (tensor, part) in zip(own, _parts(own, vector), strict=True):
            variance = name.rpartition(".")[2] == "running_var"
            tensor.copy_(part.clamp_min(0.0) if variance else part)


def named(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """The parts of a vector under the names and in the shapes of the model."""
    own = travelling(model)
    pairs = zip(own, _parts(own, vector), strict=True)
    return {name: part for name, (_, part) in pairs}


def _parts(own: Mapping[str, Tensor], vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    sizes = [tensor.numel() for tensor in own.values()]
    if vector.shape != (sum(sizes),):
        raise InputError(
            "a vector does not fit the model", got=tuple(vector.shape), expected=f"({sum(sizes)},)"
        )
    for tensor, part in zip(own.values(), torch.split(vector, sizes), strict=True):
        yield tensor, part.reshape(tensor.shape)
