"""Networks for signals of sensors: HAR-Wild of FLSys, and those that it is compared with.

| spec          | here                     | meaning                                               |
|---------------|--------------------------|-------------------------------------------------------|
| [3, 100]      | (C, T)                   | axes by samples; (1, C, T) will do                    |
| branch 1      | `deep`                   | conv 5, conv 10, each with ReLU; mean over time       |
| branch 2      | `shallow`                | conv 5, ReLU; mean over time                          |
| 32, 64, 128   | N                        | channels of every convolution                         |
| dense         | 128, then the classes    | after dropout of 0.4 on both branches' means          |
| BN            | `-bn`                    | BatchNorm after each convolution, before its ReLU     |

FLSys does not give kernels and dense width; these meet its 60,613 trainable weights (N = 64, five
classes, with BatchNorm). Without BatchNorm it is 60,229. Convolutions do not pad. First weights are
He et al.'s (2015), which plain SGD, the usual optimiser of clients, needs here.

BatchNorm mixes the records of a batch, so `-bn` is neither for private training nor for federated;
it is here for the comparison without privacy. The bidirectional LSTM was grid-searched by FLSys's
authors, who do not say what came out: 64 units each way here. Ignatov's CNN: 196 filters of 16, a
maximum over 4, 1,024 units; beside the filters it is given statistics of the window, or not.
"""

from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models.registry import Centre, Shape, family, model

KERNELS: Final = (5, 10)
SHORTEST: Final = sum(KERNELS) - 1  # samples
WIDTHS: Final = (32, 64, 128)
DENSE: Final = 128
UNITS: Final = 64  # of the LSTM, each way
FILTERS: Final = (196, 16, 4)  # of Ignatov's CNN: filters, their length, samples of a maximum
BINS: Final = 10
TINY: Final = 1e-12  # so that a still signal's deviation has a gradient


@final
class AsSignal(nn.Module):
    """From [0, 1] to [-1, 1], and from (1, C, T) to (C, T)."""

    def forward(self, x: Tensor) -> Tensor:
        """2x - 1, (n, C, T)."""
        return 2.0 * (x.flatten(1, 2) if x.dim() == 4 else x) - 1.0


@final
class Mean(nn.Module):
    """Over time: (n, C, T) -> (n, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Global average pooling."""
        return x.mean(-1)


@final
class Beside(nn.Module):
    """What several parts make of the same input, side by side."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def forward(self, x: Tensor) -> Tensor:
        """(n, sum of the parts' features)."""
        return torch.cat([part(x) for part in self.parts.values()], 1)


@final
class LastOfBoth(nn.Module):
    """A bidirectional LSTM over time: the last state of each direction."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, units, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, T) -> (n, 2 units)."""
        states, _ = self.lstm(x.transpose(1, 2))
        forth, back = states.chunk(2, 2)
        return torch.cat([forth[:, -1], back[:, 0]], 1)


@final
class Statistics(nn.Module):
    """Of each channel: mean, deviation, mean size, and a histogram over [-1, 1] of `BINS` bins."""

    edges: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.linspace(-1.0, 1.0, BINS + 1)[1:-1], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, C, T) -> (n, 13 C)."""
        mean = x.mean(-1)
        deviation = (x - mean[..., None]).square().mean(-1).add(TINY).sqrt()
        below = (x[..., None] < self.edges).to(x.dtype).mean(-2)  # cumulative
        shares = torch.diff(F.pad(below, (1, 0)), dim=-1)
        last = 1.0 - below[..., -1:]
        histogram = torch.cat([shares, last], -1).flatten(1)
        return torch.cat([mean, deviation, x.abs().mean(-1), histogram], 1)


@family("har-wild-N", r"har-wild-(\d+)(-bn|)")
def har_wild(shape: Shape, n_classes: int, width: int, bn: str = "") -> nn.Module:
    """FLSys's network for signals, N = 32, 64, 128 channels; N-bn: BatchNorm, so not private."""
    if width not in WIDTHS:
        raise InputError(
            "no such HAR-Wild network",
            got=f"har-wild-{width}",
            expected=f"N = {', '.join(map(str, WIDTHS))}",
        )
    channels = signal_shape(shape)[0]
    first, second = KERNELS
    deep = [*_conv(channels, width, first, bn), *_conv(width, width, second, bn), Mean()]
    shallow = [*_conv(channels, width, first, bn), Mean()]
    network = nn.Sequential(
        AsSignal(),
        Beside(deep=nn.Sequential(*deep), shallow=nn.Sequential(*shallow)),
        nn.Dropout(0.4),
        nn.Linear(2 * width, DENSE),
        nn.ReLU(),
        nn.Linear(DENSE, n_classes),
    )
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


