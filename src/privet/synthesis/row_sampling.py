"""Draws stays from a `RowTransformer`, row by row, many at a time.

What was computed for earlier rows is kept (keys and values of the attention, and what is known of
each column), so a row costs the same wherever it stands but for a look back at its stay. Stays that
are over leave the batch. Everything lies where the network lies; chance comes from a generator on
the CPU, whatever the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.data.records.features import Codes
from privet.models.row_transformer import (
    NEVER,
    RowTransformer,
    habit_inputs,
    known,
    mask_inputs,
    read_inputs,
    shares_of,
    summary_of,
    time_inputs,
    with_habits,
)

SHRINK_BELOW: Final = 0.75  # of the stays in a batch still going on: then the others leave it


@torch.inference_mode()
def draw_static(network: RowTransformer, n: int, generator: torch.Generator) -> Tensor:
    """Codes of the static columns of n stays, (n, S)."""

    def logits(codes: Tensor) -> Tensor:
        return network.static_logits(network.static_inputs(codes))

    where = network.gap_times.device
    return _one_after_the_other(n, network.sizes.static, logits, generator, where)


@torch.inference_mode()
def draw_codes(network: RowTransformer, static: Tensor, generator: torch.Generator) -> Codes:
    """Codes of stays with these static codes, as `data.records.coding` lays them out.

    Args:
        network: trained.
        static: (n, S), from `draw_static`.
        generator: of all draws.
    """
    sizes = network.sizes
    statics, columns, n = len(sizes.static), len(sizes.temporal), len(static)
    fixed = statics + len(sizes.outcomes)
    shape = (n, 1 + sizes.steps, max(fixed, 1 + columns))
    codes = torch.zeros(shape, dtype=torch.uint8, device=static.device)
    codes[:, 0, :statics] = static.to(torch.uint8)
    batch = Batch.begun(network, network.static_inputs(static), generator)
    for step in range(sizes.steps):
        gap, measured = batch.row(generator)
        codes[batch.place, 1 + step, 0] = gap.to(torch.uint8)
        codes[batch.place, 1 + step, 1 : 1 + columns] = measured.to(torch.uint8)
        ended = (gap == 0) & ~batch.over
        codes[batch.place[ended], 0, statics:fixed] = batch.outcomes(ended, generator)
        batch.learn(gap, measured)
        batch = batch.without_finished()
        if not len(batch.place):
            break
    left = ~batch.over
    codes[batch.place[left], 0, statics:fixed] = batch.outcomes(left, generator)
    drawn_codes: Codes = codes.cpu().numpy()
    return drawn_codes


@final
@dataclass(frozen=True, eq=False)
class DrawsRows:
    """A network with its draws, as `sampling` asks for them."""

    network: RowTransformer

    def draw_static(self, n: int, generator: torch.Generator) -> Tensor:
        """As the function of this name."""
        return draw_static(self.network, n, generator)

    def draw_codes(self, static: Tensor, generator: torch.Generator) -> Codes:
        """As the function of this name."""
        return draw_codes(self.network, static, generator)


def _drawn_habits(network: RowTransformer, static: Tensor, generator: torch.Generator) -> Tensor:
    """Habits of stays with these static inputs, column by column."""
    n, columns, width = len(static), len(network.sizes.temporal), static.shape[1]
    matrix, habits = network.habit_order.matrix(), static.new_zeros(n, columns, dtype=torch.long)
    logits = network.habit_shift((static @ matrix[:, :width].T).reshape(n, columns, -1))
    for f in range(columns):
        habits[:, f] = drawn(logits[:, f], generator)
        seen = habit_inputs(habits[:, f : f + 1])
        inputs = [width + f, width + columns + f]
        later = matrix.reshape(columns, -1, matrix.shape[1])[f + 1 :, :, inputs]
        logits[:, f + 1 :] += torch.einsum("ni,fhi->nfh", seen, later)
    return habits


def _one_after_the_other(
    n: int,
    levels: tuple[int, ...],
    logits: Callable[[Tensor], Tensor],
    generator: torch.Generator,
    device: torch.device,
) -> Tensor:
    """Codes of columns, each given those before it; `logits` are of all options."""
    codes = torch.zeros(n, len(levels), dtype=torch.long, device=device)
    for place in range(len(levels)):
        part = torch.split(logits(codes), [count + 1 for count in levels], 1)[place]
        codes[:, place] = drawn(part, generator)
    return codes


def drawn(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One option for each row."""
    upto = logits.softmax(-1).cumsum(-1)
    level = torch.rand(len(logits), 1, generator=generator).to(upto.device) * upto[:, -1:]
    return (upto <= level).sum(-1).clamp_max(logits.shape[1] - 1)


