"""Files of traces: what is written is read, and what cannot be is refused with its line."""

from pathlib import Path

import pytest

from privet.errors import InputError
from privet.federation.trace_files import read, write
from privet.federation.traces import always, drawn


def test_what_is_written_is_read(tmp_path: Path) -> None:
    phones = drawn(range(5), days=3, seed=0)
    written = write(tmp_path / "traces.csv", phones)
    assert written == sum(len(phone.stretches) for phone in phones)
    assert read(tmp_path / "traces.csv", drawn(range(5), days=1, seed=9)) == phones
    with pytest.raises(InputError, match="the file exists"):
        write(tmp_path / "traces.csv", phones)


def test_speeds_are_of_the_file_where_it_has_them(tmp_path: Path) -> None:
    file = tmp_path / "traces.csv"
    file.write_text("client,start,stop,speed,down,up\n1,5,20,3,inf,7\n1,50,60,3,inf,7\n")
    phones = read(file, drawn(range(2), days=1, seed=0))
    assert (phones[1].speed, phones[1].down, phones[1].up) == (3.0, float("inf"), 7.0)
    assert phones[0].stretches == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "traces.csv"
    file.write_text("client,start,stop\n1,50,60\n0,0,10.5\n1,5,20\n")
    phones = read(file, drawn(range(3), days=1, seed=0))
    assert phones[0].stretches == ((0.0, 10.5),)
    assert phones[1].stretches == ((5.0, 20.0), (50.0, 60.0))
    assert phones[2].stretches == ()
    assert phones[1].speed == drawn(range(3), days=1, seed=0)[1].speed


def test_the_mark_that_spreadsheets_write_first_is_no_part_of_the_header(tmp_path: Path) -> None:
    file = tmp_path / "traces.csv"
    file.write_bytes(b"\xef\xbb\xbfclient,start,stop\r\n0,1,2\r\n")
    assert read(file, always(1))[0].stretches == ((1.0, 2.0),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "bad header"),
        ("client,start\n0,1\n", "bad header"),
        ("client,start,stop\n", "no phone of .* can ever train"),
        (b"\x98\x00client,start,stop\n0,1,2\n", "is no file of traces"),
        ("client,start,stop\n0,5,5\n", "line 2: not a stretch"),
        ("client,start,stop\n0,1,2\nx,1,2\n", "line 3: not a stretch"),
        ("client,start,stop\n0,nan,2\n", "line 2: not a stretch"),
        ("client,start,stop\n0,1\n", "line 2: not a stretch"),
        ("client,start,stop\n7,1,2\n", "line 2: no such client"),
        ("client,start,stop\n0,1,5\n0,4,9\n", "overlap"),
        ("client,start,stop,speed\n0,1,5,1\n", "bad header"),
        ("client,start,stop,speed,down,up\n0,1,5,1,1,0\n", "line 2: not a speed"),
        ("client,start,stop,speed,down,up\n0,1,5,1,1\n", "line 2: not a speed"),
        ("client,start,stop,speed,down,up\n0,1,2,1,1,1\n0,4,9,2,1,1\n", "line 3: another speed"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    file = tmp_path / "traces.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=words):
        read(file, always(3))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no such file of traces"):
        read("nowhere.csv", always(1))
