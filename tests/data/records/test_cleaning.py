"""What the known sources' readers do to rows, with the counts they must return."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.cleaning import merge_rows, without_empty_rows, without_impossible
from privet.data.records.records import PatientRecords
from privet.errors import InputError

NAN = np.nan


@pytest.fixture
def two(ward):
    return PatientRecords(
        schema=ward(static=(), outcomes=()),
        patients=np.array(["a", "b", "c"]),
        stays=np.array(["1", "2", "3"]),
        static=np.empty((3, 0)),
        outcomes=np.empty((3, 0)),
        offsets=np.array([0, 4, 4, 6]),
        times=np.array([0.0, 29.0, 30.0, 61.0, 0.0, 5.0]),
        values=np.array(
            [
                [1, 36, NAN, NAN],
                [2, NAN, 0, NAN],
                [3, NAN, NAN, NAN],
                [NAN, NAN, NAN, NAN],
                [5, -17.8, NAN, NAN],
                [NAN, 36, NAN, NAN],
            ]
        ),
    )


def test_rows_of_a_window_are_merged_and_the_last_value_counts(two):
    merged, rows, replaced = merge_rows(two, 30)
    assert merged.offsets.tolist() == [0, 3, 3, 4]
    assert merged.times.tolist() == [29.0, 30.0, 61.0, 5.0]
    np.testing.assert_array_equal(
        merged.values,
        [[2, 36, 0, NAN], [3, NAN, NAN, NAN], [NAN, NAN, NAN, NAN], [5, 36, NAN, NAN]],
    )
    assert (rows, replaced) == (2, 2)


def test_zero_merges_nothing_and_less_is_refused(two):
    assert merge_rows(two, 0) == (two, 0, 0)
    with pytest.raises(InputError, match="merge_within"):
        merge_rows(two, -1)


def test_empty_rows_are_left_out(two):
    kept, left_out = without_empty_rows(two)
    assert (kept.offsets.tolist(), left_out) == ([0, 3, 3, 5], 1)
    assert 61.0 not in kept.times


def test_impossible_values_are_missing_and_counted(two):
    cleaned, counts = without_impossible(two, {"temp": (20, 45)})
    assert counts == {"temp": 1}
    assert np.isnan(cleaned.values[4, 1])
    assert two.values[4, 1] == -17.8  # what was given stays as it was


@given(records=st.from_type(PatientRecords), within=st.floats(1e-2, 1e7))
def test_merging_loses_no_stay_and_counts_every_value(records, within):
    merged, rows, replaced = merge_rows(records, within)
    assert len(merged) == len(records)
    assert len(merged.times) + rows == len(records.times)
    there = (~np.isnan(records.values)).sum()
    assert (~np.isnan(merged.values)).sum() + replaced == there
    window = merged.times // within
    same_stay = np.diff(merged.stay_of_row) == 0
    assert (np.diff(window)[same_stay] > 0).all()
