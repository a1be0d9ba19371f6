from dataclasses import replace

import pytest

from privet.synthesis.evaluation.constraints import compare


def test_broken_constraints_are_counted_on_the_candidate(make_records, beside):
    records = make_records(50)
    values = records.values.copy()
    both = ~(records.values[:, [1, 2]] != records.values[:, [1, 2]]).any(axis=1)
    rows = both.nonzero()[0][:7]
    values[rows, 1], values[rows, 2] = 10.0, 90.0
    figures = compare(beside(records, replace(records, values=values))).figures
    assert figures["violated"] == 7
    assert figures["share"] == pytest.approx(100 * 7 / both.sum())
    (found,) = figures["constraints"].values()
    assert (found["violated"], found["of"]) == (7, both.sum())
    assert compare(beside(replace(records, values=values), records)).figures["violated"] == 0


def test_no_constraints_are_no_error(make_records, make_schema, beside):
    records = replace(make_records(20), schema=make_schema(constraints=()))
    assert compare(beside(records, records)).figures["share"] is None
