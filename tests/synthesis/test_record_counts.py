"""Counts of a stay's cells by bin: against counting by hand, and what one stay can weigh."""

import sys
from pathlib import Path

import numpy as np
import torch

from privet.data.records.coding import encode
from privet.data.records.simulator import simulate
from privet.models.record_rows import RecordRows, RowSizes
from privet.synthesis.record_counts import Counts
from privet.synthesis.record_terms import summed

sys.path.insert(0, str(Path(__file__).parent))
from family_cases import batch, made

RECORDS = simulate(30, seed=3)
CODES = encode(RECORDS)
SIZES = RowSizes.of(RECORDS.schema)
COUNTS = Counts(SIZES)


def by_hand(codes):
    """Of one matrix of codes, cell by cell: counts of each column, as `Levels` has them."""
    rows, features = codes[1:], SIZES.features
    found = [np.zeros(width) for width in COUNTS.widths]
    for t, row in enumerate(rows):
        found[features if t == 0 else features - 1][row[0]] += 1
        if row[0] == 0:
            break
        for place in range(features - 1):
            found[place][row[1 + place]] += 1
    return found


def counted(codes, **cut):
    rows = RecordRows(SIZES).read(torch.from_numpy(codes).float() / 255, **cut)
    return COUNTS.of(rows.x, rows.m)


def test_counts_are_those_by_hand():
    for stay, codes in zip(counted(CODES), CODES, strict=True):
        for ours, expected in zip(COUNTS.split(stay), by_hand(codes), strict=True):
            assert torch.allclose(ours, torch.from_numpy(expected).float(), atol=1e-5)


def test_a_stay_as_long_as_may_be_has_no_end():
    codes = np.ones_like(CODES[:1])
    gap = COUNTS.split(counted(codes)[0])[-2]
    assert gap[0] == 0
    assert gap.sum() == SIZES.steps - 1


def test_how_many_empty_rows_follow_does_not_matter():
    assert torch.equal(counted(CODES), counted(CODES, cut=True))


def test_the_gradient_of_the_counts_is_the_stay():
    """Each stay its own histogram, by hand, times a public number; nothing of the others."""
    _, model, _ = made("igamt")
    x, y = batch(slice(6))
    for codes, loss in zip((255 * x).round().byte().numpy(), summed(model(x), y), strict=True):
        (slope,) = torch.autograd.grad(loss, model.counts.weight, retain_graph=True)
        *others, gap, first = (torch.from_numpy(part).float() for part in by_hand(codes))
        weight = model.counted.gap_weight
        expected = torch.cat([*others, weight * gap, weight * first])
        assert torch.allclose(slope[0], -model.weights.counts * expected, atol=1e-6)


def test_few_simulated_stays_are_shortened():
    """Or histograms would be those of short stays."""
    settings, model, _ = made("igamt")
    records = simulate(400, seed=9)
    scaled = model.weights.counts * counted(encode(records))
    longer = scaled.norm(dim=1) > settings.radii()["counts"] * settings.clip_norm
    assert longer.float().mean() < 0.1


def test_noise_is_told_in_the_units_of_split_counts():
    noise = torch.randn(20_000, COUNTS.width, generator=torch.Generator().manual_seed(0))
    parts = zip(*(COUNTS.split(row) for row in noise), strict=True)
    for part, told in zip(parts, COUNTS.noises(1.0), strict=True):
        assert abs(torch.stack(part).std() / told - 1) < 0.03
