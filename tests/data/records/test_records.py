"""Records hold together: shapes, order of times, parts of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.records import PatientRecords
from privet.errors import InputError


@pytest.fixture
def three(ward):
    """Stays of 2, 0 and 3 rows; two of them of one patient."""
    values = np.full((5, 4), np.nan)
    values[:, 0] = [60, 61, 70, 71, 72]
    return PatientRecords(
        schema=ward(),
        patients=np.array(["b", "a", "b"]),
        stays=np.array(["s1", "s2", "s3"]),
        static=np.array([[50, 0], [60, 1], [50, 0]], dtype=float),
        outcomes=np.array([[0], [1], [np.nan]]),
        offsets=np.array([0, 2, 2, 5]),
        times=np.array([1.0, 4.0, 0.0, 0.0, 9.0]),
        values=values,
    )


def test_rows_know_their_stay_step_and_gap(three):
    assert three.lengths.tolist() == [2, 0, 3]
    assert three.stay_of_row.tolist() == [0, 0, 2, 2, 2]
    assert three.step_of_row.tolist() == [0, 1, 0, 1, 2]
    assert three.gaps.tolist() == [1.0, 3.0, 0.0, 0.0, 9.0]
    assert three.patient_of_stay.tolist() == [1, 0, 1]


def test_a_part_has_the_chosen_stays_in_the_given_order(three):
    part = three.part([2, 0])
    assert part.stays.tolist() == ["s3", "s1"]
    assert part.offsets.tolist() == [0, 3, 5]
    assert part.values[:, 0].tolist() == [70, 71, 72, 60, 61]
    assert three.part(np.array([False, True, False])).patients.tolist() == ["a"]


def test_first_steps_cut_every_stay(three):
    cut = three.first_steps(1)
    assert (cut.lengths.tolist(), cut.times.tolist()) == ([1, 0, 1], [1.0, 0.0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"static": np.zeros((3, 1))}, "shape of static"),
        ({"patients": np.array(["a"])}, "shape of patients"),
        ({"offsets": np.array([0, 2, 1, 5])}, "offsets"),
        ({"offsets": np.array([0, 2, 2, 4])}, "offsets"),
        ({"times": np.array([4.0, 1.0, 0.0, 0.0, 9.0])}, "decrease"),
        ({"times": np.array([1.0, np.nan, 0.0, 0.0, 9.0])}, "not finite"),
        ({"values": np.zeros((5, 3))}, "shape of values"),
    ],
)
def test_what_does_not_fit_together_is_refused(three, change, words):
    with pytest.raises(InputError, match=words):
        replace(three, **change)


@given(records=st.from_type(PatientRecords))
def test_a_part_of_everything_is_everything(records, assert_same):
    assert_same(records.part(np.arange(len(records))), records)


@given(records=st.from_type(PatientRecords))
def test_gaps_add_up_to_times(records):
    total = np.zeros(len(records))
    np.add.at(total, records.stay_of_row, records.gaps)
    some = records.lengths > 0
    np.testing.assert_allclose(total[some], records.times[records.offsets[1:][some] - 1])
