from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.missing_rates import compare, rates
from privet.synthesis.evaluation.side import Side


def test_rates_of_a_record_one_can_count(make_records):
    records = make_records(4)
    values = np.ones_like(records.values)
    values[:, 1] = np.nan
    values[records.stay_of_row == 2, 0] = np.nan
    static = records.static.copy()
    static[:1, 0] = np.nan
    found = rates(Side(replace(records, values=values, static=static)))
    assert found["above"] == (1.0, 1.0)
    assert found["pulse"] == (pytest.approx(records.lengths[2] / records.lengths.sum()), 0.25)
    assert found["below"] == (0.0, 0.0)
    assert found["age"] == (0.25, 0.25)
    assert found["died"] == (0.0, 0.0)


def test_the_error_is_in_percentage_points(make_records, beside):
    records = make_records(400)
    rng = np.random.default_rng(0)
    values = records.values.copy()
    full = ~np.isnan(values[:, 0])
    values[full & (rng.random(len(full)) < 0.5), 0] = np.nan
    thinned = replace(records, values=values)
    figures = compare(beside(records, thinned)).figures
    before = np.isnan(records.values[:, 0]).mean()
    expected = 100 * (np.isnan(values[:, 0]).mean() - before)
    assert figures["features"]["pulse"]["cells_error"] == pytest.approx(expected)
    assert figures["largest_cells_error"] == pytest.approx(expected)
    assert figures["mean_cells_error"] == pytest.approx(expected / 7)
    assert compare(beside(records, records)).figures["largest_never_error"] == 0


def test_the_same_cells_gathered_in_few_stays_are_seen(make_records, beside):
    records = make_records(200)
    even, gathered = (np.where(np.isnan(records.values), 50.0, records.values) for _ in range(2))
    even[records.step_of_row == 0, 0] = np.nan
    n = int(np.isnan(even[:, 0]).sum())
    gathered[:n, 0] = np.nan
    pair = beside(replace(records, values=even), replace(records, values=gathered))
    column = compare(pair).figures["features"]["pulse"]
    assert column["cells_error"] == 0
    assert column["never_error"] > 5