@model("bilstm")
def bilstm(shape: Shape, n_classes: int) -> nn.Module:
    """A bidirectional LSTM over a signal, 64 units each way."""
    channels, _ = signal_shape(shape)
    return nn.Sequential(
        AsSignal(), LastOfBoth(channels, UNITS), nn.Dropout(0.2), nn.Linear(2 * UNITS, n_classes)
    )


@model("cnn-ig")
def cnn_ig(shape: Shape, n_classes: int) -> nn.Module:
    """Ignatov's CNN (2018) for signals, with statistics of the window beside its filters."""
    channels, length = signal_shape(shape)
    statistics = channels * (3 + BINS)
    return _ignatov(
        Beside(filters=_filters(channels), statistics=Statistics()),
        _filtered(length) + statistics,
        n_classes,
    )


@model("cnn-ig-featureless")
def cnn_ig_featureless(shape: Shape, n_classes: int) -> nn.Module:
    """Ignatov's CNN without the statistics."""
    channels, length = signal_shape(shape)
    return _ignatov(_filters(channels), _filtered(length), n_classes)


@model("sentiment-head")
def sentiment_head(shape: Shape, n_classes: int) -> nn.Module:
    """For features of a frozen encoder: a layer of 128 ReLU units (98,690 weights at 768, two)."""
    if len(shape) != 1:
        raise InputError(
            "a head needs features", got=f"examples of shape {shape}", expected="(features,)"
        )
    return nn.Sequential(
        Centre(), nn.Linear(shape[0], DENSE), nn.ReLU(), nn.Linear(DENSE, n_classes)
    )


def signal_shape(shape: Shape) -> tuple[int, int]:
    """Channels and samples, or a refusal of what is no signal."""
    signal = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    if len(signal) != 2 or signal[1] < SHORTEST:
        raise InputError(
            "a network for signals needs signals",
            got=f"examples of shape {shape}",
            expected=f"(channels, samples), at least {SHORTEST} samples",
            fix="use --model mlp or --model linear",
        )
    return signal[0], signal[1]


def _conv(before: int, after: int, kernel: int, bn: str) -> list[nn.Module]:
    norm = [nn.BatchNorm1d(after)] if bn else []
    return [nn.Conv1d(before, after, kernel), *norm, nn.ReLU()]


def _filters(channels: int) -> nn.Module:
    filters, length, together = FILTERS
    as_long = nn.ZeroPad1d(((length - 1) // 2, length // 2))
    convolved = [as_long, nn.Conv1d(channels, filters, length), nn.ReLU()]
    return nn.Sequential(*convolved, nn.MaxPool1d(together), nn.Flatten())


def _filtered(length: int) -> int:
    filters, _, together = FILTERS
    return filters * (length // together)


def _ignatov(front: nn.Module, features: int, n_classes: int) -> nn.Module:
    head = [nn.Linear(features, 1024), nn.ReLU(), nn.Dropout(0.05), nn.Linear(1024, n_classes)]
    return nn.Sequential(AsSignal(), front, *head)
