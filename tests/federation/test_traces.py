"""Phones: drawn as documented."""

import numpy as np
import pytest

from privet.federation.traces import DAY, HOUR, Phone, always, drawn


def test_drawn_phones_are_as_documented() -> None:
    """2,000 phones over 5 days; means within four standard errors."""
    phones = drawn(range(2000), days=5, seed=0)
    hours = [sum(stop - start for start, stop in p.stretches) / HOUR / 5 for p in phones]
    # 0.9 x 7.5 h by night and 0.4 x 1.25 h by day, less where they overlap.
    assert 6.9 < np.mean(hours) < 7.3
    speeds = np.log([p.speed / 14.0 for p in phones])
    assert abs(speeds.mean()) < 4 * np.log(2) / np.sqrt(2000)
    assert np.std(speeds) == pytest.approx(np.log(2), rel=0.08)
    for phone in phones:
        ends = np.array(phone.stretches).reshape(-1)
        assert (np.diff(ends) > 0).all()
        assert ends[0] >= 0
        assert ends[-1] <= 5 * DAY


def test_a_phone_is_the_same_among_few_and_many() -> None:
    assert drawn(range(3), days=2, seed=5)[2] == drawn(range(9), days=2, seed=5)[2]
    assert drawn(range(3), days=2, seed=5)[2] != drawn(range(3), days=2, seed=6)[2]


def test_time_at_work() -> None:
    phone = Phone(speed=10.0, down=100.0, up=50.0)
    assert phone.seconds(records=30, size=200) == pytest.approx(2 + 3 + 4)
    assert always(1)[0].seconds(records=10**9, size=10**9) == 0.0
