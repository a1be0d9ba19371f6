"""Made records follow the histograms that they are settled by; no record is needed for that."""

import inspect
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from privet.data.dataset import Split
from privet.data.records.schema_file import schema_to_json
from privet.data.records.simulator import simulate
from privet.engine.account import Unpaid
from privet.models.generators import create_generator
from privet.models.record_levels import Levels
from privet.models.record_rows import RowSizes
from privet.privacy.randomness import Randomness
from privet.synthesis import settling
from privet.synthesis.private_shares import RARE, RARE_GAP, shares
from privet.synthesis.record_counts import Counts
from privet.synthesis.settling import Wanted, cut_points, noise_of_counts, settle, wanted
from privet.training.dpsgd import build, take_steps

sys.path.insert(0, str(Path(__file__).parent))
from family_cases import DATA, batch, made, settings_of

SCHEMA = simulate(8, seed=5).schema
NAME = "transformer-16-1-4+aligned+generator+levels+masks+near+spread+start"
ONE_ROW = replace(SCHEMA, max_steps=1)  # stays, hence cells, are then independent
SETTLED, DRAWN = 40_000, 4_000
RATE = 1e-6  # of a false alarm, in each column
CATEGORIES = (7, 8)  # of the columns
WHOLE = {"batch": DATA.nominal_size, "epochs": 6.0}  # every patient in every step: quick to plan


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
    cells = made_codes(maker, 4_000, 90)
    there = cells[..., -1] > 0
    for place in range(cells.shape[2] - 1):
        rate = (cells[..., place][there] > 0).mean()
        assert rate == pytest.approx(columns[place].filled, abs=0.03)


def test_rows_that_are_not_there_have_no_say_in_how_often_cells_are_filled():
    """Of short stays in a long table: most rows are none."""
    schema = replace(SCHEMA, max_steps=12)
    columns, maker = any_columns(schema), maker_of(schema)
    columns[-2] = replace(columns[-2], filled=0.2)
    settle(maker, columns, stays=2_000, seed=0)
    cells = made_codes(maker, 4_000, 90)
    there = cells[..., -1] > 0
    assert there.mean() < 0.15
    for place in range(cells.shape[2] - 1):
        rate = (cells[..., place][there] > 0).mean()
        assert rate == pytest.approx(columns[place].filled, abs=0.04)


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


def test_gaps_are_rare_later_than_values_and_categories_are_not_smoothed():
    """Of a noisy histogram, each column as `shares` has it: its noise, its order, what is rare."""
    counted = Counts(RowSizes.of(SCHEMA))
    counts = 5 * torch.rand(counted.width, generator=drawing(0))
    counts[1 + np.cumsum([0, *counted.widths[:-1]])] += 10  # more than noise, in every column
    for column, own, noise, place in zip(
        wanted(counts, 1.0, counted, SCHEMA),
        counted.split(counts),
        counted.noises(1.0),
        range(99),
        strict=False,
    ):
        gap, ordered = place >= len(SCHEMA.temporal), place not in CATEGORIES
        expected = shares(own[1:], noise, ordered=ordered, rare=RARE_GAP if gap else RARE)
        assert torch.equal(column.shares, expected)
        other = shares(own[1:], noise, ordered=not ordered)
        assert len(other) < 3 or not torch.allclose(column.shares, other)


def test_noise_alone_says_nothing_of_any_column():
    """Of few patients counts are noise: an odds or a histogram of it would be made up."""
    counted = Counts(RowSizes.of(SCHEMA))
    noise = torch.randn(counted.width, generator=drawing(0))
    assert all(column is None for column in wanted(noise, 1.0, counted, SCHEMA))
    heard = noise + 4.0  # deviations, in every bin
    assert all(column is not None for column in wanted(heard, 1.0, counted, SCHEMA))


def test_a_column_that_nothing_is_said_of_stays_as_it_is():
    columns, maker = any_columns(ONE_ROW), maker_of(ONE_ROW)
    before = {name: value.clone() for name, value in maker.levels.state_dict().items()}
    settle(maker, [None, *columns[1:]], stays=400, seed=0)
    after = maker.levels.state_dict()
    assert before.keys() == after.keys()
    for name in ("cuts", "odds"):
        same = [torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True)]
        assert same[0]
        assert not any(same[1 : len(ONE_ROW.temporal)])


class NoRecords:
    """In place of a dataset; whoever asks it for anything is found out."""

    def __getattr__(self, name):
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("looked_at", [slice(8), slice(8, 20)])
def test_what_is_released_follows_from_averages_private_counts_and_the_plan(looked_at):
    """By hand, whatever batch was looked at last."""
    settings, model, _ = made("vae", settling=40, **WHOLE)
    plan, counted = settings.plan_for(DATA), model.counted
    counts = 5 * torch.rand(counted.width, generator=drawing(1))
    with torch.no_grad():
        model.counts.weight.copy_(counts[None])
    model(batch(looked_at)[0]).sum().backward()
    released = settings.made_of(model, NoRecords(), plan)
    noise = noise_of_counts(model, plan, settings.extras().geometry)
    expected = model.averaged.maker()
    settle(expected, wanted(counts, noise, counted, SCHEMA), stays=40, seed=settings.init_seed)
    state = expected.state_dict()
    assert released.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in released.state_dict().items())
    assert not torch.allclose(state["levels.cuts"], Levels(RowSizes.of(SCHEMA).levels).cuts)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"clip_norm": 0.3},
        {"clipping": "weighted"},
        {"sampler": "cyclic-poisson", "cycle": 3, "bands": 3, "batch": 8, "epochs": 4.0},
    ],
    ids=["by-part", "clip-norm", "weighted", "correlated"],
)
def test_the_noise_of_the_counts_is_what_is_told(how):
    """By the engine, on a stay without a row: what the counts are then is noise, but for one."""
    settings = settings_of("aae", settling=1, free_steps=0, free_batch=2, **WHOLE | how)
    blank = replace(DATA, train=Split(x=0 * DATA.train.x[:1], y=DATA.train.y[:1]))
    plan = settings.plan_for(blank)
    randomness = Randomness.seeded(1, settings.init_seed)
    trainer = build(blank, settings, plan, randomness=randomness, account=Unpaid())
    take_steps(trainer, settings, None, None)
    terms = trainer.model
    phases = [terms.phase_at(step, plan.steps) for step in range(plan.steps)]
    assert 1 < phases.count("coders") < plan.steps
    told = noise_of_counts(terms, plan, settings.extras().geometry)
    *noise, first = torch.split(terms.counts.weight[0].detach(), terms.counted.widths)
    noise = torch.cat([*noise, first[1:]])  # without: that there is no first row
    assert len(noise) > 200
    assert float(noise.square().mean().sqrt()) == pytest.approx(told, rel=0.15)


def test_settling_is_handed_no_record_and_the_seed_decides():
    assert list(inspect.signature(settle).parameters) == ["maker", "columns", "stays", "seed"]
    assert list(inspect.signature(settling.settled).parameters) == [
        "terms",
        "plan",
        "geometry",
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
