from dataclasses import replace

import numpy as np
import pytest

from privet.synthesis.evaluation.side import Side
from privet.synthesis.evaluation.summaries import stay_means, summaries


@pytest.fixture
def by_hand(make_records):
    """Three stays: pulse 20, gap, 60 at 0, 10, 20 minutes; pulse never; pulse 40 once."""
    records = make_records(3).first_steps(3)
    values = np.full_like(records.values, np.nan)
    values[[0, 2, 6], 0] = 20.0, 60.0, 40.0
    values[[0, 1, 2, 6], 3] = 0.0, 2.0, 2.0, 1.0
    times = np.tile([0.0, 10.0, 20.0], 3)
    return Side(replace(records, values=values, times=times))


def test_summaries_of_a_column_one_can_compute(by_hand):
    names, table = summaries(by_hand)
    found = {name: list(table[:, k]) for k, name in enumerate(names)}
    nan = pytest.approx(np.nan, nan_ok=True)
    assert found["pulse mean"] == [pytest.approx(0.2), nan, pytest.approx(0.2)]
    assert found["pulse least"] == [0.1, nan, 0.2]
    assert found["pulse greatest"] == [0.3, nan, 0.2]
    assert found["pulse first"] == [0.1, nan, 0.2]
    assert found["pulse last"] == [0.3, nan, 0.2]
    assert found["pulse slope"] == [pytest.approx(0.01), nan, nan]  # 0.2 in 20 minutes
    assert found["pulse count"] == [2, 0, 1]
    assert found["pulse ever"] == [1, 0, 1]
    assert found["rhythm last"] == [2, nan, 1]
    assert found["rhythm share rhythm=none"] == [pytest.approx(2 / 3), nan, 0]
    assert found["rows"] == [3, 3, 3]
    assert found["duration"] == [20, 20, 20]
    assert found["mean gap"] == [pytest.approx(20 / 3)] * 3
    assert {"age", "sex=m"} <= set(names)


def test_outcomes_are_no_summaries(by_hand):
    assert not any("died" in name for name in summaries(by_hand)[0])
    assert "died=yes" in stay_means(by_hand)[0]


def test_means_over_stays(by_hand):
    names, table = stay_means(by_hand)
    pulse = table[:, names.index("pulse")]
    assert pulse == pytest.approx([0.2, np.nan, 0.2], nan_ok=True)


def test_stays_without_rows_have_summaries_too(make_records):
    names, table = summaries(Side(make_records(5).first_steps(0)))
    assert table.shape == (5, len(names))
    assert set(table[:, names.index("pulse count")]) == {0.0}
