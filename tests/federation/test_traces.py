"""Phones: drawn as documented, and read from files."""

from pathlib import Path

import numpy as np
import pytest

from privet.errors import InputError
from privet.federation.traces import DAY, HOUR, Phone, always, drawn, read


def test_drawn_phones_are_as_documented() -> None:
    """2,000 phones over 5 days; means within four standard errors."""
    phones = drawn(2000, days=5, seed=0)
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
    assert drawn(3, days=2, seed=5)[2] == drawn(9, days=2, seed=5)[2]
    assert drawn(3, days=2, seed=5)[2] != drawn(3, days=2, seed=6)[2]


def test_time_at_work() -> None:
    phone = Phone(speed=10.0, down=100.0, up=50.0)
    assert phone.seconds(records=30, size=200) == pytest.approx(2 + 3 + 4)
    assert always(1)[0].seconds(records=10**9, size=10**9) == 0.0


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "traces.csv"
    file.write_text("client,start,stop\n1,50,60\n0,0,10.5\n1,5,20\n")
    phones = read(file, drawn(3, days=1, seed=0))
    assert phones[0].stretches == ((0.0, 10.5),)
    assert phones[1].stretches == ((5.0, 20.0), (50.0, 60.0))
    assert phones[2].stretches == ()
    assert phones[1].speed == drawn(3, days=1, seed=0)[1].speed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "bad header"),
        ("client,start\n0,1\n", "bad header"),
        ("client,start,stop\n0,5,5\n", "line 2: not a stretch"),
        ("client,start,stop\n0,1,2\nx,1,2\n", "line 3: not a stretch"),
        ("client,start,stop\n0,nan,2\n", "line 2: not a stretch"),
        ("client,start,stop\n0,1\n", "line 2: not a stretch"),
        ("client,start,stop\n7,1,2\n", "line 2: no such client"),
        ("client,start,stop\n0,1,5\n0,4,9\n", "overlap"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "traces.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        read(file, always(3))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no such file of traces"):
        read("nowhere.csv", always(1))
