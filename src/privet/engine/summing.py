"""The clipped sum of one batch, piece by piece: what fits in memory does not matter.

| device | a piece is                                                                            |
|--------|---------------------------------------------------------------------------------------|
| CPU    | a few hundred rows, in equal parts of the batch                                       |
| CUDA   | of one size, filled up with rows that weigh nothing: recorded once, replayed; compiled |
|        | where that is asked for. As the clipper is, where neither can be done                 |

Cost: time in proportion to the batch; memory that of a piece, however large the batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, final

import torch
from torch import Tensor

from privet.engine.adversary import Adversary, attacked
from privet.engine.examples import Augmentation, Examples
from privet.privacy.clipping import Clipper, FastClipper, trainable
from privet.privacy.fixed import FixedSum, fixed_size
from privet.privacy.phases import phase_of
from privet.privacy.probing import undisturbed
from privet.privacy.tracing import by_torch
from privet.privacy.units import Units

# Rows clipped at once: bounds memory (at worst one gradient each), not privacy.
MOST_ROWS: Final = {"cpu": 320, "cuda": 8192}
MOST_GRADIENT_ENTRIES: Final = {"cpu": 2**25, "cuda": 2**30}
LITTLE: Final = 2**28  # numbers that a piece of one size may always hold
MUCH: Final = 2**31  # and may never hold more than
BLOCK: Final = 64  # rows on a CPU that views and adversaries are made of at a time
PROBED: Final = 2  # units to learn from how many one of them holds

Draws = Callable[[], AbstractContextManager[torch.Generator]]
"""Sets PyTorch's generators for a step, the same each time; gives the one for records and views."""


@final
@dataclass(kw_only=True)
class BatchSum:
    """Adds up the clipped gradients of the chosen units.

    Attributes:
        clipper: bounds what each unit adds.
        examples: all units.
        augmentation: how their records are seen, if not as they are.
        adversary: makes hard rows of what is seen, if any.
        expected: units in a batch, about.
        probe: made-up inputs to try a step of one size on; None for no such step.
        compiled: whether to compile it.
        note: what of that was left out, and why; once it was tried.
    """

    clipper: Clipper
    examples: Examples
    augmentation: Augmentation | None
    expected: float
    adversary: Adversary | None = None
    probe: tuple[Tensor, Tensor] | None = None
    compiled: bool = False
    note: str = field(default="", init=False)
    _made: dict[str, FixedSum | None] = field(default_factory=dict, init=False)  # by phase

    def of(self, units: Tensor, draws: Draws, meanwhile: Callable[[], object]) -> Tensor:
        """The sum over these units; `meanwhile` runs while a device works."""
        fixed = self.fixed
        if fixed is None or not fixed.is_current:
            return self._total(units, self._at_once, draws, self.clipper.clipped_sum)
        broken: list[Tensor] = []  # which places of each piece make it void

        def summed(x: Tensor, y: Tensor, *, views: int, weights: Tensor | None) -> Tensor:
            part, places = fixed.sum_unless_broken(x, y, views=views, weights=weights)
            broken.append(places.clone())
            return part

        total = self._total(units, fixed.size, draws, summed)
        meanwhile()
        if broken and torch.stack(broken).any():
            return self._total(units, fixed.size, draws, _without(broken, fixed))
        return total

    def prepare(self) -> None:
        """Make what is made once: it moves the weights, and leaves them as they were."""
        _ = self.fixed

    @property
    def fixed(self) -> FixedSum | None:
        """A step of one size, where that is faster than the clipper as it is.

        Made when it is first used, in the mode and the phase that the model is trained in.
        """
        phase = phase_of(self.clipper.model)
        if phase not in self._made:
            self._made[phase] = self._fixed()
        return self._made[phase]

    def _fixed(self) -> FixedSum | None:
        if self.probe is None:
            return None
        if self.probe[0].device.type != "cuda" and not self.compiled:
            return None
        if not isinstance(self.clipper, FastClipper):
            self.note = f"not compiled: {self.clipper.note}"
            return None
        fixed = FixedSum(
            self.clipper,
            self.probe,
            units=_fixed_units(self.clipper, self.probe, self._views, self.expected),
            views=self._views,
            compiler=by_torch if self.compiled else None,
        )
        self.note = fixed.note
        return fixed if fixed.pays else None

    @property
    def _views(self) -> int:
        own = 1 if self.augmentation is None else self.augmentation.views
        made = 1 if self.adversary is None else len(self.adversary.shares)
        return self.examples.contribution * self.examples.views * own * made

    @property
    def _at_once(self) -> int:
        return units_at_once(self.clipper, self._views)

    @property
    def _block(self) -> int:
        """Rows that views and adversaries are made of at a time; see `Rows.in_blocks`.

        A function of public things alone.
        """
        records = self.examples.contribution * self.examples.views
        if self._device.type == "cpu":
            return min(BLOCK, math.ceil(self.expected) * records)
        units = self.fixed.size if self.fixed else fixed_size(self.expected, self._at_once)
        return units * records

    @property
    def _device(self) -> torch.device:
        return next(iter(trainable(self.clipper.model).values())).device

    def _total(
        self, units: Tensor, at_once: int, draws: Draws, summed: Callable[..., Tensor]
    ) -> Tensor:
        parameters = list(trainable(self.clipper.model).values())
        size, like = sum(p.numel() for p in parameters), parameters[0]
        total = torch.zeros(size, dtype=like.dtype, device=like.device)
        model, precision = self.clipper.model, self.clipper.precision
        with draws() as generator:
            for chunk in pieces(units, at_once):
                rows = self.examples.rows(chunk, generator)
                if self.augmentation is not None:
                    rows = rows.seen_through(self.augmentation, generator, self._block)
                if self.adversary is not None:
                    rows = attacked(
                        rows, self.adversary, model, generator, precision, block=self._block
                    )
                total = total + summed(rows.x, rows.y, views=rows.views, weights=rows.weights)
        return total


