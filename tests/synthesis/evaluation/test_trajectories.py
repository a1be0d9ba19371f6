from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.side import Side
from privet.synthesis.evaluation.trajectories import ENOUGH, compare, mean_by_step


def test_means_of_rows(make_records):
    records = make_records(300)
    means, count = mean_by_step(Side(records), 0)
    third = records.values[records.step_of_row == 2, 0]
    assert means[2] == pytest.approx(np.nanmean(third))
    assert count[2] == (~np.isnan(third)).sum()
    assert np.isnan(mean_by_step(Side(make_records(ENOUGH - 5)), 0)[0]).all()  # too few values


def test_a_drift_over_rows_is_seen_even_if_the_marginal_is_right(make_records, beside):
    records = make_records(400)
    drift = np.where(records.step_of_row < 4, 20.0, -20.0)
    up, down = (replace(records, values=records.values + s * drift[:, None]) for s in (1, -1))
    figures = compare(beside(up, down)).figures
    assert figures["features"]["pulse"] == pytest.approx(0.2, abs=0.02)  # 40 of 200
    assert compare(beside(up, up)).figures["mean"] == 0
    assert "rhythm" not in figures["features"]
