"""Reading: known answers in both forms and file kinds, and every way in which a file is wrong."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.features import Categorical, Numeric
from privet.data.records.reading import read_records, read_with_notes
from privet.data.records.schema import Schema
from privet.errors import FaultyEnvironment, InputError

NAN = np.nan
WIDE = """patient,visit,time,hr,temp,rhythm,lactate,age,sex,died,note
a,1,0,80,36.6,yes,,50,F,0,x
a,1,10,,37,,1.25,50,F,0,
b,2,5,90,,"no, never",,61,M,1,
"""


def schema(**changes):
    facts = {
        "name": "ward",
        "stay": "visit",
        "temporal": (
            Numeric(name="hr", low=0, high=250, decimals=0),
            Numeric(name="temp", low=30, high=45, decimals=1),
            Categorical(name="rhythm", values=("yes", "no, never")),
            Numeric(name="lactate", low=0, high=30),
        ),
        "static": (
            Numeric(name="age", low=0, high=120, decimals=0),
            Categorical(name="sex", values=("F", "M")),
        ),
        "outcomes": (Categorical(name="died", values=("0", "1")),),
        "nominal_size": 10,
    }
    return Schema(**(facts | changes))


@pytest.fixture
def file(tmp_path):
    def write(text, name="records.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def check_the_ward(records):
    assert records.patients.tolist() == ["a", "b"]
    assert records.stays.tolist() == ["1", "2"]
    assert records.offsets.tolist() == [0, 2, 3]
    assert records.times.tolist() == [0.0, 10.0, 5.0]
    np.testing.assert_array_equal(
        records.values, [[80, 36.6, 0, NAN], [NAN, 37, NAN, 1.25], [90, NAN, 1, NAN]]
    )
    np.testing.assert_array_equal(records.static, [[50, 0], [61, 1]])
    np.testing.assert_array_equal(records.outcomes, [[0], [1]])


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "R.CSV"])
def test_the_wide_form(file, name):
    records, notes = read_with_notes(file(WIDE, name), schema())
    check_the_ward(records)
    assert (notes.rows, notes.stays, notes.patients, notes.duplicates) == (3, 2, 2, 0)


def test_the_long_form(file):
    text = """patient,visit,time,variable,value,age,sex,died
