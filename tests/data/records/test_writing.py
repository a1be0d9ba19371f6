"""What is written is read back as the same records, exactly; and a file is whole or not there."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.data.records.reading import read_records
from privet.data.records.records import PatientRecords
from privet.data.records.writing import STAYS_AT_A_TIME, RecordWriter, write_records
from privet.errors import FaultyEnvironment, InputError


@given(records=st.from_type(PatientRecords), kind=st.sampled_from(["csv", "csv.gz", "parquet"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_is_read(tmp_path_factory, records, kind, assert_same):
    path = tmp_path_factory.mktemp("written") / f"r.{kind}"
    write_records(records, path)
    assert_same(read_records(path, records.schema, keep_duplicates=True), records)


@given(records=st.from_type(PatientRecords))
@settings(max_examples=50, deadline=None)
def test_the_long_form_is_read_too(tmp_path_factory, records, assert_same):
    path = tmp_path_factory.mktemp("written") / "r.csv"
    spread = np.arange(len(records.times)) if len(records.times) else records.times
    records = replace(records, times=records.times + 1e3 * spread)  # rows of one time would merge
    if records.starts is not None:
        records = replace(records, times=np.round(records.times))
    write_records(records, path, layout="long")
    assert_same(read_records(path, records.schema, keep_duplicates=True), records)


def test_the_file_looks_as_the_input_does(tmp_path, ward):
    records = PatientRecords(
        schema=ward(timestamps=True, start="came"),
        patients=np.array(["a", "b"]),
        stays=np.array(["1", "2"]),
        starts=np.array(["2125-03-19T13:22", "2125-03-20"], dtype="datetime64[us]"),
        static=np.array([[50, 1], [np.nan, np.nan]]),
        outcomes=np.array([[1], [np.nan]]),
        offsets=np.array([0, 2, 2]),
        times=np.array([0.0, 0.75]),
        values=np.array([[80, 36.6, 1, 0.1], [80.5, 37, np.nan, np.nan]]),
    )
    write_records(records, tmp_path / "r.csv")
    assert (tmp_path / "r.csv").read_text() == (
        "patient,visit,came,time,hr,temp,rhythm,lactate,age,sex,died\n"
        'a,1,2125-03-19 13:22:00,2125-03-19 13:22:00,80,36.6,"no, never",0.1,50,M,1\n'
        "a,1,2125-03-19 13:22:00,2125-03-19 13:22:45,80.5,37.0,,,50,M,1\n"
        "b,2,2125-03-20 00:00:00,,,,,,,,\n"
    )


def simple(ward, n):
    return PatientRecords(
        schema=ward(static=(), outcomes=()),
        patients=np.array([f"p{k}" for k in range(n)]),
        stays=np.array([f"s{k}" for k in range(n)]),
        static=np.empty((n, 0)),
        outcomes=np.empty((n, 0)),
        offsets=np.arange(n + 1),
        times=np.zeros(n),
        values=np.arange(4.0 * n).reshape(n, 4) % 4,
    )


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "r.parquet"])
def test_parts_are_appended_and_the_file_appears_at_the_end(tmp_path, ward, assert_same, name):
    records = simple(ward, STAYS_AT_A_TIME + 10)
    path = tmp_path / name
    with RecordWriter(path, records.schema) as writer:
        for part in (np.arange(5), np.arange(5, len(records))):
            writer.write(records.part(part))
            assert not path.exists()
    assert_same(read_records(path, records.schema), records)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_failure_leaves_nothing_behind(tmp_path, ward):
    def fail():
        with RecordWriter(tmp_path / "r.csv", ward(static=(), outcomes=())) as writer:
            writer.write(simple(ward, 3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_stays_unless_told(tmp_path, ward, assert_same):
    path = tmp_path / "r.csv"
    path.write_text("mine")
    records = simple(ward, 2)
    with pytest.raises(InputError, match="exists"):
        write_records(records, path)
    assert path.read_text() == "mine"
    write_records(records, path, overwrite=True)
    assert_same(read_records(path, records.schema), records)


def test_the_same_records_make_the_same_bytes(tmp_path, ward):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_records(simple(ward, 3), tmp_path / name)
    one, other = ((tmp_path / name).read_bytes() for name in ("a.csv.gz", "b.csv.gz"))
    assert one == other
    assert gzip.decompress(one).startswith(b"patient,visit,time,hr")


def test_misuse_is_said(tmp_path, ward):
    records = simple(ward, 1)
    with pytest.raises(InputError, match="unknown kind of file"):
        write_records(records, tmp_path / "r.xlsx")
    with pytest.raises(InputError, match="unknown layout"):
        write_records(records, tmp_path / "r.csv", layout="auto")
    with pytest.raises(InputError, match="not open"):
        RecordWriter(tmp_path / "r.csv", records.schema).write(records)
    with (
        pytest.raises(InputError, match="another schema"),
        RecordWriter(tmp_path / "r.csv", ward()) as writer,
    ):
        writer.write(records)
    with pytest.raises(FaultyEnvironment, match="cannot write"):
        write_records(records, tmp_path / "no" / "r.csv")
