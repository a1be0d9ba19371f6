from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.missing_patterns import (
    after_value,
    co_missing,
    compare,
    empty_per_record,
)
from privet.synthesis.evaluation.side import Side


def with_gaps(records, empty):
    full = np.where(np.isnan(records.values), 50.0, records.values)
    return replace(records, values=np.where(empty, np.nan, full))


@pytest.fixture
def masks(make_records):
    """Two records with the same rates: two columns empty together, or never together."""
    records = make_records(300)
    rng = np.random.default_rng(1)
    coin = rng.random(len(records.times)) < 0.5
    none = np.zeros_like(coin)
    together = with_gaps(records, np.stack([coin, coin, none, none], axis=1))
    apart = with_gaps(records, np.stack([coin, ~coin, none, none], axis=1))
    return together, apart


def test_records_against_themselves_have_the_same_patterns(make_records, beside):
    records = make_records(200)
    figures = compare(beside(records, records)).figures
    flat = {k: v for k, v in figures.items() if k != "after_value"}
    assert set(flat.values()) == {0.0}


def test_columns_that_are_empty_together_are_told_from_those_that_are_not(masks, beside):
    together, apart = masks
    assert co_missing(Side(together))[0, 1] == pytest.approx(1)
    assert co_missing(Side(apart))[0, 1] == pytest.approx(-1)
    figures = compare(beside(together, apart)).figures
    assert figures["joint_largest"] == pytest.approx(2)
    assert figures["joint_mean"] == pytest.approx(2 / 6)  # one of six pairs


def test_gaps_at_other_times_are_seen_by_row_and_by_time(make_records, beside):
    records = make_records(300)
    early = (records.step_of_row < 2)[:, None] & np.array([True, False, False, False])
    late = (records.step_of_row == 2)[:, None] & np.array([True, False, False, False])
    figures = compare(beside(with_gaps(records, early), with_gaps(records, late))).figures
    share = np.bincount(records.step_of_row)[:3].sum() / len(records.times)
    assert figures["by_step_mean"] == pytest.approx(100 * share / 4)
    assert figures["by_time_mean"] > 1


def test_gaps_that_depend_on_the_value_before_are_seen(make_records, beside):
    records = make_records(500)
    pulse = np.nan_to_num(records.values[:, 0], nan=100.0)
    high_before = np.concatenate([[False], pulse[:-1] > 110])
    rng = np.random.default_rng(2)
    empty = np.zeros(records.values.shape, dtype=bool)
    empty[:, 0] = np.where(high_before, rng.random(len(pulse)) < 0.9, rng.random(len(pulse)) < 0.1)
    dependent = with_gaps(records, empty)
    shuffled = with_gaps(records, rng.permutation(empty))
    assert after_value(Side(dependent), 0) > 0.3
    assert abs(after_value(Side(shuffled), 0)) < 0.1
    found = compare(beside(dependent, shuffled)).figures
    assert found["after_value"]["pulse"]["error"] > 0.3
    assert found["after_value"]["rhythm"]["error"] is None  # words have no order


def test_the_value_before_is_never_one_of_another_stay(make_schema, make_records):
    """Every stay has one value, in its first row, and then gaps: all that is known is emptiness."""
    records = make_records(100)
    empty = np.repeat((records.step_of_row > 0)[:, None], 4, axis=1)
    one = with_gaps(records, empty)
    assert after_value(Side(one), 0) == 0.0  # always empty after a value: constant


def test_empty_cells_of_a_record_are_a_mean_over_columns(make_records):
    records = make_records(3)
    empty = np.zeros(records.values.shape, dtype=bool)
    empty[:, :2] = True
    assert list(empty_per_record(Side(with_gaps(records, empty)))) == list(records.lengths / 2)