a,1,10,temp,37,50,F,0
a,1,0,hr,80,50,F,0
a,1,0,temp,36.6,50,F,0
b,2,5,rhythm,"no, never",61,M,1
a,1,0,rhythm,yes,50,F,0
a,1,10,lactate,1.25,50,F,0
b,2,5,hr,90,61,M,1
"""
    records, notes = read_with_notes(file(text), schema())
    check_the_ward(records)
    assert (notes.rows, notes.unsorted) == (3, 1)


def test_a_second_file_has_the_facts(file):
    cut = "\n".join(",".join(line.split(",")[:4]) for line in WIDE.splitlines())
    only = schema(temporal=(Numeric(name="hr", low=0, high=250),))
    facts = file("patient,visit,age,sex,died\nb,2,61,M,1\na,1,50,F,0\nc,9,70,M,\n", "facts.csv")
    records = read_records(file(cut), only, static_path=facts)
    assert records.stays.tolist() == ["1", "2", "9"]  # the third has no rows, and is kept
    np.testing.assert_array_equal(records.static, [[50, 0], [61, 1], [70, 1]])
    np.testing.assert_array_equal(records.outcomes, [[0], [1], [NAN]])
    assert records.lengths.tolist() == [2, 1, 0]


def test_facts_may_be_about_patients(file):
    rows = file("patient,visit,time,hr\na,1,0,80\nb,2,0,90\na,3,0,70\n")
    facts = file("patient,age,sex,died\nb,61,M,1\na,50,F,0\n", "facts.csv")
    only = schema(temporal=(Numeric(name="hr", low=0, high=250),))
    records = read_records(rows, only, static_path=facts)
    assert records.stays.tolist() == ["1", "2", "3"]
    assert records.static[:, 0].tolist() == [50, 61, 50]
    with pytest.raises(InputError, match=r"facts.csv has no line for some stays: got 2 without"):
        read_records(rows, only, static_path=file("patient,age,sex,died\nb,61,M,1\n", "facts.csv"))
    with pytest.raises(InputError, match="whose its lines are"):
        read_records(rows, only, static_path=file("age,sex,died\n61,M,1\n", "facts.csv"))


def test_parquet_is_read_as_csv_is(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "patient": ["a", "a", "b"],
            "visit": [1.0, 1.0, 2.0],  # whole numbers often come as floats
            "time": [0, 10, 5],
            "hr": pa.array([80, None, 90], pa.int32()),
            "temp": [36.6, 37.0, None],
            "rhythm": pa.array(["yes", None, "no, never"]).dictionary_encode(),
            "lactate": pa.array([None, 1.25, None], pa.float32()),
            "age": [50, 50, 61],
            "sex": ["F", "F", "M"],
            "died": [False, False, True],
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    check_the_ward(read_records(tmp_path / "r.parquet", schema()))
    broken = table.set_column(3, "hr", pa.array(["80", "x", "90"]))
    pq.write_table(broken, tmp_path / "r.parquet")
    with pytest.raises(InputError, match=r"row 2, column 'hr': not a number"):
        read_records(tmp_path / "r.parquet", schema())


def test_parquet_dates(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    seconds = pa.array([60, 0], pa.timestamp("s", tz="Europe/Berlin"))
    table = {"patient": ["a", "a"], "time": seconds, "hr": [1.0, 2.0]}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    only = Schema(
        name="x",
        timestamps=True,
        temporal=(Numeric(name="hr", low=0, high=250),),
        nominal_size=1,
    )
    records = read_records(tmp_path / "r.parquet", only)
    assert records.starts.tolist() == np.array(["1970-01-01"], "datetime64[us]").tolist()
    assert (records.times.tolist(), records.values[:, 0].tolist()) == ([0.0, 1.0], [2.0, 1.0])


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    path = tmp_path / "r.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(FaultyEnvironment, match=r"privet\[parquet\]"):
        read_records(path, schema())


def test_unsorted_rows_are_sorted_and_equal_times_keep_their_order(file):
    text = WIDE + "a,1,10,71,,,,50,F,0,\na,1,5,70,,,,50,F,0,\na,1,10,72,,,,50,F,0,\n"
    records, notes = read_with_notes(file(text), schema())
    assert records.times.tolist() == [0.0, 5.0, 10.0, 10.0, 10.0, 5.0]
    np.testing.assert_array_equal(records.values[:5, 0], [80, 70, NAN, 71, 72])
    assert notes.unsorted == 1


def test_exact_duplicates_are_dropped_and_counted(file):
    text = (
        WIDE + "a,1,10,71,,,,50,F,0,\na,1,10,,37,,1.25,50,F,0,other\na,1,0,80,36.6,yes,,50,F,0,\n"
    )
    records, notes = read_with_notes(file(text), schema())
    assert notes.duplicates == 2
    assert records.lengths.tolist() == [3, 1]
    np.testing.assert_array_equal(records.values[:3, 0], [80, NAN, 71])
    kept = read_records(file(text), schema(), keep_duplicates=True)
    assert kept.lengths.tolist() == [5, 1]


def test_two_values_of_one_variable_at_one_time_are_two_rows(file):
    text = """patient,visit,time,variable,value,age,sex,died
