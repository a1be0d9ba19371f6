"""OMOP-style tables: known answers, streaming, and a folder that is whole or not there."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from privet.data.records.features import Categorical
from privet.data.records.omop import OmopWriter, death_outcome, write_omop
from privet.data.records.records import PatientRecords
from privet.errors import FaultyEnvironment, InputError

NAN = np.nan


def read(folder, table):
    with (folder / f"{table}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def records(ward):
    return PatientRecords(
        schema=ward(timestamps=True, start="came"),
        patients=np.array(["a", "b", "a"]),
        stays=np.array(["1", "2", "3"]),
        starts=np.array(["2125-03-19T23:30", "2125-01-01", "2126-01-01"], dtype="datetime64[us]"),
        static=np.array([[50, 0], [61, NAN], [51, 0]]),
        outcomes=np.array([[0], [1], [NAN]]),
        offsets=np.array([0, 2, 2, 3]),
        times=np.array([0.0, 60.0, 5.0]),
        values=np.array([[80, NAN, 1, NAN], [NAN, 36.6, NAN, 0.25], [90, NAN, NAN, NAN]]),
    )


def test_tables_have_every_value_once(tmp_path, records):
    write_omop(records, tmp_path / "omop")
    person = read(tmp_path / "omop", "person")
    assert [(p["person_id"], p["person_source_value"]) for p in person] == [("1", "a"), ("2", "b")]
    assert [p["year_of_birth"] for p in person] == ["2075", "2064"]
    assert [p["gender_source_value"] for p in person] == ["F", ""]
    visit = read(tmp_path / "omop", "visit_occurrence")
    assert [v["person_id"] for v in visit] == ["1", "2", "1"]
    assert visit[0]["visit_end_date"] == "2125-03-20"
    assert visit[0]["visit_end_datetime"] == "2125-03-20 00:30:00"
    measured = {
        (m["measurement_source_value"], m["value_as_number"], m["visit_occurrence_id"])
        for m in read(tmp_path / "omop", "measurement")
    }
    assert measured == {
        ("hr", "80", "1"),
        ("hr", "90", "3"),
        ("temp", "36.6", "1"),
        ("lactate", "0.25", "1"),
    }
    observed = {
        (o["observation_source_value"], o["value_as_string"] or o["value_as_number"])
        for o in read(tmp_path / "omop", "observation")
    }
    assert observed == {
        *{("rhythm", "no, never"), ("age", "50"), ("age", "61"), ("age", "51")},
        *{("died", "0"), ("died", "1")},
    }
    death = read(tmp_path / "omop", "death")
    assert [(d["person_id"], d["death_date"]) for d in death] == [("2", "2125-01-01")]


def test_ids_are_unique_and_rows_the_same_however_records_are_parted(tmp_path, records):
    write_omop(records, tmp_path / "whole")
    with OmopWriter(tmp_path / "parts", records.schema) as writer:
        for k in range(3):
            writer.write(records.part([k]))
    for table in ("person", "visit_occurrence", "death"):
        assert read(tmp_path / "whole", table) == read(tmp_path / "parts", table)
    for table in ("measurement", "observation"):
        parts = read(tmp_path / "parts", table)
        ids = [row.pop(f"{table}_id") for row in parts]
        assert len(set(ids)) == len(ids)
        whole = read(tmp_path / "whole", table)
        assert len({row.pop(f"{table}_id") for row in whole}) == len(whole)
        assert sorted(map(str, whole)) == sorted(map(str, parts))


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("in_hospital_death", ("0", "1"), (0, 1)),
        ("disposition", ("home", "died"), (0, 1)),
        ("hospitaldischargestatus", ("Expired", "Alive"), (0, 0)),
        ("readmitted", ("0", "1"), None),
        ("outcome", ("good", "bad"), None),
    ],
)
def test_an_outcome_that_tells_of_death_is_found(ward, name, values, found):
    schema = ward(outcomes=(Categorical(name=name, values=values),))
    assert death_outcome(schema) == found


def test_without_such_an_outcome_there_is_no_such_table(tmp_path, records, ward):
    schema = ward(timestamps=True, start="came", outcomes=())
    write_omop(replace(records, schema=schema, outcomes=np.empty((3, 0))), tmp_path / "omop")
    assert {p.name for p in (tmp_path / "omop").iterdir()} == {
        *("person.csv", "visit_occurrence.csv", "measurement.csv", "observation.csv")
    }


def test_a_table_without_rows_has_its_header(tmp_path, records):
    with OmopWriter(tmp_path / "omop", records.schema):
        pass
    assert (tmp_path / "omop" / "death.csv").read_text().startswith("person_id,death_date")
    assert read(tmp_path / "omop", "measurement") == []


def test_relative_times_count_from_a_fixed_day(tmp_path, records, ward):
    write_omop(replace(records, schema=ward(), starts=None), tmp_path / "omop")
    moments = [m["measurement_datetime"] for m in read(tmp_path / "omop", "measurement")]
    assert sorted(set(moments)) == [
        *("2000-01-01 00:00:00", "2000-01-01 00:05:00", "2000-01-01 01:00:00")
    ]


def test_a_failure_leaves_nothing_behind(tmp_path, records, ward):
    def fail():
        with OmopWriter(tmp_path / "omop", records.schema) as writer:
            writer.write(records)
            writer.write(replace(records, schema=ward(), starts=None))

    with pytest.raises(InputError, match="another schema"):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="exists"):
        write_omop(records, tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(FaultyEnvironment, match="cannot write"):
        write_omop(records, tmp_path / "file" / "omop")
