"""Records as tensors and back, exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.records import PatientRecords
from privet.data.records.tensors import from_tensors, to_tensors
from privet.errors import InputError


@given(records=st.from_type(PatientRecords))
def test_the_round_trip_is_exact(records, assert_same):
    assert_same(from_tensors(to_tensors(records)), records)


@given(records=st.from_type(PatientRecords), steps=st.integers(1, 6))
def test_longer_stays_are_cut_and_shorter_ones_padded(records, steps, assert_same):
    tensors = to_tensors(records, steps)
    assert tensors.values.shape == (len(records), steps, 4)
    assert tensors.present.sum(1).tolist() == np.minimum(records.lengths, steps).tolist()
    assert_same(from_tensors(tensors), records.first_steps(steps))


def test_what_is_absent_or_missing_is_zero(ward):
    records = PatientRecords(
        schema=ward(),
        patients=np.array(["a", "b"]),
        stays=np.array(["1", "2"]),
        static=np.array([[50, np.nan], [60, 1]]),
        outcomes=np.array([[0], [1]], dtype=float),
        offsets=np.array([0, 2, 3]),
        times=np.array([1.0, 2.0, 3.0]),
        values=np.array([[1, np.nan, np.nan, 4], [5, 6, np.nan, 8], [9, 1, np.nan, np.nan]]),
    )
    tensors = to_tensors(records)
    assert tensors.values.dtype == torch.float64
    assert tensors.values.tolist()[0] == [[1, 0, 0, 4], [5, 6, 0, 8]]
    assert tensors.values.tolist()[1] == [[9, 1, 0, 0], [0, 0, 0, 0]]
    assert tensors.mask[1].tolist() == [[True, True, False, False], [False] * 4]
    assert tensors.times.tolist() == [[1, 2], [3, 0]]
    assert tensors.present.tolist() == [[True, True], [True, False]]


def test_rows_after_an_absent_one_are_refused(ward):
    none = PatientRecords(
        schema=ward(static=(), outcomes=()),
        patients=np.array(["a"]),
        stays=np.array(["1"]),
        static=np.empty((1, 0)),
        outcomes=np.empty((1, 0)),
        offsets=np.array([0, 2]),
        times=np.array([1.0, 2.0]),
        values=np.zeros((2, 4)),
    )
    broken = replace(to_tensors(none), present=torch.tensor([[False, True]]))
    with pytest.raises(InputError, match="after an absent one"):
        from_tensors(broken)
