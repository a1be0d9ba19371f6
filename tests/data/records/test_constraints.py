"""Violations are counted as planted, and none is left once enforced."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privet.data.records.constraints import enforce, violations
from privet.data.records.features import Categorical, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Ends, Order, Schema
from privet.errors import InputError

NAN = np.nan
SCHEMA = Schema(
    name="x",
    temporal=(
        Numeric(name="sbp", low=0, high=300),
        Numeric(name="map", low=0, high=300),
        Numeric(name="dbp", low=0, high=300),
        Categorical(name="status", values=("alive", "died")),
    ),
    constraints=(
        Order(above="sbp", below="map"),
        Order(above="map", below="dbp"),
        Order(above="sbp", below="dbp"),
        Ends(column="status", value="died"),
    ),
    nominal_size=1,
)
ORDER, END = "sbp >= dbp", "nothing after status = died"


def records_of(values, lengths):
    n = len(lengths)
    return PatientRecords(
        schema=SCHEMA,
        patients=np.array([str(k) for k in range(n)]),
        stays=np.array([str(k) for k in range(n)]),
        static=np.empty((n, 0)),
        outcomes=np.empty((n, 0)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=np.zeros(sum(lengths)),
        values=np.array(values, dtype=float).reshape(sum(lengths), 4),
    )


@pytest.fixture
def planted():
    return records_of(
        [
            [120, NAN, 80, 0],
            [80, NAN, 120, 1],
            [NAN, NAN, 80, 1],
            [90, NAN, 90, NAN],
            [70, 90, 110, 1],
        ],
        [3, 0, 2],
    )


def test_planted_violations_are_counted(planted):
    found = violations(planted)
    assert found[ORDER] == (2, 4)
    assert found["sbp >= map"] == (1, 1)
    assert found[END] == (1, 2)


def test_enforcing_swaps_pairs_and_cuts_after_the_end(planted):
    mended = enforce(planted)
    assert mended.lengths.tolist() == [2, 0, 2]
    np.testing.assert_array_equal(mended.values[1], [120, NAN, 80, 1])
    np.testing.assert_array_equal(mended.values[3], [110, 90, 70, 1])
    assert planted.values[1, 0] == 80  # what was given stays as it was


@given(
    values=hnp.arrays(
        np.float64,
        (6, 4),
        elements=st.sampled_from([NAN, 0.0, 1.0, 2.0]),
        fill=st.nothing(),
    ).map(lambda v: np.where((np.arange(4) == 3) & (v == 2), NAN, v))
)
def test_nothing_is_violated_once_enforced(values):
    records = records_of(values, [2, 0, 3, 1])
    mended = enforce(records)
    assert [broken for broken, _ in violations(mended).values()] == [0] * 4
    # A row keeps its numbers, in whatever order.
    first = records.step_of_row == 0
    before, after = records.values[first], mended.values[mended.step_of_row == 0]
    np.testing.assert_array_equal(np.sort(before[:, :3]), np.sort(after[:, :3]))


@given(records=st.from_type(PatientRecords))
def test_records_without_constraints_stay_as_they_are(records, assert_same):
    assert violations(records) == {}
    assert_same(enforce(records), records)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([10.0, 180.0], [100.0, 50.0]),  # changed places, within the bounds of each
        ([90.0, 120.0], [100.0, 90.0]),
        ([10.0, 60.0], [60.0, 50.0]),
    ],
)
def test_values_that_change_places_keep_their_bounds(row, expected):
    schema = Schema(
        name="x",
        temporal=(Numeric(name="a", low=0, high=100), Numeric(name="b", low=50, high=200)),
        constraints=(Order(above="a", below="b"),),
        nominal_size=1,
    )
    bare = records_of([[0, 0, 0, 0]], [1])
    made = enforce(replace(bare, schema=schema, values=np.array([row])))
    assert made.values[0].tolist() == expected
    assert violations(made)["a >= b"] == (0, 1)


def test_what_cannot_be_put_in_order_is_taken_as_not_measured():
    schema = Schema(
        name="x",
        temporal=(Numeric(name="a", low=0, high=100), Numeric(name="b", low=120, high=200)),
        constraints=(Order(above="a", below="b"),),
        nominal_size=1,
    )
    bare = records_of([[0, 0, 0, 0]], [1])
    made = enforce(replace(bare, schema=schema, values=np.array([[50.0, 150.0]])))
    assert made.values[0, 0] == 100
    assert np.isnan(made.values[0, 1])


def test_constraints_in_a_circle_are_refused():
    pairs = [("sbp", "map"), ("map", "dbp"), ("dbp", "sbp")]
    with pytest.raises(InputError, match="circle"):
        replace(SCHEMA, constraints=tuple(Order(above=a, below=b) for a, b in pairs))
