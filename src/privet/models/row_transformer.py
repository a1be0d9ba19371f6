"""A generator of patient records: an autoregressive transformer over rows of codes.

| symbol        | here              | meaning                                                     |
|---------------|-------------------|-------------------------------------------------------------|
| s             | `static`          | codes of static columns, drawn one after the other          |
| b             | `habits`          | how often each column is measured in the stay, roughly      |
| g_t           | `gap`             | code of the time since the row before; 0: the stay is over  |
| m_tf          | `measured`        | whether column f was measured in row t                      |
| x_tf          | `codes`           | its code, where it was                                      |
| o             | `outcome`         | codes of outcome columns, drawn last, from the whole stay   |
| h_t           | `hidden`          | what the transformer makes of rows before t                 |
| a_tf          | `about`           | what is known of column f before row t: last value, mean,   |
|               |                   | whether and how long ago it was measured                    |

    p(stay) = p(s) p(b | s) prod_t p(g_t | h_t) prod_f p(m_tf | h_t, a_tf, b, g_t, m_t,<f)
                                                prod_f p(x_tf | h_t, a_tf, m_t,<f, x_t,<f)
              p(o | all)

Every factor is a softmax or a logistic function. The logits of a numeric column's bins are a sum of
the first K cosines over its bins, whose coefficients are linear in what is known: so few numbers
move a whole distribution, and a Gaussian regression on the last value is among what they can say.
One number more for each column is added at the last code: how likely it is to stay.

Habits say which columns a stay has at all: an arterial line is there or it is not. Drawn first,
they are right from the start, where the rows alone would drift towards the average patient.

What a private step must learn is near the surface: a_tf is computed, not learned; all but the
transformer itself begins at zero and acts directly on the logits.

Guarantee: none by itself. Every quantity of a stay is a function of that stay and the weights, so
gradients of stays can be clipped apart.

Cost: for n stays of T rows and F columns n T (U d + 12 d^2 layers + F (K + 2) d) products, and
attention n T^2 d; U = 8 F and the one-hot codes. On a CPU, T is the longest stay's of the batch.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.data.records.features import Feature, Numeric
from privet.data.records.schema import Schema
from privet.models.cells import Cells
from privet.models.columns import PerColumn, Shift, Triangular

COSINES: Final = 8  # K
TIMES: Final = 6  # cosines of the time since the start
DECAYS: Final = (1 / 32, 1 / 8, 1 / 2)  # of the longest gap: how fast "just measured" fades
ABOUT: Final = 5 + len(DECAYS)
EVER: Final = 3  # the place of "was measured before" among them
SUMMARY: Final = 3
LESS: Final = 0.3
# Shares of the rows in which a column is measured; 0 is a habit of its own.
HABITS: Final = (0.0, 1 / 16, 1 / 4, 5 / 8)
NEVER: Final = 0
# How much faster than the transformer the layers at the surface learn: what many patients tell
# about few numbers may move fast. Set by gradients seen on simulated records and PhysioNet 2012.
# Weights of releases are for these gains: others need another name of the network.
GAINS: Final = {
    "shift": 16.0,
    "own": 10.0,
    "gap": 5.0,
    "measured": 12.0,
    "values": 4.0,
    "habits": 5.0,
    "static": 5.0,
    "outcome": 4.5,
    "outcome shift": 3.0,
}


@final
@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the network has to know of a schema: levels of its columns, and of time."""

    static: tuple[int, ...]
    outcomes: tuple[int, ...]
    temporal: tuple[int, ...]
    ordered: tuple[bool, ...]  # of temporal columns: whether codes are bins
    gap: int
    gap_times: tuple[float, ...]  # of each code, 0 first; in longest gaps
    horizon: float  # in longest gaps
    steps: int

    @classmethod
    def of(cls, schema: Schema) -> "Sizes":
        """Of a schema."""
        levels = schema.gap.levels
        middles = [(code + 0.5) / levels for code in range(levels)]
        times = schema.gap.value_at(torch.tensor(middles, dtype=torch.float64).numpy())
        longest = schema.max_gap * schema.max_steps if schema.horizon is None else schema.horizon
        return cls(
            static=_levels(schema.static),
            outcomes=_levels(schema.outcomes),
            temporal=_levels(schema.temporal),
            ordered=tuple(isinstance(f, Numeric) for f in schema.temporal),
            gap=levels,
            gap_times=(0.0, *(float(t) / schema.max_gap for t in times)),
            horizon=longest / schema.max_gap,
            steps=schema.max_steps,
        )


