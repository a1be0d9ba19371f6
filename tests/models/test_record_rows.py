"""Codes to values and masks, and back."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from privet.data.records.coding import encode
from privet.data.records.simulator import simulate
from privet.models.record_rows import AFTER, TIME_BINS, RecordRows, RowSizes

sys.path.insert(0, str(Path(__file__).parent))
from small_records import codes_of, reader


def test_known_values():
    """Gap, x and c of codes (2, 3, 1): middles of their bins; the gap goes last."""
    rows = reader().read(codes_of((2, 3, 1), (1, 0, 2)) / 255)
    assert torch.allclose(rows.x[0, 0], torch.tensor([2.5 / 4, 0.5 / 2, 1.5 / 5]))
    assert rows.m[0].tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert rows.start.tolist() == [[3, 2, 1]]
    assert rows.present[0].tolist() == [1, 1, 0, 0]
    assert rows.asked[0].tolist() == [1, 1, 1, 0]


def test_what_follows_an_absent_row_is_not_read():
    rows = reader().read(codes_of((2, 3, 1), (0, 4, 2), (1, 4, 2)) / 255)
    assert rows.m[0].sum() == 3


def test_start_row_has_shares_and_one_hot_codes():
    row = reader().start_row(torch.tensor([[3, 2, 1], [0, 0, 0]]))
    assert row.tolist() == [[0.25, 0, 1, 0, 1, 0], [0] * 6]


def test_inputs_are_shifted_by_one():
    own = reader(with_masks=True)
    rows = own.read(codes_of((2, 3, 1), (1, 0, 2)) / 255)
    inputs, time = own.inputs(rows)
    assert torch.equal(inputs[:, 0], own.start_row(rows.start))
    assert torch.equal(inputs[0, 1], torch.cat([rows.x[0, 0], rows.m[0, 0]]))
    assert torch.equal(time[0, 1:], rows.time[0, :-1])
    assert time[0, 0] == 0


def test_simulated_stays_come_back_exactly():
    """Of every schema column, static ones, outcomes, gaps."""
    records = simulate(200, seed=3)
    own = RecordRows(RowSizes.of(records.schema))
    codes = torch.from_numpy(encode(records))
    rows = own.read(codes / 255)
    assert torch.equal(own.codes(rows.x, rows.m, rows.start), codes)


def test_cut_rows_are_the_same_rows():
    codes = torch.from_numpy(encode(simulate(50, seed=1)))
    schema = simulate(1).schema
    own = RecordRows(RowSizes.of(schema))
    whole, cut = own.read(codes / 255), own.read(codes / 255, cut=True)
    longest = int(whole.present.sum(1).max())
    assert cut.x.shape[1] == min(longest + AFTER, schema.max_steps)
    for name in ("x", "m"):
        assert torch.equal(getattr(whole, name)[:, : cut.x.shape[1]], getattr(cut, name))
    assert torch.equal(own.codes(cut.x, cut.m, cut.start), codes)


def test_a_stay_has_at_least_one_row_and_ends_at_the_first_without_a_gap():
    own = reader()
    x = torch.full((1, 4, 3), 0.4)
    m = torch.tensor([[[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1.0]]])
    codes = own.codes(x, m, torch.tensor([[1, 1, 1]]))
    assert codes[0, 1:, 0].tolist() == [2, 2, 0, 0]
    assert codes[0, 3:].sum() == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_at_the_ends_have_a_code(share):
    own = reader()
    codes = own.codes(torch.full((1, 4, 3), share), torch.ones(1, 4, 3), torch.zeros(1, 3).long())
    assert codes[0, 1].tolist() == ([1, 1, 1] if share == 0 else [5, 4, 2])


def test_time_runs_with_the_gaps():
    """The time read equals the one a decoder keeps for itself from the shares of the gaps."""
    records = simulate(30, seed=2)
    own = RecordRows(RowSizes.of(records.schema))
    rows = own.read(torch.from_numpy(encode(records)) / 255)
    elapsed = torch.zeros(len(records))
    for step in range(own.sizes.steps):
        elapsed = elapsed + own.gap_time(rows.x[:, step, -1]) * rows.m[:, step, -1]
        there = rows.present[:, step] > 0
        assert torch.equal(own.time_index(elapsed)[there], rows.time[there, step])


def test_times_use_the_table():
    own = reader()
    far = torch.tensor([0.0, 1e-9, 0.01, 0.1, 1.0, 4.0, 1e9])
    index = own.time_index(far)
    assert index[0] == 0
    assert index[-1] == TIME_BINS - 1
    assert (index.diff() >= 0).all()
    assert len(set(index.tolist())) >= 5


def test_nothing_is_learned_or_saved():
    assert not list(reader().parameters())
    assert not reader().state_dict()
    assert np.isclose(float(reader().gap_time(torch.tensor([1.0]))), float(reader().gap_times[-1]))
