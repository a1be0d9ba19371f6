"""What a member of the IGAMT family releases: all that is needed to make records, and no more.

    start ~ p(start), or at random from its ranges     (`StartModel`, or `uniform_start`)
    z     = G(noise), or standard normal               (`LatentGenerator`, or none)
    rows  : the decoder, or the imitator, row by row   (`DecoderBody`, `LastLayer`, `unrolled`)

A `Form` says which of these there are. It is a name, such as

    transformer-64-1-8+aligned+generator+masks+mixed+spread+start+time

coder, width d, layers, width k of the latents; then what is there:

| flag      | with it                                            | without it, as published        |
|-----------|----------------------------------------------------|---------------------------------|
| time      | rows have a time embedding                         | (an ablation)                   |
| mixed     | and those of categorical start columns             | (an ablation)                   |
| generator | latents are made by G                              | they are standard normal        |
| near      | G begins as its noise, and adds to it              | G ends in a tanh                |
| batchnorm | G normalises over the batch                        | row by row (not as published)   |
| masks     | rows are read with their masks                     | values alone, 0 where missing   |
| aligned   | a row sees latents up to its own, and no padding   | all latents                     |
| spread    | values are drawn around what is said of them       | values are what is said         |
| start     | what stays begin with is learned                   | drawn at random from its ranges |
| levels    | cut points say which bin a drawn value falls into  | the bins' own edges             |
"""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.data.records.features import Codes
from privet.data.records.schema import Schema
from privet.errors import InputError
from privet.models.latent_generator import LatentGenerator
from privet.models.record_coders import (
    CODERS,
    HEAD_WIDTH,
    DecoderBody,
    LastLayer,
    Made,
    Shape,
    unrolled,
)
from privet.models.record_levels import Levels
from privet.models.record_rows import RecordRows, RowSizes
from privet.models.start_model import StartModel, uniform_start
from privet.privacy.rules.forms import Dense, PerExample
from privet.privacy.rules.registry import rule

FORM: Final = "CODER-WIDTH-LAYERS-LATENT, as transformer-64-1-8"
FLAGS: Final = (
    "aligned",
    "batchnorm",
    "generator",
    "levels",
    "masks",
    "mixed",
    "near",
    "spread",
    "start",
    "time",
)
FIRST_SPREAD: Final = 0.1
NARROWEST: Final = 0.01  # of values around what is said
SPREAD_GAIN: Final = 5.0  # how much faster than a weight its logarithm learns


@final
@dataclass(frozen=True, kw_only=True)
class Form:
    """How a maker is built; see the module's words."""

    coder: str
    width: int
    layers: int
    latent: int
    flags: frozenset[str] = frozenset()

    @classmethod
    def read(cls, name: str) -> "Form":
        """From a name; what is none is bad input."""
        found = re.fullmatch(r"([a-z]+)-(\d{1,4})-(\d{1,2})-(\d{1,4})((?:\+[a-z]+)*)", name)
        flags = frozenset(found[5].split("+")[1:]) if found else frozenset()
        good = found and found[1] in CODERS and flags <= set(FLAGS)
        if not found or not good or int(found[2]) % HEAD_WIDTH or not _positive(found):
            raise InputError(
                "unknown generator",
                got=f"'{name}'",
                expected=f"{FORM}: {' or '.join(CODERS)}, the width in multiples of {HEAD_WIDTH}",
            )
        return cls(
            coder=found[1],
            width=int(found[2]),
            layers=int(found[3]),
            latent=int(found[4]),
            flags=flags,
        )

    @property
    def name(self) -> str:
        """By which `read` knows it again."""
        size = f"{self.coder}-{self.width}-{self.layers}-{self.latent}"
        return "+".join([size, *sorted(self.flags)])

    def with_flags(self, flags: Collection[str]) -> "Form":
        """The same size."""
        return Form(
            coder=self.coder,
            width=self.width,
            layers=self.layers,
            latent=self.latent,
            flags=frozenset(flags),
        )

    def shape(self, schema: Schema) -> Shape:
        """Of its networks, for a schema."""
        return Shape(
            sizes=RowSizes.of(schema, with_masks="masks" in self.flags),
            coder=self.coder,
            width=self.width,
            layers=self.layers,
            latent=self.latent,
            time="time" in self.flags,
            mixed="mixed" in self.flags,
            aligned="aligned" in self.flags,
        )

    def generator(self, shape: Shape) -> LatentGenerator:
        """G."""
        return LatentGenerator(
            self.latent,
            steps=shape.latent_steps,
            near_noise="near" in self.flags,
            by_batch="batchnorm" in self.flags,
        )


def _positive(found: re.Match[str]) -> bool:
    return all(int(found[place]) > 0 for place in (2, 3, 4))


