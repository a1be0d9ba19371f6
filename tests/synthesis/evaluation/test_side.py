from dataclasses import replace

import numpy as np

from privet.data.records.features import Categorical, Numeric
from privet.synthesis.evaluation.side import (
    Side,
    numbers_of,
    on_unit_scale,
    one_stay_each,
    sums_by_group,
)


def test_rows_and_values_that_no_generator_can_make_do_not_count(make_records, make_schema):
    records = make_records(50)
    longest = records.lengths.max()
    side = Side(replace(records, schema=make_schema(max_steps=4)))
    assert side.records.lengths.max() == 4 < longest
    values = records.values.copy()
    values[0, 0], values[1, 0] = 999.0, -5.0
    assert list(Side(replace(records, values=values)).temporal(0)[:2]) == [200.0, 0.0]


def test_one_stay_of_each_patient_remains(make_records):
    records = make_records(60)
    side = Side(replace(records, patients=np.array([f"p{k // 3}" for k in range(60)])))
    kept = one_stay_each(side, np.random.default_rng(0))
    assert sorted(kept.records.patients) == sorted({f"p{k}" for k in range(20)})
    others = one_stay_each(side, np.random.default_rng(1))
    assert set(kept.records.stays) != set(others.records.stays)  # drawn, not always the first


def test_columns_as_numbers():
    number = Numeric(name="x", low=10, high=20)
    assert list(on_unit_scale(number, np.array([10.0, 15.0, 99.0]))) == [0.0, 0.5, 1.0]
    word = Categorical(name="w", values=("a", "b", "c"))
    named = dict(numbers_of(word, np.array([0.0, 2.0, np.nan])))
    assert list(named) == ["w=a", "w=b", "w=c"]
    assert np.array_equal(named["w=c"], [0, 1, np.nan], equal_nan=True)
    both = dict(numbers_of(Categorical(name="s", values=("f", "m")), np.array([0.0, 1.0])))
    assert list(both) == ["s=m"]  # the other word says nothing new


def test_sums_by_group():
    table = np.array([[1, 2], [3, 4], [5, 6]])
    assert sums_by_group(np.array([2, 0, 2]), 3, table).tolist() == [[3, 4], [0, 0], [6, 8]]


def test_what_is_kept_is_computed_once(make_records):
    calls = []
    side = Side(make_records(20))

    def count(given):
        calls.append(given)
        return len(given)

    assert [side.once(count), side.once(count)] == [20, 20]
    assert calls == [side]
