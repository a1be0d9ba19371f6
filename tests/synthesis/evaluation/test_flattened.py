from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.flattened import flattened, sequences
from privet.synthesis.evaluation.side import Side


def test_a_cell_stands_at_its_row_and_column(make_records):
    records = make_records(20)
    cells = sequences(Side(records))
    assert cells.shape == (20, 12, 5)
    row = records.offsets[7] + 2
    expected = np.nan_to_num(records.values[row] / [200, 300, 200, 2])
    assert cells[7, 2, 1:] == pytest.approx(expected, abs=1e-6)
    gap = records.schema.gap.share(records.gaps[row : row + 1])
    assert cells[7, 2, 0] == pytest.approx(gap[0], abs=1e-6)
    assert not cells[7, records.lengths[7] :].any()


def test_static_columns_come_first_and_gaps_are_zero(make_records):
    records = make_records(20)
    static = records.static.copy()
    static[3, 0] = np.nan
    vectors = flattened(Side(replace(records, static=static)))
    assert vectors.shape == (20, 2 + 12 * 5)
    assert vectors[3, 0] == 0
    assert vectors[4, 0] == pytest.approx(records.static[4, 0] / 100)
    assert np.isfinite(vectors).all()
