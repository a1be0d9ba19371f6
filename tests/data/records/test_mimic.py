"""MIMIC-IV-ED: tables in its form with known answers, and the open demo where it is."""

import numpy as np
import pytest

from privet.data.locate import find_folder
from privet.data.records.mimic import DEMO, WHOLE, has_files, load_mimic_iv_ed, read_mimic_iv_ed
from privet.errors import InputError

NAN = np.nan
TABLES = {
    "edstays": """\
subject_id,hadm_id,stay_id,intime,outtime,gender,race,arrival_transport,disposition
7,,71,2125-03-19 12:00:00,2125-03-19 16:00:00,F,WHITE - OTHER EUROPEAN,WALK IN,ADMITTED
8,,81,2130-01-01 00:00:00,2130-01-01 01:00:00,M,UNKNOWN,AMBULANCE,HOME
7,,72,2126-03-19 12:00:00,2126-03-19 16:00:00,F,MARTIAN,UNKNOWN,EXPIRED
""",
    "triage": """\
subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint
8,81,37,,,,,879,unable,,FALL
7,71,98.6,80,16,99,120,80,5,2,"PAIN, CHEST"
7,72,,,,,,,,3.0,?
""",
    "vitalsign": """\
subject_id,stay_id,charttime,temperature,heartrate,resprate,o2sat,sbp,dbp,rhythm,pain
7,71,2125-03-19 18:00:00,,90,18,98,118,79,,13
7,71,2125-03-19 12:30:00,98.9,85,18,98,118,79,Sinus Rhythm,10
7,71,2125-03-19 11:50:00,,84,,,,,,
8,81,2130-01-01 00:30:00,,70,,,,,,0
8,81,2130-01-01 00:30:00,,70,,,,,,0
""",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ed").mkdir()
    for name, text in TABLES.items():
        (tmp_path / "ed" / f"{name}.csv").write_text(text)
    return tmp_path


def test_triage_comes_first_and_vital_signs_follow(folder):
    records, notes = read_mimic_iv_ed(folder)
    assert records.stays.tolist() == ["81", "71", "72"]
    assert records.patients.tolist() == ["8", "7", "7"]
    assert records.lengths.tolist() == [2, 4, 0]
    assert records.times.tolist() == [0, 30, 0, 0, 30, 360]
    np.testing.assert_array_equal(
        records.values,
        [
            [98.6, NAN, NAN, NAN, NAN, NAN, NAN],  # 37 Celsius
            [NAN, 70, NAN, NAN, NAN, NAN, 0],
            [98.6, 80, 16, 99, 120, 80, 5],
            [NAN, 84, NAN, NAN, NAN, NAN, NAN],  # charted before intime
            [98.9, 85, 18, 98, 118, 79, 10],
            [NAN, 90, 18, 98, 118, 79, NAN],  # after outtime, and pain 13
        ],
    )
    assert records.starts[1] == np.datetime64("2125-03-19T12:00")
    np.testing.assert_array_equal(records.static, [[1, NAN, 0, NAN], [0, 0, 1, 2], [0, 4, 4, 3]])
    assert records.outcomes[:, 0].tolist() == [1, 0, 6]
    assert notes.duplicates == 1
    assert notes.done["rows before intime read as at intime"] == 1
    assert notes.done["rows after outtime kept"] == 1
    assert notes.done["temperatures converted from Celsius"] == 1
    assert notes.done["impossible values of dbp read as missing"] == 1
    assert notes.done["pains that are no number from 0 to 10 read as missing"] == 2
    assert notes.done["races that are in no group read as OTHER"] == 1
    assert notes.done["rows without any value left out"] == 1


def test_the_whole_is_read_as_the_demo_is(folder):
    whole = load_mimic_iv_ed(folder, name=WHOLE)
    assert (whole.schema.name, whole.schema.nominal_size) == (WHOLE, 205_000)
    assert len(whole) == 3


def test_vital_signs_of_an_unknown_stay_are_refused(folder):
    path = folder / "ed" / "vitalsign.csv"
    path.write_text(path.read_text().replace("8,81,", "8,99,", 1))
    with pytest.raises(InputError, match=r"line 5: a stay that edstays\.csv does not have"):
        load_mimic_iv_ed(folder)


def test_the_open_demo():
    if find_folder(DEMO, has_files) is None:
        pytest.skip("the MIMIC-IV-ED demo is not on this machine")
    records, notes = read_mimic_iv_ed()
    assert (len(records), notes.patients, notes.rows) == (222, 64, 222 + 1038)
    assert np.bincount(records.outcomes[:, 0].astype(int))[:3].tolist() == [150, 60, 5]
    missing = dict(
        zip(
            (f.name for f in records.schema.temporal), np.isnan(records.values).mean(0), strict=True
        )
    )
    assert 0.3 < missing["temperature"] < 0.45
    assert missing["heartrate"] < 0.04
    temperature = records.values[:, 0]
    assert np.nanmin(temperature) > 80  # nothing is left in Celsius
