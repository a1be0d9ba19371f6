from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.side import Side
from privet.synthesis.evaluation.timing import compare, samples


def test_records_against_themselves_agree(make_records, beside):
    records = make_records(100)
    figures = compare(beside(records, records)).figures
    assert {v for v in figures.values() if isinstance(v, float)} == {0.0}
    assert figures["time_unit"] == "minutes"


def test_slower_rows_are_off_by_what_they_are_slower(make_records, beside):
    records = make_records(200)
    slower = replace(records, times=records.times + 10.0 * records.step_of_row)
    figures = compare(beside(records, slower)).figures
    later = (records.step_of_row > 0).mean()  # the first gap stays
    long = np.minimum(records.gaps + 10, 600) - np.minimum(records.gaps, 600)
    assert figures["gap"] == pytest.approx(long[records.step_of_row > 0].mean() * later)
    assert figures["gap_scaled"] == pytest.approx(figures["gap"] / 600)
    assert figures["duration"] == pytest.approx(10 * (records.lengths - 1).mean())
    assert figures["gap_kl_real_other"] > 0.01
    assert figures["length"] == 0


def test_shorter_stays_are_off_by_what_they_lack(make_records, beside):
    records = make_records(200)
    figures = compare(beside(records, records.first_steps(3))).figures
    assert figures["length"] == pytest.approx((records.lengths - 3).mean())
    assert figures["length_scaled"] == pytest.approx(figures["length"] / 12)


def test_stays_without_rows_have_no_mean_gap(make_records):
    records = make_records(10).first_steps(0)
    found = samples(Side(records))
    assert len(found["mean_gap"]) == len(found["gap"]) == 0
    assert list(found["duration"]) == [0.0] * 10
