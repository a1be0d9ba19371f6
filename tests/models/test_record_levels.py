"""Cut points: bins' own edges at first, monotone, and the same for a maker and a reader."""

import pytest
import torch

from privet.data.records.schema_file import schema_to_json
from privet.data.records.simulator import simulate
from privet.models.generators import create_generator
from privet.models.record_levels import Levels
from privet.models.record_rows import RecordRows, RowSizes

RECORDS = simulate(8, seed=5)
SIZES = RowSizes.of(RECORDS.schema)
NAME = "transformer-16-1-4+aligned+generator+masks+near+spread+start"


def drawing(seed=0):
    return torch.Generator().manual_seed(seed)


def shuffled(seed=0):
    """Cut points anywhere, in order, and odds."""
    levels = Levels(SIZES.levels)
    for place, bins in enumerate(levels.levels):
        cuts = torch.randn(bins - 1, generator=drawing(seed + place)).sort().values
        levels.cuts[place, : bins - 1] = 0.5 + cuts
    levels.odds.copy_(torch.randn(len(levels.levels), generator=drawing(seed)))
    return levels


@pytest.mark.parametrize("row", [0, 3])
def test_at_first_nothing_changes(row):
    levels, reader = Levels(SIZES.levels), RecordRows(SIZES)
    x = torch.rand(500, SIZES.features, generator=drawing())
    assert torch.allclose(levels.binned(x, row), reader.binned(x), atol=1e-6)
    assert torch.allclose(levels.chances(x, row), x, atol=1e-5)


@pytest.mark.parametrize("row", [0, 3])
def test_a_larger_value_is_in_no_lower_bin(row):
    """And bins are those of the column: from the first to the last, in the middle of each."""
    levels = shuffled()
    x = torch.linspace(-5, 6, 4000)[:, None].expand(-1, SIZES.features)
    found = levels.binned(x, row)
    assert (found.diff(dim=0) >= 0).all()
    for place, bins in enumerate(SIZES.levels):
        codes = found[:, place].double() * bins + 0.5
        assert codes.min().round() == 1
        assert codes.max().round() == bins
        assert torch.allclose(codes, codes.round(), atol=1e-4)


def test_the_first_gap_has_cut_points_of_its_own():
    levels = Levels(SIZES.levels)
    levels.cuts[-1] = 1e6
    x = torch.full((1, SIZES.features), 0.9)
    first, later = levels.binned(x, 0)[0], levels.binned(x, 1)[0]
    assert torch.equal(first[:-1], later[:-1])
    assert first[-1] == pytest.approx(0.5 / SIZES.levels[-1])
    assert later[-1] > 0.8


def test_gradients_pass_as_if_values_had_not_moved():
    x = torch.rand(4, SIZES.features, generator=drawing()).requires_grad_()
    (slope,) = torch.autograd.grad((3 * shuffled().binned(x, 1)).sum(), x)
    assert torch.equal(slope, torch.full_like(x, 3.0))


def test_odds_are_added_to_the_logits():
    levels = Levels(SIZES.levels)
    levels.odds.fill_(torch.log(torch.tensor(3.0)))
    chances = levels.chances(torch.full((2, SIZES.features), 0.5), 1)
    assert torch.allclose(chances, torch.tensor(0.75), atol=1e-5)


def test_what_is_fed_back_is_what_a_reader_of_the_codes_sees():
    maker = create_generator(f"{NAME}+levels", schema_to_json(RECORDS.schema)).eval()
    maker.levels.load_state_dict(shuffled().state_dict())
    start = maker.draw_start(40, drawing())
    made = maker.draw_rows(start, drawing(1))
    read = maker.reader.read(maker.reader.codes(made.x, made.m, start) / 255)
    assert torch.equal(read.m, made.m)
    assert torch.allclose(read.xm, made.xm, atol=1e-6)


def test_a_maker_with_the_bins_own_edges_makes_the_same():
    """The flag alone changes nothing; moved cut points do."""
    json = schema_to_json(RECORDS.schema)
    plain, cut = (
        create_generator(name, json, init_seed=3).eval() for name in (NAME, f"{NAME}+levels")
    )
    start = plain.draw_start(20, drawing())
    one, two = (maker.draw_rows(start, drawing(1)) for maker in (plain, cut))
    assert torch.equal(one.m, two.m)
    assert torch.allclose(one.xm, two.xm, atol=1e-6)
    cut.levels.cuts.sub_(0.2)
    assert (cut.draw_rows(start, drawing(1)).x[:, 0] >= one.x[:, 0] - 1e-6).all()
    assert not torch.allclose(cut.draw_rows(start, drawing(1)).x[:, 0], one.x[:, 0])