a,1,0,hr,80,50,F,0
a,1,0,temp,36.5,50,F,0
a,1,0,hr,81,50,F,0
a,1,0,hr,80,50,F,0
a,1,0,weight,70,50,F,0
b,2,1,weight,70,50,F,0
"""
    records, notes = read_with_notes(file(text), schema())
    np.testing.assert_array_equal(records.values[:, :2], [[80, 36.5], [81, NAN]])
    assert records.lengths.tolist() == [2, 0]  # b is known by undeclared variables alone
    assert notes.duplicates == 1
    assert notes.done == {"lines of undeclared variables left out": 2}
    kept = read_records(file(text), schema(), keep_duplicates=True)
    np.testing.assert_array_equal(kept.values[:, 0], [80, 81, 80])


def test_one_patient_and_a_column_never_observed(file):
    text = "patient,visit,time,hr,temp,rhythm,lactate,age,sex,died\na,1,3,80,,,,,,\n"
    records = read_records(file(text), schema())
    assert len(records) == 1
    np.testing.assert_array_equal(records.values, [[80, NAN, NAN, NAN]])
    assert np.isnan(records.static).all()


def test_values_outside_the_bounds_are_kept_and_counted(file):
    records, notes = read_with_notes(file(WIDE.replace("80,36.6", "800,-17.8")), schema())
    assert records.values[0, :2].tolist() == [800.0, -17.8]
    assert notes.outside == {"hr": 1, "temp": 1, "lactate": 0, "age": 0}


def test_words_for_missing_are_missing(file):
    text = WIDE.replace("a,1,10,,37,,1.25", "a,1,10,NA,nan,null,-9")
    records = read_records(file(text), schema(), missing={"lactate": ("-9",)})
    assert np.isnan(records.values[1]).all()


def test_a_row_without_a_time_says_that_there_is_a_stay(file):
    records = read_records(file(WIDE + "c,3,,,,,,70,F,1,\n"), schema())
    assert (records.stays[-1], records.lengths[-1]) == ("3", 0)
    assert records.static[-1].tolist() == [70, 0]


def test_several_files_are_read_as_one(file):
    head, *lines = WIDE.splitlines()
    paths = [file(f"{head}\n{line}\n", f"part{k}.csv") for k, line in enumerate(lines)]
    check_the_ward(read_records(paths, schema()))
    bad = file(f"{head}\n\n{lines[2].replace('90', 'x')}\n", "part2.csv")
    with pytest.raises(InputError, match=r"part2.csv: line 3, column 'hr'"):
        read_records([*paths[:2], bad], schema())


def times_of(file, *texts, **changes):
    only = Schema(
        name="x",
        patient="p",
        time="t",
        timestamps=True,
        temporal=(Numeric(name="hr", low=0, high=250),),
        nominal_size=1,
        **changes,
    )
    lines = "\n".join(f"a,{text},{k}" for k, text in enumerate(texts))
    return read_records(file(f"p,t,hr\n{lines}\n"), only)


def test_dates_become_times_since_the_first(file):
    records = times_of(file, "2125-03-19 13:22:00", "2125-03-19T13:07", "2125-03-20")
    assert records.starts.tolist() == np.array(["2125-03-19T13:07"], "datetime64[us]").tolist()
    assert records.times.tolist() == [0.0, 15.0, 653.0]
    hours = times_of(file, "2125-03-19 13:00:00.5", "2125-03-19 14:30:00.5", time_unit="hours")
    assert hours.times.tolist() == [0.0, 1.5]


def test_offsets_are_taken_off(file):
    records = times_of(file, "2125-03-19 13:00:00+02:00", "2125-03-19 11:30:00Z")
    assert records.starts.tolist() == np.array(["2125-03-19T11:00"], "datetime64[us]").tolist()
    assert records.times.tolist() == [0.0, 30.0]


def test_dates_with_and_without_a_zone_are_refused_in_one_line(file):
    with pytest.raises(InputError, match=r"line 3, column 't'.*with and without a time zone") as e:
        times_of(file, "2125-03-19 13:00:00+02:00", "2125-03-19 11:30:00")
    assert "\n" not in str(e.value)
    assert "2125" not in str(e.value)


@pytest.mark.parametrize("bad", ["yesterday", "2125-13-01", "12:30", "1700000000.5"])
def test_what_is_no_date_is_refused(file, bad):
    with pytest.raises(InputError, match=r"line 2, column 't': not a date"):
        times_of(file, bad)


def test_a_start_column_tells_when_a_stay_began(file):
    text = "p,t,came,hr\na,2125-01-01 10:30:00,2125-01-01 10:00:00,1\n"
    only = Schema(
        name="x",
        patient="p",
        time="t",
        timestamps=True,
        start="came",
        temporal=(Numeric(name="hr", low=0, high=250),),
        nominal_size=1,
    )
    assert read_records(file(text), only).times.tolist() == [30.0]
    with pytest.raises(InputError, match="line 2: before its stay's start"):
        read_records(file(text.replace("10:00", "10:31")), only)
    with pytest.raises(InputError, match="line 2: no start"):
        read_records(file(text.replace("2125-01-01 10:00:00", "")), only)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a,1,10,,37,,1.25", "a,1,10,,37,1.25", r"line 3 is ragged: got 10 cells, expected 11"),
        ("37,,1.25", "warm,,1.25", "line 3, column 'temp': not a number"),
        ("37,,1.25", "3_7,,1.25", "line 3, column 'temp': not a number"),
        ("37,,1.25", "inf,,1.25", "line 3, column 'temp': an infinite number"),
        ("36.6,yes", "36.6,perhaps", "line 2, column 'rhythm': not a word.*one of yes, no, never"),
        ("b,2,5", "b,2,-5", "line 4, column 'time': a negative time"),
        ("b,2,5", "b,2,nan", "line 4, column 'time': no time"),
        ("b,2,5", "b,2,inf", "line 4, column 'time': an infinite"),
        ("b,2,5", "b,2,", "line 4, column 'time': values without a time"),
        ("b,2,5", ",2,5", "line 4, column 'patient': no id"),
        ("b,2,5", "b,NaN,5", "line 4, column 'visit': no id"),
        ("1.25,50", "1.25,51", "line 3, column 'age': changes within a stay"),
        ("1.25,50,F,0", "1.25,50,F,1", "line 3, column 'died': changes within a stay"),
        ("rhythm,lactate", "rythm,lactate", "has no column 'rhythm'.*rythm"),
        ("lactate,age", "hr,age", "column 'hr' occurs twice"),
        ("note", "hr", "column 'hr' occurs twice"),
        ('"no, never"', '"no, never', "cannot be read as CSV"),
    ],
)
def test_bad_input_is_named_and_never_repeated(file, old, new, words):
    assert old in WIDE
    with pytest.raises(InputError, match=words) as caught:
        read_records(file(WIDE.replace(old, new, 1)), schema())
    assert "\n" not in str(caught.value)
    assert "perhaps" not in str(caught.value)
    assert "warm" not in str(caught.value)


def test_lines_are_those_of_the_file_whatever_is_quoted_or_blank(file):
    text = WIDE.replace("F,0,x", 'F,0,"two\nlines"') + "\n\nb,2,6,oops,,,,61,M,1,\n"
    with pytest.raises(InputError, match="line 8, column 'hr'"):
        read_records(file(text), schema())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,1,0,hr,many", "line 2, column 'value', variable 'hr': not a number"),
        ("a,1,0,rhythm,odd", "line 2, column 'value', variable 'rhythm': not a word"),
        ("a,1,0,,5", "line 2, column 'variable': a value of no variable"),
        ("a,1,,hr,5", "line 2, column 'time': values without a time"),
    ],
)
def test_bad_input_in_the_long_form(file, line, words):
    text = f"patient,visit,time,variable,value\n{line}\n"
    with pytest.raises(InputError, match=words):
        read_records(file(text), schema(static=(), outcomes=()))


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), ("\n\n", "is empty"), (WIDE.splitlines()[0] + "\n", "no rows")],
)
def test_files_without_rows_are_refused(file, text, words):
    with pytest.raises(InputError, match=words):
        read_records(file(text), schema())


def test_files_that_cannot_be_read_are_refused(tmp_path, file):
    with pytest.raises(InputError, match="not found"):
        read_records(tmp_path / "no.csv", schema())
    with pytest.raises(InputError, match="unknown kind of file"):
        read_records(file(WIDE, "r.txt"), schema())
    with pytest.raises(InputError, match="unknown layout"):
        read_records(file(WIDE), schema(), layout="square")
    packed = file(WIDE, "r.csv.gz")
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_records(packed, schema())
    latin = tmp_path / "l.csv"
    latin.write_bytes(WIDE.replace("yes", "ja\xff").encode("latin-1"))
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_records(latin, schema())
    wrong = tmp_path / "w.parquet"
    wrong.write_bytes(b"not parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_records(wrong, schema())


def test_a_layout_may_be_named(file):
    text = "patient,visit,time,variable,value,hr\na,1,0,hr,5,6\n"
    only = schema(static=(), outcomes=(), temporal=(Numeric(name="hr", low=0, high=9),))
    assert read_records(file(text), only).values.tolist() == [[6.0]]
    assert read_records(file(text), only, layout="long").values.tolist() == [[5.0]]


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_exactly(tmp_path_factory, number):
    path = tmp_path_factory.mktemp("exact") / "r.csv"
    path.write_text(f"patient,time,hr\na,0,{number!r}\n")
    only = Schema(name="x", temporal=(Numeric(name="hr", low=0, high=1),), nominal_size=1)
    assert read_records(path, only).values[0, 0] == number


@given(order=st.permutations(range(6)))
def test_the_order_of_lines_does_not_matter(tmp_path_factory, order):
    """But for the order of the stays, and of rows of one time."""
    lines = [f"{'ab'[k % 2]},{k},{k * 10}" for k in range(6)]
    path = tmp_path_factory.mktemp("order") / "r.csv"
    path.write_text("patient,time,hr\n" + "\n".join(lines[k] for k in order) + "\n")
    only = Schema(name="x", temporal=(Numeric(name="hr", low=0, high=1),), nominal_size=1)
    records = read_records(path, only)
    a = records.part(records.patients == "a")
    assert (a.times.tolist(), a.values[:, 0].tolist()) == ([0, 2, 4], [0, 20, 40])