def _without(broken: Sequence[Tensor], fixed: FixedSum) -> Callable[..., Tensor]:
    """The same pieces again, their broken units weighing nothing.

    By the same step: another one would round the contributions of all other units anew, and what
    one unit holds must not move them.
    """
    piece = iter(broken)

    def summed(x: Tensor, y: Tensor, *, views: int, weights: Tensor | None) -> Tensor:
        units = Units.of(x, y, views=views, weights=weights)
        sound = ~next(piece)[: len(units)].repeat_interleave(views)
        kept = units.weighted(torch.ones(len(x), device=x.device)) * sound
        return fixed.sum_unless_broken(x, y, views=views, weights=kept)[0]

    return summed


def pieces(units: Tensor, at_once: int) -> Iterator[Tensor]:
    """The units a few at a time, in pieces of about one size: a short one costs like a long."""
    count = math.ceil(len(units) / at_once)
    return iter(torch.tensor_split(units, count) if count else ())


def units_at_once(clipper: Clipper, views: int) -> int:
    """How many units of so many rows a clipper takes at once."""
    kind = next(iter(trainable(clipper.model).values())).device.type
    rows = MOST_ROWS.get(kind, MOST_ROWS["cpu"])
    entries = MOST_GRADIENT_ENTRIES.get(kind, MOST_GRADIENT_ENTRIES["cpu"])
    return max(1, min(rows // views, entries // max(1, clipper.held)))


def _fixed_units(
    clipper: FastClipper, probe: tuple[Tensor, Tensor], views: int, expected: float
) -> int:
    """Units in a piece of one size; a function of public things alone, so that a step repeats.

    Half of the batch at most, unless that is little: a private step holds more for each unit than a
    plain one, and should not hold more in all.
    """
    rows = torch.arange(PROBED * views, device=probe[0].device)
    x, y = (part[rows % len(part)] for part in probe)
    with undisturbed(clipper.model):
        clipper.per_example_gradients(x, y, views=views)
    half = math.ceil(fixed_size(expected, 10**9) / 2)
    held = max(1, clipper.footprint)
    most = max(LITTLE // held, min(MUCH // held, half))
    return fixed_size(expected, max(1, min(most, MOST_ROWS["cuda"] // views)))
