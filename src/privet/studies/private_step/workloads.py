"""The models of the benchmark, and made-up public inputs of their shapes."""

import difflib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.data.dataset import Bounds
from privet.engine.examples import Examples
from privet.engine.summing import MOST_ROWS
from privet.errors import InputError
from privet.models import create
from privet.privacy.precision import FULL, find_precision

CLASSES: Final = 10
VOCABULARY: Final = 1000
RECORDS: Final = 60_000  # of the made-up data set that batches are drawn from; as many as MNIST's
BYTE: Final = Bounds(low=(0.0,), high=(255.0,))


@final
@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model by name; `tokens` is the size of its vocabulary, 0 where it takes images."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int = 0

    def model(self, device: torch.device) -> nn.Module:
        """The same first weights each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().to(device).train()


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """What every contestant has to do: one step on `batch` examples (expected, if it samples).

    `rows_at_once` is the size of the pieces that a large batch may be cut into; 0 for the engine's.
    `dtype` is that of weights and inputs; `precision` is how coarsely the steps compute.
    `compiling` says whether Privet may compile; plain SGD may, on CUDA.
    """

    workload: Workload
    batch: int
    device: torch.device
    records: int = RECORDS
    clip_norm: float = 1.0
    noise_multiplier: float = 1.0
    rows_at_once: int = 0
    dtype: torch.dtype = torch.float32
    precision: str = FULL.name
    compiling: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.records:
            raise InputError(
                "bad batch", got=self.batch, expected=f"a whole number, 1 to {self.records}"
            )
        if not self.rows_at_once:
            rows = MOST_ROWS.get(self.device.type, MOST_ROWS["cpu"])
            object.__setattr__(self, "rows_at_once", rows)

    def passes(self) -> AbstractContextManager[object]:
        """For the forward pass of those who have no precision of their own."""
        return find_precision(self.precision, self.device).passes(self.device)

    def model(self) -> nn.Module:
        """A model of one's own."""
        return self.workload.model(self.device).to(self.dtype)

    def examples(self) -> Examples:
        """The data set as the engine holds it: images as bytes, scaled when they are used."""
        return _held(self.workload, self.records, self.records, self.device, self.dtype)

    def first(self, n: int) -> tuple[Tensor, Tensor]:
        """The first `n` examples (or all there are), ready for the model."""
        few = _held(self.workload, self.records, n, self.device, self.dtype)
        rows = few.rows(torch.arange(len(few)), torch.Generator(self.device))
        return rows.x, rows.y


@lru_cache(maxsize=2)
def _held(
    workload: Workload, records: int, n: int, device: torch.device, dtype: torch.dtype
) -> Examples:
    """The first `n` of so many records."""
    x, y = (part[:n] for part in _made_up(workload, records))
    if workload.tokens:
        return Examples(x, y, None, device)
    if dtype == torch.float64:  # the engine scales to single precision only
        return Examples(x.double() / 255, y, None, device)
    return Examples(x, y, BYTE, device)


@lru_cache(maxsize=1)
def _made_up(workload: Workload, n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    kind = torch.int64 if workload.tokens else torch.uint8
    size = (n, *workload.shape)
    x = torch.randint(0, workload.tokens or 256, size, generator=generator, dtype=kind)
    return x, torch.randint(0, CLASSES, (n,), generator=generator)


class Transformer(nn.Module):
    """Tokens and learned positions, encoder layers, the mean, one score a class."""

    def __init__(self, length: int, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length) -> (n, classes)."""
        # Written out: Opacus needs every layer to see one row for each example, in memory.
        places = torch.arange(x.shape[1], device=x.device).repeat(len(x), 1)
        scores: Tensor = self.head(self.layers(self.token(x) + self.position(places)).mean(1))
        return scores


class Lstm(nn.Module):
    """Tokens, one LSTM layer, its last state, one score a class."""

    def __init__(self, *, before: int = 32, width: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, before)
        self.lstm = nn.LSTM(before, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length) -> (n, classes)."""
        states, _ = self.lstm(self.token(x))
        scores: Tensor = self.head(states[:, -1])
        return scores


def by_name(name: str, shape: tuple[int, ...]) -> Workload:
    """A network that `privet train` knows."""
    return Workload(name=name, build=lambda: create(name, shape, CLASSES), shape=shape)


def cnn_large(channels: int = 32) -> Workload:
    """Two convolutions and a wide layer: most parameters sit in one matrix."""

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * channels * 49, 8 * channels),
            nn.ReLU(),
            nn.Linear(8 * channels, CLASSES),
        )

    return Workload(name="cnn-large", build=build, shape=(1, 28, 28))


def transformer(length: int = 32) -> Workload:
    """A small encoder."""
    return Workload(
        name="transformer", build=lambda: Transformer(length), shape=(length,), tokens=VOCABULARY
    )


def lstm(length: int = 32) -> Workload:
    """A small recurrent network."""
    return Workload(name="lstm", build=Lstm, shape=(length,), tokens=VOCABULARY)


@cache
def workloads() -> dict[str, Workload]:
    """All of them, by name."""
    listed = [
        by_name("cnn", (1, 28, 28)),
        cnn_large(),
        by_name("wrn-16-4", (3, 32, 32)),
        transformer(),
        lstm(),
    ]
    return {workload.name: workload for workload in listed}


def find_workload(name: str) -> Workload:
    """By name, or a refusal that names the nearest."""
    known = workloads()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            "unknown model",
            got=f"'{name}'",
            expected=f"one of {', '.join(known)}",
            fix=f"did you mean '{near[0]}'?" if near else "",
        )
    return known[name]
