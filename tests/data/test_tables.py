"""A user's own files: CSV, Parquet and NPZ, what is refused, and the split by content."""

import pickle
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data import Split
from privet.data.tables import read_arrays, read_npz, read_table, split_by_content
from privet.data.units import Records
from privet.errors import FaultyEnvironment, InputError

CLASSES = ("healthy", "ill")
ROWS = [(34.0, 21.5, "healthy"), (71.0, 33.25, "ill"), (55.0, 0.0, "healthy")]


def read(path, features=("age", "bmi")):
    return read_table(path, features=features, label="outcome", classes=CLASSES).split


def write_csv(path, text):
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def good_csv(tmp_path):
    lines = [f"{age},{outcome},{bmi}" for age, bmi, outcome in ROWS]
    return write_csv(tmp_path / "t.csv", "\n".join(["age,outcome,bmi", *lines, ""]))


def good_parquet(tmp_path):
    age, bmi, outcome = zip(*ROWS, strict=True)
    whole = pa.array([int(a) for a in age], type=pa.int32())
    return write_parquet(tmp_path / "t.parquet", bmi=bmi, age=whole, outcome=outcome)


@pytest.mark.parametrize("write", [good_csv, good_parquet])
def test_columns_come_in_the_declared_order(tmp_path, write):
    split = read(write(tmp_path))
    assert split.x.tolist() == [[age, bmi] for age, bmi, _ in ROWS]
    assert split.y.tolist() == [0, 1, 0]
    assert split.x.dtype == np.float64
    assert split.y.dtype == np.int64
    assert read(write(tmp_path), features=("bmi",)).x.ravel().tolist() == [21.5, 33.25, 0.0]


def test_a_csv_of_a_spreadsheet_is_read(tmp_path):
    text = '\ufeffage, outcome ,"note, free",bmi\r\n34, ill ,"a\r\nb",1e1\r\n\r\n35,healthy,,2\r\n'
    split = read(write_csv(tmp_path / "t.CSV", text))
    assert split.x.tolist() == [[34.0, 10.0], [35.0, 2.0]]
    assert split.y.tolist() == [1, 0]


HEADER = "age,bmi,outcome\n"
BAD_CSV = {
    "": "is empty",
    "\n\n": "is empty",
    HEADER: "a header but no rows",
    "age,outcome\n1,ill\n": "has no column 'bmi'",
    "age,bmi\n1,2\n": "has no column 'outcome'",
    "age,bmi,age,outcome\n1,2,3,ill\n": "column 'age' occurs twice",
    HEADER + "1,2,ill\n1,2\n": "row 2 is ragged: got 2 cells, expected 3",
    HEADER + "1,2,ill\n1,2,ill,4\n": "row 2 is ragged",
    HEADER + "1,2,ill\n1,secret,ill\n": "row 2, column 'bmi' is not a number",
    HEADER + "1,1_0,ill\n": "row 1, column 'bmi' is not a number",
    HEADER + "1,,ill\n": "row 1, column 'bmi' is empty",
    HEADER + "1,2,ill\nnan,2,ill\n": "NaN or infinite value in row 2, column 'age'",
    HEADER + "1,-inf,ill\n": "NaN or infinite value in row 1, column 'bmi'",
    HEADER + "1,2,ill\n1,2,secret\n": "label in row 2 is not among the declared classes",
    HEADER + '1,2,"ill\n': "cannot be read as csv",
    b"age,bmi,outcome\n1,2,\xff\n": "cannot be read as csv",
}


@pytest.mark.parametrize(("text", "message"), BAD_CSV.items())
def test_a_bad_csv_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(write_csv(tmp_path / "t.csv", text))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value), "a message must not repeat a cell"


GOOD = {"age": [1, 2], "bmi": [1.0, 2.0], "outcome": ["ill", "healthy"]}
BAD_PARQUET = [
    ({"age": ["1", "2"]}, "column 'age' does not hold numbers"),
    ({"bmi": [1.0, None]}, "row 2, column 'bmi' is empty"),
    ({"bmi": [1.0, float("nan")]}, "NaN or infinite value in row 2, column 'bmi'"),
    ({"outcome": [None, "ill"]}, "label in row 1 is not among"),
    ({"outcome": [0, 1]}, "label in row 1 is not among"),
    ({"age": [], "bmi": [], "outcome": []}, "no rows|does not hold numbers"),
]