@final
@dataclass(kw_only=True, eq=False)
class Batch:
    """Stays that go on, and what is known of each; the first axis of every tensor is the stay."""

    network: RowTransformer
    place: Tensor  # among all stays asked for
    static: Tensor  # one-hot
    habits: Tensor
    over: Tensor
    step: int = 0
    gap: Tensor  # code of the last one
    time: Tensor
    last: Tensor  # shares and codes of the latest values, (n, F)
    last_code: Tensor
    total: Tensor
    count: Tensor
    at: Tensor  # when each column was measured last
    measured: Tensor
    hidden: Tensor
    keys: list[Tensor] = field(default_factory=list)  # of each layer, (n, heads, T, d / heads)
    values: list[Tensor] = field(default_factory=list)

    @classmethod
    def begun(cls, network: RowTransformer, static: Tensor, generator: torch.Generator) -> "Batch":
        """Before the first row of stays with these static inputs."""
        n, columns = len(static), len(network.sizes.temporal)
        nothing, none = static.new_zeros(n, columns), static.new_zeros(n)
        kept = [
            static.new_zeros(n, layer.heads, network.sizes.steps, network.width // layer.heads)
            for layer in network.layers
        ]
        return cls(
            network=network,
            place=torch.arange(n, device=static.device),
            static=static,
            habits=_drawn_habits(network, static, generator),
            over=none.bool(),
            gap=none.long(),
            time=none,
            last=nothing,
            last_code=nothing.long(),
            total=nothing.clone(),
            count=nothing.clone(),
            at=nothing.clone(),
            measured=nothing.clone(),
            hidden=static.new_zeros(n, network.width),
            keys=kept,
            values=[torch.zeros_like(k) for k in kept],
        )

    def row(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The next gap (0: over) and the codes of its columns."""
        about, times = self._about(), self._times()
        self.hidden = self._hidden(about, times)
        gap_logits, columns = self.network.said(
            self.hidden[:, None], about[:, None], times[:, None]
        )
        if self.step == 0:  # a stay that was never written down is none
            gap_logits[..., 0] = -torch.inf
        gap = drawn(gap_logits[:, 0], generator)
        gap = torch.where(self.over | self._too_late(gap), 0, gap)
        measured = self._drawn_measured(columns[:, 0, :, 0], gap, generator)
        return gap, self._drawn_codes(columns[:, 0], measured, generator)

    def _about(self) -> Tensor:
        ever = (self.count > 0).float()
        about = known(
            last=self.last,
            mean=self.total / self.count.clamp_min(1.0),
            ever=ever,
            since=self.time[:, None] - self.at,
            measured=self.measured,
            decays=self.network.decays,
        )
        if self.step == 0:  # as in training: nothing is known, not even how long ago
            about[..., 1:] = 0.0
        return with_habits(about, self.habits)

    def _times(self) -> Tensor:
        done = torch.full_like(self.gap, self.step)
        return time_inputs(self.time, self.gap, done, self.network.sizes)

    def _hidden(self, about: Tensor, times: Tensor) -> Tensor:
        """What the transformer makes of the next row, with the keys and values of those before."""
        network, upto = self.network, self.step + 1
        x = network.read(torch.cat([read_inputs(about), times, self.static], 1))[:, None]
        for keys, values, layer in zip(self.keys, self.values, network.layers, strict=True):
            query, key, value = layer.asked(x)
            keys[:, :, self.step], values[:, :, self.step] = key[:, :, 0], value[:, :, 0]
            seen = F.scaled_dot_product_attention(query, keys[:, :, :upto], values[:, :, :upto])
            x = layer.thought(x, seen)
        hidden: Tensor = network.norm(x)[:, 0]
        return hidden

    def _too_late(self, gap: Tensor) -> Tensor:
        return self.time + self.network.gap_times[gap] > self.network.sizes.horizon

    def _drawn_measured(self, logits: Tensor, gap: Tensor, generator: torch.Generator) -> Tensor:
        """Which columns the row has, one after the other: (n, F), zero where the stay is over."""
        n, columns = logits.shape
        matrix = self.network.with_measured.matrix()
        shares = shares_of(gap, gap.new_tensor(self.network.sizes.gap))
        measured = torch.zeros_like(logits)
        logits = logits + mask_inputs(shares, measured) @ matrix.T
        chance = torch.logit(torch.rand(n, columns, generator=generator)).to(logits.device)
        chance = torch.where(self.habits == NEVER, torch.inf, chance)
        for f in range(columns):
            measured[:, f] = (chance[:, f] < logits[:, f]).float()
            if f + 1 < columns:
                logits[:, f + 1 :] += torch.outer(measured[:, f], matrix[f + 1 :, 2 + f])
        return measured * (gap > 0)[:, None]

    def _drawn_codes(self, said: Tensor, measured: Tensor, generator: torch.Generator) -> Tensor:
        """Codes of the row, column by column, where measured; 0 elsewhere."""
        network, columns = self.network, measured.shape[1]
        matrix, k = network.with_values.matrix(), network.cells.basis.shape[1]
        seen = (measured @ matrix[:, columns:].T).reshape(*measured.shape, k)
        coefficients = said[..., 2:] + seen
        codes = torch.zeros_like(self.last_code)
        for f in range(columns):
            rows = measured[:, f].nonzero()[:, 0]
            if not len(rows):
                continue
            codes[rows, f] = self._drawn_code(f, rows, coefficients, said[:, f, 1], generator)
            if f + 1 < columns:
                share = shares_of(codes[rows, f], network.levels[f])
                moved = torch.outer(share, matrix[(f + 1) * k :, f])
                coefficients[rows, f + 1 :] += moved.reshape(len(rows), -1, k)
        return codes

    def _drawn_code(
        self, f: int, rows: Tensor, coefficients: Tensor, stay: Tensor, generator: torch.Generator
    ) -> Tensor:
        logits = self.network.cells.logits(
            f, coefficients[rows, f], stay[rows], self.last_code[rows, f]
        )
        return 1 + drawn(logits, generator)

    def learn(self, gap: Tensor, codes: Tensor) -> None:
        """Take the row that was drawn as known."""
        going = gap > 0
        self.over = self.over | ~going
        self.gap, self.time = gap, self.time + self.network.gap_times[gap]
        measured = codes > 0
        shares = shares_of(codes, self.network.levels)
        self.measured = measured.float()
        self.last = torch.where(measured, shares, self.last)
        self.last_code = torch.where(measured, codes, self.last_code)
        self.at = torch.where(measured, self.time[:, None], self.at)
        self.total = self.total + shares
        self.count = self.count + self.measured
        self.step += 1

    def outcomes(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Outcome codes of the chosen stays, as they stand."""
        sizes, count = self.network.sizes, self.count[chosen]
        summary = summary_of(
            last=self.last[chosen],
            mean=self.total[chosen] / count.clamp_min(1.0),
            count=count,
            time=self.time[chosen],
            length=count.new_full((len(count),), float(self.step)),
            sizes=sizes,
        )
        static = self.static[chosen]

        def logits(codes: Tensor) -> Tensor:
            return self.network.outcome_logits(summary, codes, static)

        drawn_now = _one_after_the_other(
            len(summary), sizes.outcomes, logits, generator, summary.device
        )
        return drawn_now.to(torch.uint8)

    def without_finished(self) -> "Batch":
        """The stays that go on, once many others are over."""
        going = ~self.over
        if going.float().mean() > SHRINK_BELOW:
            return self
        kept: dict[str, Any] = {
            name: value[going] for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        kept["keys"] = [keys[going] for keys in self.keys]
        kept["values"] = [values[going] for values in self.values]
        return replace(self, **kept)
