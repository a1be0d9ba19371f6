"""A network in a form that ExecuTorch can train on a phone, with the same parameters.

ExecuTorch's kernels have a backward of 2-d convolutions alone, written for correctness; several
others are slow for every number (slices of the last axis, `relu`). So each layer is written out in
few operators that its kernels do well, on the very parameters of the layer, by the same names:

| layer            | here                                                                     |
|------------------|--------------------------------------------------------------------------|
| AsSignal         | 2x - 1, and time before records: (n, C, T) -> (T, n, C)                  |
| Conv1d           | a product for each place of the kernel, of a slice of the first axis     |
| ReLU             | a choice between x and 0                                                 |
| Mean             | over the first axis                                                      |
| Linear           | a product and a sum                                                      |
| Dropout          | times what the phone has drawn: an input of the graph                    |

A layer that is not in the table is refused. BatchNorm is: it mixes the records of a batch.
"""

import copy
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.registry import Centre
from privet.models.signals import AsSignal, Beside, Mean

TRAINABLE: Final = "har-wild-32, har-wild-64, har-wild-128, sentiment-head, mlp, linear"


@final
class Learner(nn.Module):
    """The rewritten network and its loss: what one step of a phone computes.

    Args:
        network: as it was built; its parameters are shared, not copied.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        require_trainable(network)
        self.network = _rewritten(network)
        self._dropouts = tuple(m for m in self.network.modules() if isinstance(m, Kept))

    @property
    def rates(self) -> tuple[float, ...]:
        """Of the dropouts, in the order of their inputs."""
        return tuple(dropout.rate for dropout in self._dropouts)

    def kept_shapes(self, example: Tensor) -> tuple[tuple[int, ...], ...]:
        """What each dropout is given for these examples."""
        seen: list[tuple[int, ...]] = []
        hooks = [
            dropout.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
            for dropout in self._dropouts
        ]
        with torch.no_grad():
            self.network(example)
        for hook in hooks:
            hook.remove()
        return tuple(seen)

    def forward(self, x: Tensor, y: Tensor, share: Tensor, *kept: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the records' cross entropies, each times its share, and the scores.

        With shares of 1/n it is the mean over n records; a record with share 0 is not there.
        """
        for dropout, drawn in zip(self._dropouts, kept, strict=True):
            dropout.drawn = drawn
        scores = self.network(x)
        for dropout in self._dropouts:
            dropout.drawn = None
        losses = nn.functional.cross_entropy(scores, y, reduction="none")
        return (losses * share).sum(), scores.detach()


@final
class Kept(nn.Module):
    """Dropout by factors that were drawn elsewhere: 0, or 1 / (1 - rate); without them nothing."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.drawn: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Each number times its factor."""
        return x if self.drawn is None else x * self.drawn


@final
class TimeFirst(nn.Module):
    """`AsSignal`, with time as the first axis: a slice of it is one piece of memory."""

    def forward(self, x: Tensor) -> Tensor:
        """2x - 1, (T, n, C)."""
        signal = x.flatten(1, 2) if x.dim() == 4 else x
        return (2.0 * signal - 1.0).permute(2, 0, 1)


@final
class ByPlaces(nn.Module):
    """A convolution over the first axis, as one product for each place of its kernel."""

    def __init__(self, layer: nn.Conv1d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """(T, n, C) -> (T - K + 1, n, N)."""
        time, n, channels = x.shape
        filters, _, places = self.weight.shape
        lasting = time - places + 1
        by_place = self.weight.permute(2, 1, 0)
        total = None
        for place in range(places):
            rows = x[place : place + lasting].reshape(lasting * n, channels)
            product = rows @ by_place[place]
            total = product if total is None else total + product
        assert total is not None
        total = total if self.bias is None else total + self.bias
        return total.reshape(lasting, n, filters)


@final
class MeanOfFirst(nn.Module):
    """`Mean` over time, where time comes first."""

    def forward(self, x: Tensor) -> Tensor:
        """(T, n, C) -> (n, C)."""
        return x.mean(0)


@final
class Chosen(nn.Module):
    """ReLU, and its slope of 0 at 0."""

    def forward(self, x: Tensor) -> Tensor:
        """The larger of x and 0."""
        return torch.where(x <= 0, 0.0, x)


@final
class Product(nn.Module):
    """A dense layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """W x + b."""
        found = x @ self.weight.t()
        return found if self.bias is None else found + self.bias


AS_THEY_ARE: Final = (Centre, nn.Flatten, nn.Tanh)


def require_trainable(network: nn.Module) -> None:
    """Refuse, naming the layer, what a phone cannot train."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv1d) and not _is_plain(layer):
            raise _refused(f"{name}: a convolution with padding, strides, dilation or groups")
        known = (*AS_THEY_ARE, AsSignal, Beside, Mean, nn.Conv1d, nn.Dropout, nn.Linear, nn.ReLU)
        containers = (nn.Sequential, nn.ModuleDict)
        if isinstance(layer, nn.BatchNorm1d):
            raise _refused(f"{name}: BatchNorm, which mixes the records of a batch")
        if not isinstance(layer, (*known, *containers)):
            raise _refused(f"{name or 'the network'}: {type(layer).__name__}")
    if not all(p.requires_grad for p in network.parameters()):
        raise _refused("frozen parameters")


def _refused(what: str) -> InputError:
    return InputError(
        "a network that cannot be trained on a phone",
        got=what,
        expected=f"one of {TRAINABLE}",
        fix="train one of these, or hand over what only predicts: --format onnx",
    )


def _is_plain(layer: nn.Conv1d) -> bool:
    return (layer.stride, layer.padding, layer.dilation, layer.groups) == ((1,), (0,), (1,), 1)


def _rewritten(layer: nn.Module) -> nn.Module:
    """The layer with its children rewritten, by the same names; parameters are the same objects."""
    match layer:
        case AsSignal():
            return TimeFirst()
        case nn.Conv1d():
            return ByPlaces(layer)
        case Mean():
            return MeanOfFirst()
        case nn.ReLU():
            return Chosen()
        case nn.Linear():
            return Product(layer)
        case nn.Dropout():
            return Kept(layer.p)
        case Beside() | nn.Sequential() | nn.ModuleDict():
            twin = copy.copy(layer)
            children = {name: _rewritten(child) for name, child in layer.named_children()}
            twin._modules = dict(children)
            return twin
    return layer