def _levels(features: tuple[Feature, ...]) -> tuple[int, ...]:
    return tuple(feature.levels for feature in features)


class RowTransformer(nn.Module):
    """Negative log-likelihoods of stays; see the module's words.

    Args:
        sizes: of the columns.
        width: d.
        layers: of the transformer; 0 for none.
        heads: of its attention.
    """

    levels: Tensor
    gap_times: Tensor
    decays: Tensor

    def __init__(self, sizes: Sizes, *, width: int = 64, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        self.sizes, self.width = sizes, width
        columns, k = len(sizes.temporal), most_coefficients(sizes)
        self.register_buffer("levels", torch.tensor(sizes.temporal), persistent=False)
        self.register_buffer("gap_times", torch.tensor(sizes.gap_times), persistent=False)
        self.register_buffer("decays", torch.tensor(DECAYS), persistent=False)
        static = sum(levels + 1 for levels in sizes.static)
        outcomes = sum(levels + 1 for levels in sizes.outcomes)
        habits = len(HABITS) + 1
        self.read = nn.Linear(columns * ABOUT + static + self._time_inputs, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.say = silent(width, sizes.gap + 1 + columns * (k + 2))
        self.gap_own = silent(self._time_inputs, sizes.gap + 1)
        self.own = PerColumn(columns, ABOUT + 2 * len(HABITS), k + 2, gain=GAINS["own"])
        self.with_measured = Triangular(_mask_order(columns), gain=GAINS["measured"])
        self.with_values = Triangular(_value_order(columns, k), gain=GAINS["values"])
        self.cells = Cells(_basis(sizes), sizes.temporal, gain=GAINS["shift"])
        self.static_order = Triangular(block_order(sizes.static), gain=GAINS["static"])
        self.static_shift = Shift(static, gain=GAINS["shift"])
        self.habit_order = Triangular(_habit_order(columns, static), gain=GAINS["habits"])
        self.habit_shift = Shift(columns, habits, gain=GAINS["shift"])
        self.outcome = silent(columns * SUMMARY + static + TIMES + 1, outcomes, bias=False)
        self.outcome_order = Triangular(block_order(sizes.outcomes), gain=GAINS["outcome shift"])
        self.outcome_shift = Shift(outcomes, gain=GAINS["outcome shift"])

    @property
    def _time_inputs(self) -> int:
        return 2 * TIMES + self.sizes.gap + 2

    @property
    def layers(self) -> "list[Block]":
        """Of the transformer."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def forward(self, x: Tensor) -> Tensor:
        """Codes in [0, 1] (n, 1 + T, W) -> (n, 4): of static columns, habits, rows, outcomes."""
        stays = Stays.read(x, self)
        static, habits = self.static_inputs(stays.static), stays.habits
        about = with_habits(stays.before(), habits[:, None])
        hidden = self.hidden(about, stays.time_inputs(), static)
        rows = self._rows(stays, about, hidden)
        return torch.stack(
            [
                self._fixed(self.static_logits(static), stays.static, self.sizes.static),
                self._habits(static, habits),
                rows,
                self._fixed(
                    self.outcome_logits(stays.summary(), stays.outcomes, static),
                    stays.outcomes,
                    self.sizes.outcomes,
                ),
            ],
            1,
        )

    def hidden(self, about: Tensor, times: Tensor, static: Tensor) -> Tensor:
        """h_t for all t: (n, T, d)."""
        n, steps = about.shape[:2]
        seen = [read_inputs(about), times, static[:, None].expand(n, steps, -1)]
        hidden: Tensor = self.read(torch.cat(seen, 2))
        for layer in self.layers:
            hidden = layer(hidden)
        normal: Tensor = self.norm(hidden)
        return normal

    def said(self, hidden: Tensor, about: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of gaps, and (n, T, F, K + 2): of "measured", of staying, coefficients."""
        gap, columns = self.say(hidden).split([self.sizes.gap + 1, about.shape[2] * self._k2], -1)
        own = self.own(about)
        return gap + GAINS["gap"] * self.gap_own(times), columns.reshape(own.shape) + own

    @property
    def _k2(self) -> int:
        return self.cells.basis.shape[1] + 2

    def _rows(self, stays: "Stays", about: Tensor, hidden: Tensor) -> Tensor:
        """Negative log-likelihood of all rows, of each stay."""
        gap_logits, columns = self.said(hidden, about, stays.time_inputs())
        gaps = F.cross_entropy(gap_logits.flatten(0, 1), stays.gap.flatten(), reduction="none")
        asked = F.pad(stays.present[:, :-1], (1, 0), value=1.0)  # also the row that is not there
        total = (gaps.reshape(asked.shape) * asked).sum(1)
        measured = stays.measured
        logits = columns[..., 0] + self.with_measured(mask_inputs(stays.gap_shares, measured))
        masks = F.binary_cross_entropy_with_logits(logits, measured, reduction="none")
        asked = (stays.habits != NEVER)[:, None] * stays.present[..., None]
        total = total + (masks * asked).sum((1, 2))
        seen = self.with_values(torch.cat([stays.shares, measured], 2))
        coefficients = columns[..., 2:] + seen.reshape(*measured.shape, self._k2 - 2)
        cells: Tensor = self.cells(coefficients, columns[..., 1], stays.last_codes(), stays.codes)
        return total + cells

    def static_inputs(self, codes: Tensor) -> Tensor:
        """One-hot codes of all static columns, side by side."""
        return one_hot(codes, self.sizes.static)

    def static_logits(self, inputs: Tensor) -> Tensor:
        """Of all options of all static columns; each sees those before it."""
        logits: Tensor = self.static_shift(self.static_order(inputs))
        return logits

    def habit_logits(self, static: Tensor, habits: Tensor) -> Tensor:
        """(n, F, habits); each column sees static ones and the columns before it."""
        order = self.habit_order(torch.cat([static, habit_inputs(habits)], 1))
        logits: Tensor = self.habit_shift(order.reshape(*habits.shape, len(HABITS) + 1))
        return logits

    def _habits(self, static: Tensor, habits: Tensor) -> Tensor:
        logits = self.habit_logits(static, habits)
        losses = F.cross_entropy(logits.flatten(0, 1), habits.flatten(), reduction="none")
        return losses.reshape(habits.shape).sum(1)

    def outcome_logits(self, summary: Tensor, outcomes: Tensor, static: Tensor) -> Tensor:
        """Of all options of all outcomes; each sees those before it."""
        seen = self.outcome(torch.cat([summary, static], 1))
        before = self.outcome_order(one_hot(outcomes, self.sizes.outcomes))
        logits: Tensor = self.outcome_shift(before + GAINS["outcome"] * seen)
        return logits

    @staticmethod
    def _fixed(logits: Tensor, codes: Tensor, levels: tuple[int, ...]) -> Tensor:
        parts = torch.split(logits, [count + 1 for count in levels], 1) if levels else ()
        total = logits.new_zeros(len(codes))
        for place, part in enumerate(parts):
            total = total + F.cross_entropy(part, codes[:, place], reduction="none")
        return total


def silent(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer that begins as nothing; it may have no outputs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
        layer = nn.Linear(inputs, outputs, bias=bias)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class Block(nn.Module):
    """A layer of the transformer: each row looks at itself and those before, then thinks."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.think = nn.Linear(width, 2 * width)
        self.conclude = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, T, d) -> the same."""
        query, key, value = self.asked(x)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.thought(x, seen)

    def asked(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (n, heads, T, d / heads) each."""
        n, steps, width = x.shape
        parts = self.ask(self.norm(x)).reshape(n, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        return query, key, value

    def thought(self, x: Tensor, seen: Tensor) -> Tensor:
        """What becomes of x and what attention saw."""
        x = x + self.answer(seen.transpose(1, 2).flatten(2))
        conclusion: Tensor = self.conclude(F.gelu(self.think(self.second_norm(x))))
        return x + conclusion


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stays:
    """Codes of stays, and what follows from them."""

    network: RowTransformer
    static: Tensor  # (n, S)
    outcomes: Tensor  # (n, O)
    gap: Tensor  # (n, T)
    codes: Tensor  # (n, T, F), 0 where not measured
    present: Tensor  # (n, T), 1 for rows that are there

    @classmethod
    def read(cls, x: Tensor, network: RowTransformer) -> "Stays":
        """From a matrix of codes, scaled to [0, 1]; codes beyond the levels count as the last."""
        sizes = network.sizes
        codes = (x * 255.0).round().long()
        statics, fixed = len(sizes.static), codes[:, 0]
        levels = codes.new_tensor([*sizes.static, *sizes.outcomes])
        fixed = torch.minimum(fixed[:, : len(levels)], levels)
        gap = codes[:, 1:, 0].clamp_max(sizes.gap)
        present = (gap > 0).long().cumprod(1)
        if not x.is_cuda:  # there, shapes that hang on the records could not be replayed
            longest = int(present.sum(1).max()) if len(x) else 0
            codes, gap, present = (
                part[:, :most]
                for part, most in ((codes, longest + 2), (gap, longest + 1), (present, longest + 1))
            )
        temporal = torch.minimum(codes[:, 1:, 1 : 1 + len(sizes.temporal)], network.levels)
        return cls(
            network=network,
            static=fixed[:, :statics],
            outcomes=fixed[:, statics:],
            gap=gap * present,
            codes=temporal * present[..., None],
            present=present.float(),
        )

    @property
    def measured(self) -> Tensor:
        """m: 1 where a column was measured."""
        return (self.codes > 0).float()

    @property
    def shares(self) -> Tensor:
        """Where values lie, from -1 to 1; 0 where not measured."""
        return shares_of(self.codes, self.network.levels)

    @property
    def habits(self) -> Tensor:
        """b: (n, F), from 0 (never) to the number of `HABITS`."""
        return habits_of(self.measured.sum(1), self.present.sum(1))

    @property
    def gap_shares(self) -> Tensor:
        """The same of gaps."""
        return shares_of(self.gap, self.gap.new_tensor(self.network.sizes.gap))

    @property
    def times(self) -> Tensor:
        """Time of each row, in longest gaps."""
        return self.network.gap_times[self.gap].cumsum(1)

    def before(self) -> Tensor:
        """a: (n, T, F, ABOUT), of the rows before each row."""
        measured, shares, times = self.measured, self.shares, self.times
        place = torch.arange(self.gap.shape[1], device=self.gap.device)[:, None]
        latest = torch.where(measured > 0, place, -1).cummax(1)[0]
        at = latest.clamp_min(0)
        ever = (latest >= 0).float()
        since = times[..., None] - times[..., None].expand_as(shares).gather(1, at)
        count = measured.cumsum(1)
        parts = known(
            last=shares.gather(1, at) * ever,
            mean=shares.cumsum(1) / count.clamp_min(1.0),
            ever=ever,
            since=since,
            measured=measured,
            decays=self.network.decays,
        )
        first = torch.zeros_like(parts[:, :1])
        first[..., 0] = 1.0
        return torch.cat([first, parts[:, :-1]], 1)

    def last_codes(self) -> Tensor:
        """The latest code of each column before each row; 0 for none."""
        place = torch.arange(self.gap.shape[1], device=self.gap.device)[:, None]
        latest = torch.where(self.codes > 0, place, -1).cummax(1)[0]
        codes = torch.where(latest >= 0, self.codes.gather(1, latest.clamp_min(0)), 0)
        return F.pad(codes[:, :-1], (0, 0, 1, 0))

    def time_inputs(self) -> Tensor:
        """(n, T, .): what is known of time before each row."""
        steps = self.gap.shape[1]
        times = F.pad(self.times[:, :-1], (1, 0))
        gap = F.pad(self.gap[:, :-1], (1, 0))
        done = torch.arange(steps, device=gap.device).expand(len(gap), -1)
        return time_inputs(times, gap, done, self.network.sizes)

    def summary(self) -> Tensor:
        """Of whole stays, (n, F * SUMMARY + TIMES + 1)."""
        measured, shares = self.measured, self.shares
        place = torch.arange(self.gap.shape[1], device=self.gap.device)[:, None]
        latest = torch.where(measured > 0, place, -1).max(1)[0]
        last = shares.gather(1, latest.clamp_min(0)[:, None])[:, 0]
        return summary_of(
            last=torch.where(latest >= 0, last, 0.0),
            mean=shares.sum(1) / measured.sum(1).clamp_min(1.0),
            count=measured.sum(1),
            time=(self.times * self.present).amax(1),
            length=self.present.sum(1),
            sizes=self.network.sizes,
        )


def known(
    *, last: Tensor, mean: Tensor, ever: Tensor, since: Tensor, measured: Tensor, decays: Tensor
) -> Tensor:
    """What is known: a of some rows, (.., F, ABOUT), a one first."""
    fading = torch.exp(-since[..., None] / decays) * ever[..., None]
    parts = torch.stack([torch.ones_like(last), last, mean, ever, measured], -1)
    return torch.cat([parts, fading], -1)


def with_habits(about: Tensor, habits: Tensor) -> Tensor:
    """Joins a (.., F, ABOUT) and b (.., F): each habit but "never", and whether it is still due."""
    which = F.one_hot(habits, len(HABITS) + 1)[..., 1:].to(about.dtype)
    which = which.expand(*about.shape[:-1], -1)
    due = which * (1.0 - about[..., EVER : EVER + 1])
    return torch.cat([about, which, due], -1)


def read_inputs(about: Tensor) -> Tensor:
    """What the transformer reads of a and b: all but the one, and how often as one number."""
    order = torch.arange(1, len(HABITS) + 1, device=about.device)
    often = habit_shares((about[..., ABOUT : ABOUT + len(HABITS)] * order).sum(-1))
    return torch.cat([about[..., 1:ABOUT], often[..., None]], -1).flatten(-2)


def habit_shares(habits: Tensor) -> Tensor:
    """Habits as numbers from -1 to 1."""
    return 2.0 * habits / len(HABITS) - 1.0


def habit_inputs(habits: Tensor) -> Tensor:
    """What the habits of later columns may hang on: whether, and how often."""
    return torch.cat([(habits != NEVER).float(), habit_shares(habits)], -1)


def summary_of(
    *, last: Tensor, mean: Tensor, count: Tensor, time: Tensor, length: Tensor, sizes: Sizes
) -> Tensor:
    """What outcomes are drawn from: (n, F * SUMMARY + TIMES + 1).

    Of each column the last value, the mean, and how often it was measured; what says less is made
    smaller, or it would use up most of the clip norm.
    """
    often = habit_shares(habits_of(count, length))
    columns = torch.stack([last, mean, LESS * often], -1).flatten(1)
    about_time = [cosines(time / sizes.horizon), length[:, None] / sizes.steps]
    return torch.cat([columns, LESS * torch.cat(about_time, 1)], 1)


def habits_of(count: Tensor, length: Tensor) -> Tensor:
    """From rows (n, F) in which columns were measured, and rows (n,) in all."""
    share = count / length[:, None].clamp_min(1.0)
    return (share[..., None] > share.new_tensor(HABITS)).sum(-1)


def cosines(share: Tensor) -> Tensor:
    """cos(pi j share), j = 1 .. TIMES, on a new last axis."""
    order = torch.arange(1, TIMES + 1, device=share.device)
    return torch.cos(math.pi * order * share.clamp(0.0, 1.0)[..., None])


def time_inputs(times: Tensor, gap: Tensor, done: Tensor, sizes: Sizes) -> Tensor:
    """Of rows after `done` others, at `times`, the last of them after `gap`."""
    share = done.float() / sizes.steps
    before = F.one_hot(gap, sizes.gap + 1).float()
    return torch.cat([cosines(times / sizes.horizon), cosines(share), before, share[..., None]], -1)


def mask_inputs(gap_shares: Tensor, measured: Tensor) -> Tensor:
    """What "measured" may hang on within a row: the gap, and columns before."""
    return torch.cat([torch.stack([gap_shares, gap_shares.square()], -1), measured], -1)


def shares_of(codes: Tensor, levels: Tensor) -> Tensor:
    """The middle of a code's place among the levels, from -1 to 1; 0 for code 0."""
    return torch.where(codes > 0, (2 * codes - 1) / levels - 1.0, 0.0)


def one_hot(codes: Tensor, levels: tuple[int, ...]) -> Tensor:
    """(n, columns) -> (n, sum of levels + 1)."""
    if not levels:
        return torch.zeros(len(codes), 0, device=codes.device)
    parts = [F.one_hot(codes[:, place], count + 1) for place, count in enumerate(levels)]
    return torch.cat(parts, 1).float()


def most_coefficients(sizes: Sizes) -> int:
    """K: of a numeric column the cosines, of another its levels; the most of all columns."""
    unordered = [n for n, o in zip(sizes.temporal, sizes.ordered, strict=True) if not o]
    return max([COSINES, *unordered])


def _basis(sizes: Sizes) -> Tensor:
    """(F, K, levels): cosines over the bins of numeric columns, unit vectors of other ones."""
    basis = torch.zeros(len(sizes.temporal), most_coefficients(sizes), max(sizes.temporal))
    for place, (levels, ordered) in enumerate(zip(sizes.temporal, sizes.ordered, strict=True)):
        if ordered:
            order = torch.arange(1, min(COSINES, levels - 1) + 1)[:, None]
            middles = (torch.arange(levels) + 0.5) / levels
            basis[place, : len(order), :levels] = torch.cos(math.pi * order * middles)
        else:
            basis[place, :levels, :levels] = torch.eye(levels)
    return basis


def _mask_order(columns: int) -> Tensor:
    before = torch.ones(columns, columns).tril(-1)
    return torch.cat([torch.ones(columns, 2), before], 1).bool()


def _value_order(columns: int, k: int) -> Tensor:
    before = torch.ones(columns, columns).tril(-1).repeat_interleave(k, 0)
    return torch.cat([before, before], 1).bool()


def _habit_order(columns: int, static: int) -> Tensor:
    habits = len(HABITS) + 1
    before = torch.ones(columns, columns).tril(-1).repeat_interleave(habits, 0)
    return torch.cat([torch.ones(len(before), static), before, before], 1).bool()


def block_order(levels: tuple[int, ...]) -> Tensor:
    """Options of a column see those of the columns before."""
    owner = torch.tensor([place for place, n in enumerate(levels) for _ in range(n + 1)])
    if not len(owner):
        return torch.zeros(0, 0, dtype=torch.bool)
    return owner[:, None] > owner[None, :]