@pytest.mark.parametrize(("columns", "message"), BAD_PARQUET)
def test_a_bad_parquet_is_refused(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        read(write_parquet(tmp_path / "t.parquet", **(GOOD | columns)))


def test_a_parquet_without_a_column_or_cut_short_is_refused(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", **{k: GOOD[k] for k in ("age", "outcome")})
    with pytest.raises(InputError, match="has no column 'bmi', expected one of its columns: age"):
        read(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read(path)


def test_whole_number_classes_match_by_their_text(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", **(GOOD | {"outcome": [1, 0]}))
    split = read_table(path, features=("age",), label="outcome", classes=("0", "1")).split
    assert split.y.tolist() == [1, 0]


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = good_parquet(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FaultyEnvironment, match=r"pip install 'privet\[parquet\]'"):
        read(path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_missing_table_is_named(tmp_path, suffix):
    with pytest.raises(InputError, match=r"file not found.*nowhere"):
        read(tmp_path / f"nowhere.{suffix}")


@pytest.mark.parametrize("y", [np.array([1, 0], np.uint8), np.array(["ill", "healthy"])])
@pytest.mark.parametrize("x", [np.ones((2, 1, 4, 4), np.uint8), np.ones((2, 3), ">f4")])
def test_arrays_are_read_with_indices_or_names(tmp_path, x, y):
    np.savez_compressed(tmp_path / "a.npz", x=x, y=y)
    split = read_arrays(tmp_path / "a.npz", classes=CLASSES).split
    assert np.array_equal(split.x, x)
    assert split.x.dtype.isnative
    assert split.y.tolist() == [1, 0]


X, Y = np.zeros((3, 2)), np.array([0, 1, 1])
BAD_ARRAYS = [
    ({"x": X}, "has no array 'y', expected one of its arrays: x"),
    ({"x": X[:, 0], "y": Y}, "'x' cannot be used"),
    ({"x": X.astype(complex), "y": Y}, "'x' cannot be used"),
    ({"x": X, "y": Y[:2]}, "'y' cannot be used"),
    ({"x": X, "y": Y.astype(float)}, "'y' cannot be used"),
    ({"x": X, "y": Y + 1}, "label in row 2 is not among"),
    ({"x": X, "y": Y - 1}, "label in row 1 is not among"),
    ({"x": X, "y": np.array(["ill", "ill", "dead"])}, "label in row 3 is not among"),
    ({"x": np.array([[0, 0], [np.nan, 0], [0, 0]]), "y": Y}, "NaN or infinite value in row 2"),
    ({"x": np.array([["a"]], dtype=object), "y": Y[:1]}, "Object arrays cannot be loaded"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS)
def test_bad_arrays_are_refused_in_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_arrays(tmp_path / "a.npz", classes=CLASSES)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_archives_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y)
    whole = path.read_bytes()
    with path.with_suffix(".npy").open("wb") as stream:
        np.save(stream, X)
    single = path.with_suffix(".npy").read_bytes()
    damaged = whole[:200] + bytes([whole[200] ^ 0xFF]) + whole[201:]
    for raw in (b"", b"PK\x03\x04", whole[:-30], damaged, single, pickle.dumps([1]), b"text"):
        path.write_bytes(raw)
        with pytest.raises(InputError):
            read_npz(path, ("x", "y"))


RECORD = st.tuples(st.floats(-1e6, 1e6), st.integers(0, 255), st.integers(0, 1))


def as_split(records):
    table = np.array(records, dtype=np.float64).reshape(-1, 3)
    return Split(x=table[:, :2], y=table[:, 2].astype(np.int64))


def parted(split, fraction):
    return [part.split for part in split_by_content(Records(split=split), fraction)]


def as_rows(split):
    return [(*map(float, x), int(y)) for x, y in zip(split.x, split.y, strict=True)]


@settings(max_examples=50)
@given(st.lists(RECORD, max_size=20), RECORD, st.integers(0, 20), st.floats(0.05, 0.95))
def test_adding_a_record_moves_no_other(records, extra, place, fraction):
    place = min(place, len(records))
    before = [as_rows(part) for part in parted(as_split(records), fraction)]
    grown = [*records[:place], extra, *records[place:]]
    after = [as_rows(part) for part in parted(as_split(grown), fraction)]
    (added,) = as_rows(as_split([extra]))
    gained = [len(new) - len(old) for old, new in zip(before, after, strict=True)]
    assert sorted(gained) == [0, 1]
    for old, new, gain in zip(before, after, gained, strict=True):
        assert sorted(new) == sorted(old + [added] * gain)


def test_the_share_is_about_the_fraction_and_grows_with_it():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    whole = Split(x=x, y=np.arange(4000) % 2)
    tests = [parted(whole, fraction)[1] for fraction in (0.2, 0.5)]
    assert len(tests[0]) == pytest.approx(800, abs=5 * np.sqrt(4000 * 0.2 * 0.8))
    assert len(tests[1]) == pytest.approx(2000, abs=5 * np.sqrt(4000 * 0.25))
    assert set(as_rows(tests[0])) <= set(as_rows(tests[1]))


KNOWN_TEST_RECORDS = [3.0, 4.0, 5.0, 11.0]


def test_the_split_of_known_records_is_the_same_on_every_machine():
    records = [(float(i), i % 7, i % 2) for i in range(12)]
    _, test = parted(as_split(records), 0.4)
    assert test.x[:, 0].tolist() == KNOWN_TEST_RECORDS
    negative_zero = as_split([(-0.0, 0, 0)])
    assert len(parted(negative_zero, 0.4)[1]) == (0.0 in KNOWN_TEST_RECORDS)
    as_bytes = Split(x=as_split(records).x.astype(np.uint8), y=as_split(records).y)
    assert parted(as_bytes, 0.4)[1].x[:, 0].tolist() == KNOWN_TEST_RECORDS