@final
class Spread(nn.Module):
    """Deviations s of values around what is said of them: of each column, first row and others.

    The first row is unlike the others: its gap is the time since the start, often none at all. They
    are learned by the likelihood of a normal law, the sum of r / (2 s^2) + n log s, where r adds up
    squared errors of a stay and n counts its values.
    """

    def __init__(self, features: int, *, gain: float = SPREAD_GAIN) -> None:
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(torch.full((2, features), math.log(FIRST_SPREAD) / gain))

    def forward(self, errors: Tensor) -> Tensor:
        """(n, 2, 2, F): r and n, of the first row and others -> (n,): -log likelihood."""
        logs = self.gain * self.weight
        squares, count = errors.unbind(1)
        return (0.5 * squares * torch.exp(-2.0 * logs) + count * logs).sum((1, 2))

    def deviations(self) -> Tensor:
        """(2, F), within `NARROWEST` and 1."""
        return (self.gain * self.weight).exp().clamp(NARROWEST, 1.0)


@rule(Spread)
def spread(layer: Spread, a: Tensor, b: Tensor) -> dict[str, PerExample]:
    """By hand: of each deviation, n - r / s^2."""
    squares, count = a.unbind(1)
    slopes = count - squares * torch.exp(-2.0 * layer.gain * layer.weight.detach())
    return {"weight": Dense(layer.gain * b[:, None, None] * slopes)}


@final
class RecordMaker(nn.Module):
    """Makes stays; see the module's words.

    Args:
        form: which parts there are.
        schema: whose records are made.
    """

    def __init__(self, form: Form, schema: Schema) -> None:
        super().__init__()
        self.form, self.shape = form, form.shape(schema)
        sizes = self.shape.sizes
        self.reader = RecordRows(sizes)
        self.start = StartModel(sizes.start) if "start" in form.flags else None
        self.generator = form.generator(self.shape) if "generator" in form.flags else None
        self.body = DecoderBody(self.shape, self.shape.embedding())
        self.last = LastLayer(form.width, sizes.features)
        self.spread = Spread(sizes.features) if "spread" in form.flags else None
        self.levels = Levels(sizes.levels) if "levels" in form.flags else None

    def forward(self, codes: Tensor) -> Tensor:
        """Codes in [0, 1] (n, 1 + L, W) -> (n, 1): -log p of what stays begin with."""
        start = self.reader.read(codes).start
        if self.start is None:
            return torch.zeros(len(codes), 1, device=codes.device)
        said: Tensor = self.start(start)
        return said[:, None]

    @torch.no_grad()
    def draw_static(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes of the static columns of n stays, (n, statics)."""
        return self._drawn_start(self._nothing(n), self.shape.sizes.statics, generator)

    @torch.no_grad()
    def draw_start(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes of all that n stays begin with."""
        return self._drawn_start(self._nothing(n), len(self.shape.sizes.start), generator)

    @torch.no_grad()
    def draw_codes(self, static: Tensor, generator: torch.Generator) -> Codes:
        """Codes of stays with these static codes, as `data.records.coding` lays them out."""
        start = self._drawn_start(static, len(self.shape.sizes.start), generator)
        made = self.draw_rows(start, generator)
        codes: Codes = self.reader.codes(made.x, made.m, start).cpu().numpy()
        return codes

    @torch.no_grad()
    def draw_rows(self, start: Tensor, generator: torch.Generator) -> Made:
        """Stays that begin so."""
        return unrolled(
            self.body,
            self.last,
            self.reader,
            start,
            self.drawn_latents(len(start), generator),
            generator=generator,
            spread=None if self.spread is None else self.spread.deviations(),
            levels=self.levels,
        )

    def drawn_latents(self, n: int, generator: torch.Generator) -> Tensor:
        """Latents z of n stays."""
        if self.generator is not None:
            z: Tensor = self.generator(self.generator.draw(n, generator).to(self._device))
            return z
        steps = self.shape.latent_steps
        shape = (n, self.form.latent) if steps is None else (n, steps, self.form.latent)
        return torch.randn(shape, generator=generator, device=generator.device).to(self._device)

    @property
    def _device(self) -> torch.device:
        return self.reader.gap_times.device

    def _nothing(self, n: int) -> Tensor:
        return torch.zeros(n, 0, dtype=torch.long, device=self._device)

    def _drawn_start(self, given: Tensor, upto: int, generator: torch.Generator) -> Tensor:
        if self.start is not None:
            return self.start.draw(given, upto, generator)
        levels = self.shape.sizes.start[given.shape[1] : upto]
        return torch.cat([given, uniform_start(levels, len(given), generator).to(given)], 1)
