"""Records as codes: what is kept, what is cut, what is drawn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privet
from privet.data.identity import enter_in_ledger, row_digests
from privet.data.records.coding import (
    SYNTHETIC_START,
    code_shape,
    coded_dataset,
    decode,
    decode_static,
    encode,
)
from privet.data.records.features import Categorical, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.simulator import simulate
from privet.errors import InputError, PrivetError
from privet.synthesis.fitting import fit

SCHEMA = Schema(
    name="small",
    stay="stay",
    temporal=(
        Numeric(name="x", low=0, high=100, bins=7, scale="log"),
        Numeric(name="gcs", low=3, high=15, decimals=0),
        Categorical(name="rhythm", values=("a", "b", "c")),
    ),
    static=(
        Numeric(name="age", low=0, high=110, bins=11),
        Categorical(name="s", values=("f", "m")),
    ),
    outcomes=(Categorical(name="died", values=("no", "yes")),),
    max_steps=5,
    max_gap=60.0,
    gap_bins=6,
    nominal_size=3,
)
LEVELS = np.array([6, 7, 13, 3])


def records(times, values, lengths, schema=SCHEMA):
    n = len(lengths)
    return PatientRecords(
        schema=schema,
        patients=np.array([f"p{k // 2}" for k in range(n)]),
        stays=np.array([f"s{k}" for k in range(n)]),
        static=np.tile([50.0, 1.0], (n, 1)),
        outcomes=np.zeros((n, 1)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.array(times, dtype=float),
        values=np.array(values, dtype=float).reshape(len(times), 3),
    )


def test_the_layout_of_a_stay():
    found = encode(records([0.0, 60.0], [[0.0, 3.0, np.nan], [100.0, np.nan, 2.0]], [2]))
    assert found.shape == (1, *code_shape(SCHEMA)) == (1, 6, 4)
    assert found[0].tolist() == [
        [5 + 1, 2, 1, 0],  # age 50 of 0..110 in 11 bins is the sixth
        [1, 1, 1, 0],
        [6, 7, 0, 3],
        *[[0, 0, 0, 0]] * 3,
    ]


def test_rows_beyond_the_most_are_left_out_and_values_beyond_bounds_moved():
    many = records(np.arange(9.0), [[-5.0, 99.0, 0.0]] * 9, [9])
    found = encode(many)
    assert (found[0, 1:, 0] > 0).sum() == SCHEMA.max_steps
    assert found[0, 1, 1:].tolist() == [1, 13, 1]
    long = encode(records([1e6], [[1.0, 5.0, 1.0]], [1]))
    assert long[0, 1, 0] == 6


@given(
    codes=hnp.arrays(np.uint8, (4, 6, 4), elements=st.integers(0, 255)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_codes_come_back_from_the_records_drawn_for_them(codes, seed):
    codes = codes % (np.append(LEVELS, 0)[:4] + 1)
    codes[:, 0] = codes[:, 0] % np.array([12, 3, 3, 1])
    present = np.logical_and.accumulate(codes[:, 1:, 0] > 0, axis=1)
    codes[:, 1:] *= present[..., None]
    made = decode(codes, SCHEMA, np.random.default_rng(seed))
    again = encode(made)
    # A gap is the difference of two sums of gaps: at the edge of a bin rounding may move it.
    assert np.array_equal(again[..., 1:], codes[..., 1:])
    assert np.array_equal(again[:, 0], codes[:, 0])
    moved = again[:, 1:, 0] != codes[:, 1:, 0]
    assert moved.mean() < 0.05


def test_times_begin_anew_with_each_stay():
    codes = np.zeros((2, 6, 4), dtype=np.uint8)
    codes[:, 1:4, 0] = 6
    made = decode(codes, SCHEMA, np.random.default_rng(0))
    assert made.lengths.tolist() == [3, 3]
    assert (made.gaps > 20).all()
    assert (made.gaps <= 60).all()
    assert made.times[3] < made.times[2]


def test_what_is_drawn_within_a_bin_fills_it():
    codes = np.full((5000, 2), 6, dtype=np.uint8)
    codes[:, 1] = 1
    ages = decode_static(codes, SCHEMA, np.random.default_rng(1))[:, 0]
    assert 50 <= ages.min() < 50.1
    assert 59.9 < ages.max() <= 60


def test_synthetic_stays_with_dates_begin_on_a_public_one():
    made = decode(
        np.zeros((2, 6, 4), dtype=np.uint8),
        replace(SCHEMA, timestamps=True),
        np.random.default_rng(0),
    )
    assert (made.starts == SYNTHETIC_START).all()
    assert made.stays.tolist() == ["1", "2"]


def test_the_unit_is_the_patient():
    data = coded_dataset(records(np.arange(4.0), [[1.0, 5.0, 1.0]] * 4, [1, 1, 2]))
    assert (data.unit, data.nominal_size, data.labelled) == ("patient", 3, False)
    assert data.train.units.tolist() == [0, 0, 1]
    assert data.train.n_units == 2
    assert data.schema["records"]["name"] == "small"


def test_a_patient_with_one_sequence_is_one_record():
    single = replace(SCHEMA, stay=None)
    data = coded_dataset(records([0.0], [[1.0, 5.0, 1.0]], [1], schema=single))
    assert data.train.units is None


def test_no_records_are_refused():
    with pytest.raises(InputError, match="zero stays"):
        coded_dataset(simulate(3).part([]))


def digests(records):
    return row_digests(coded_dataset(records), b"k" * 32)


def test_the_ledger_knows_stays_again_under_another_schema():
    """Other bins, fewer columns, another name: the same patients."""
    stays = simulate(50)
    fewer = replace(
        stays.schema,
        name="other",
        temporal=(replace(stays.schema.temporal[1], bins=5),),
        constraints=(),
    )
    again = replace(stays, schema=fewer, values=stays.values[:, 1:2])
    assert digests(again) == digests(stays)


def test_stays_of_others_are_others():
    stays = simulate(50)
    assert len(set(digests(stays))) == len(stays)
    assert not set(digests(stays)) & set(digests(replace(stays, times=stays.times + 1)))
    renamed = np.array([f"x{name}" for name in stays.patients])
    assert not set(digests(stays)) & set(digests(replace(stays, patients=renamed)))


def test_a_capped_set_cannot_be_spent_again_under_another_name(tmp_path):
    ledger = privet.Ledger(tmp_path / "ledger.db")
    stays = simulate(60)
    enter_in_ledger(coded_dataset(stays), ledger)
    ledger.cap("simulator", epsilon=0.5, delta=1e-5)
    renamed = replace(stays, schema=replace(stays.schema, name="fresh", max_steps=20))
    with pytest.raises(PrivetError):
        fit("autoregressive", renamed, epsilon=3.0, model="rows-16-0", epochs=1.0, ledger=ledger)
    ledger.close()
