"""Records as often in each bin, and cells as often filled, as private histograms say.

| symbol | here      | meaning                                                                   |
|--------|-----------|---------------------------------------------------------------------------|
| p      | `shares`  | of a column's bins, from its noisy counts (`private_shares`)              |
| r      | `filled`  | how often a cell of it is filled; of the gap: how often there is a row more |
| c, o   | `Levels`  | cut points and odds of the maker                                          |

    in each of a few turns:
        stays are made
        c <- the quantiles of their drawn values at the cumulated p
        o <- o + logit r - logit of how often their cells are filled

Rows that are made are fed back, so that a turn changes what the next one sees. A column whose
filled cells are counted as no more than noise alone would be stays as it is: of few patients, and
of what is hardly ever measured, counts say nothing.

Guarantee: post-processing. It is handed a maker, noisy counts and public numbers: no record.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.data.records.features import Numeric
from privet.data.records.schema import Schema
from privet.engine.plan import Plan
from privet.models.record_coders import Made
from privet.models.record_levels import FAR, Levels
from privet.models.record_maker import RecordMaker
from privet.privacy.geometry import Geometry, Region
from privet.synthesis.private_shares import RARE, RARE_GAP, shares
from privet.synthesis.record_counts import Counts
from privet.synthesis.record_terms import CODERS, RecordTerms

TURNS: Final = 4
LEAST: Final = 1e-4  # of chances
HEARD: Final = 3.0  # deviations of its noise, which the count of a column's filled cells must pass


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """Of one column: shares of its bins, and how often its cells are filled."""

    shares: Tensor
    filled: float


def settled(
    terms: RecordTerms, plan: Plan, geometry: Geometry, *, stays: int, seed: int
) -> RecordMaker:
    """What a trained member releases, by the counts that its first phase learned."""
    counts, noise = terms.counts.weight[0].detach(), noise_of_counts(terms, plan, geometry)
    columns = wanted(counts, noise, terms.counted, terms.networks.schema)
    maker = terms.averaged.maker().to(counts.device)
    settle(maker, columns, stays=stays, seed=seed)
    return maker.cpu()


def noise_of_counts(terms: RecordTerms, plan: Plan, geometry: Geometry) -> float:
    """The deviation of the noise in each entry of the private mean counts: public numbers alone."""
    phases = [terms.phase_at(step, plan.steps) for step in range(plan.steps)]
    noise = plan.noise.mean_deviation(phases.count(CODERS))  # the coders are first
    scale = Region(geometry, terms, plan.clip_norm).scales["counts.weight"]
    return noise / (scale * plan.normaliser * terms.weights.counts)


def wanted(counts: Tensor, noise: float, counted: Counts, schema: Schema) -> list[Wanted | None]:
    """What noisy mean counts, (width,) with this deviation, say of each column, if anything."""
    ordered = [isinstance(feature, Numeric) for feature in schema.temporal]
    kinds = [(flag, RARE) for flag in ordered] + [(True, RARE_GAP)] * 2
    columns = zip(counted.split(counts), counted.noises(noise), kinds, strict=True)
    return [_wanted(column, own, ordered=flag, rare=rare) for column, own, (flag, rare) in columns]


def _wanted(column: Tensor, noise: float, *, ordered: bool, rare: float) -> Wanted | None:
    """Of one column, whose code 0 is an empty cell."""
    bins = column[1:]
    if bins.sum() <= HEARD * noise * math.sqrt(len(bins)):
        return None
    filled = _chance(bins.sum() / column.sum().clamp_min(noise))
    return Wanted(shares=shares(bins, noise, ordered=ordered, rare=rare), filled=filled)


@torch.no_grad()
def settle(maker: RecordMaker, columns: Sequence[Wanted | None], *, stays: int, seed: int) -> None:
    """Choose the maker's cut points and odds, by so many stays in each turn."""
    levels = maker.levels
    assert levels is not None
    device = levels.cuts.device
    for turn in range(TURNS):
        generator = torch.Generator(device).manual_seed(seed + turn)
        made = maker.draw_rows(maker.draw_start(stays, generator), generator)
        for place, column in enumerate(columns):
            if column is not None:
                _settle_column(levels, place, column, made)


def _settle_column(levels: Levels, place: int, column: Wanted, made: Made) -> None:
    """Cut points and odds of one column, from stays that were made by the ones before."""
    assert made.drawn is not None
    gap, there = made.m.shape[2] - 1, made.m[..., -1]
    at, rows = min(place, gap), _rows(place, gap)
    values = made.drawn[:, rows, at][made.m[:, rows, at] > 0]
    if len(values):
        levels.cuts[place, : levels.levels[place] - 1] = cut_points(values, column.shares)
    asked = there if place < gap else F.pad(there[:, :-1], (1, 0), value=1.0)
    chances = made.chance[:, rows, at][asked[:, rows] > 0]
    if place <= gap and len(chances):  # every stay has a first row
        levels.odds[place] += _logit(column.filled) - _logit(_chance(chances.mean()))


def _rows(place: int, gap: int) -> slice:
    """In which a column of `Levels` is: all, all but the first, the first."""
    return slice(None) if place < gap else slice(1, None) if place == gap else slice(0, 1)


def cut_points(values: Tensor, shares: Tensor) -> Tensor:
    """(bins - 1,): as large a share of the values lies between two as their bin should have.

    Bins that would get less than half a value get none: a single larger value, drawn later, must
    not fall into the last one.
    """
    ordered = values.sort().values
    above = (shares.cumsum(0)[:-1] * len(values)).round().long().to(values.device)
    edges = torch.cat([ordered[:1] - FAR, ordered, ordered[-1:] + FAR])
    return (edges[above] + edges[above + 1]) / 2


def _chance(share: Tensor) -> float:
    return float(share.clamp(LEAST, 1.0 - LEAST))


def _logit(chance: float) -> float:
    return float(torch.logit(torch.tensor(chance)))
