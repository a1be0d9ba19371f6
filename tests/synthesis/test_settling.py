"""Made records follow the histograms that they are settled by; no record is needed for that."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from privet.data.records.schema_file import schema_to_json
from privet.data.records.simulator import simulate
from privet.models.generators import create_generator
from privet.models.record_levels import Levels
from privet.models.record_rows import RowSizes
from privet.synthesis import settling
from privet.synthesis.record_counts import Counts
from privet.synthesis.settling import Wanted, cut_points, settle, wanted

SCHEMA = simulate(8, seed=5).schema
NAME = "transformer-16-1-4+aligned+generator+levels+masks+near+spread+start"
ONE_ROW = replace(SCHEMA, max_steps=1)  # stays, hence cells, are then independent
SETTLED, DRAWN = 40_000, 4_000
RATE = 1e-6  # of a false alarm, in each column


def drawing(seed):
    return torch.Generator().manual_seed(seed)


def any_columns(schema, seed=1):
    """Histograms that have nothing to do with the maker."""
    columns = []
    for bins in Levels(RowSizes.of(schema).levels).levels:
        shares = torch.rand(bins, generator=drawing(seed + bins), dtype=torch.float64) ** 2
        columns.append(Wanted(shares=shares / shares.sum(), filled=0.3 + 0.5 / bins))
    return columns


def maker_of(schema):
    return create_generator(NAME, schema_to_json(schema), init_seed=4).eval()


def made_codes(maker, n, seed):
    codes = maker.draw_codes(maker.draw_static(n, drawing(seed)), drawing(seed + 1))
    return np.concatenate([codes[..., 1:10], codes[..., :1]], 2)[:, 1:].astype(int)


def strays(found, columns):
    """Columns in which codes of one row do not follow the shares, by chi-square."""
    out = []
    for place in range(found.shape[1]):
        column = columns[-1] if place == found.shape[1] - 1 else columns[place]
        codes = found[:, place]
        codes = codes[codes > 0]
        expected = column.shares.numpy() * len(codes)
        counts = np.bincount(codes, minlength=len(expected) + 1)[1:]
        enough = expected >= 5
        parts = (counts - expected)[enough] ** 2 / expected[enough]
        # Cut points are themselves found from so many stays.
        statistic = parts.sum() / (1 + DRAWN / SETTLED)
        if statistic > chi2.ppf(1 - RATE, max(1, enough.sum() - 1)):
            out.append(place)
    return out


def test_made_records_follow_the_histograms():
    columns, maker = any_columns(ONE_ROW), maker_of(ONE_ROW)
    before = made_codes(maker, DRAWN, 70)[:, 0]
    assert len(strays(before, columns)) == before.shape[1], "the test can fail"
    settle(maker, columns, stays=SETTLED, seed=0)
    after = made_codes(maker, DRAWN, 80)[:, 0]
    assert strays(after, columns) == []
    for place in range(after.shape[1] - 1):
        wish = columns[place].filled
        assert abs((after[:, place] > 0).mean() - wish) < 5 * np.sqrt(wish * (1 - wish) / DRAWN)


def test_cut_points_off_by_a_bin_are_seen(monkeypatch):
    """Planted."""
    inner = cut_points
    monkeypatch.setattr(settling, "cut_points", lambda v, s: inner(v, s.roll(1)))
    with pytest.raises(AssertionError):
        test_made_records_follow_the_histograms()


def test_gaps_and_lengths_of_many_rows_follow_too():
    """Fed back, row by row. Of 12,000 gaps in 24 bins, shares are off by about 0.05 in all."""
    schema = replace(SCHEMA, max_steps=8)
    columns, maker = any_columns(schema), maker_of(schema)
    columns[-2] = replace(columns[-2], filled=0.8)
    settle(maker, columns, stays=4_000, seed=0)
    gaps = made_codes(maker, 4_000, 90)[..., -1]
    later = gaps[:, 1:][gaps[:, 1:] > 0]
    found = np.bincount(later, minlength=schema.gap.levels + 1)[1:] / len(later)
    assert np.abs(found - columns[-2].shares.numpy()).sum() < 0.1
    asked = (gaps[:, :-1] > 0).sum()
    assert len(later) / asked == pytest.approx(columns[-2].filled, abs=0.02)


def test_cut_points_are_in_order_and_beyond_all_values_where_bins_are_empty():
    values = torch.randn(1000, generator=drawing(0))
    shares = torch.tensor([0.0, 0.25, 0.5, 0.25, 0.0, 0.0])
    cuts = cut_points(values, shares)
    assert (cuts.diff() >= 0).all()
    assert cuts[0] < values.min() - 1000
    assert (cuts[3:] > values.max() + 1000).all()
    assert (values < cuts[1]).float().mean() == pytest.approx(0.25)
    assert (values < cuts[2]).float().mean() == pytest.approx(0.75)


def test_wanted_is_what_the_counts_say():
    """From counts of stays without noise: shares and rates of the stays themselves."""
    counted = Counts(RowSizes.of(SCHEMA))
    counts = torch.rand(counted.width, generator=drawing(0)) + 0.5
    for column, own in zip(
        wanted(counts, 1e-5, counted, SCHEMA), counted.split(counts), strict=True
    ):
        assert torch.allclose(column.shares, (own[1:] / own[1:].sum()).double(), atol=1e-3)
        assert column.filled == pytest.approx(float(own[1:].sum() / own.sum()), abs=1e-4)


def test_settling_is_handed_no_record_and_the_seed_decides():
    assert list(inspect.signature(settle).parameters) == ["maker", "columns", "stays", "seed"]
    assert list(inspect.signature(settling.settled).parameters) == [
        "terms",
        "plan",
        "stays",
        "seed",
    ]
    source = inspect.getsource(settling).lower()
    assert "dataset" not in source
    assert "records.records" not in source
    ends = []
    for _ in range(2):
        maker = maker_of(ONE_ROW)
        settle(maker, any_columns(ONE_ROW), stays=200, seed=3)
        ends.append(maker.state_dict())
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
