"""The eICU demo: tables in its form with known answers, and the real one where it is."""

import gzip

import numpy as np
import pytest

from privet.data.locate import find_folder
from privet.data.records.eicu import NAME, SCHEMA, has_files, load_eicu_demo, read_eicu_demo
from privet.errors import InputError

NAN = np.nan
PATIENT = """\
patientunitstayid,gender,age,ethnicity,unittype,admissionweight,hospitaldischargestatus,uniquepid
1,Female,> 89,Caucasian,MICU,50.5,Alive,p1
2,,34,,Neuro ICU,,Expired,p2
3,Unknown,70,Asian,SICU,0.5,,p1
"""
PRESSURES = "noninvasivesystolic,noninvasivediastolic,noninvasivemean"
VITALS = f"""\
vitalaperiodicid,patientunitstayid,observationoffset,{PRESSURES},cardiacoutput,svr
11,2,30,120,80,93,,
12,1,-5,110,70,,0,
13,1,9,100,60,,4.5,1200
14,2,30,120,80,93,,
15,2,40,0,0,0,,
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in {"patient": PATIENT, "vitalAperiodic": VITALS}.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_known_answers(folder):
    records, notes = read_eicu_demo(folder)
    assert records.stays.tolist() == ["2", "1", "3"]
    assert records.patients.tolist() == ["p2", "p1", "p1"]
    assert records.lengths.tolist() == [1, 2, 0]
    assert records.times.tolist() == [30, 0, 9]
    np.testing.assert_array_equal(
        records.values,
        [[120, 80, 93, NAN, NAN], [110, 70, NAN, NAN, NAN], [100, 60, NAN, 4.5, 1200]],
    )
    np.testing.assert_array_equal(
        records.static,
        [[NAN, 34, NAN, 7, NAN], [0, 90, 0, 1, 50.5], [NAN, 70, 3, 2, NAN]],
    )
    np.testing.assert_array_equal(records.outcomes, [[1], [0], [NAN]])
    assert notes.duplicates == 1
    assert notes.done["rows before admission read as at admission"] == 1
    assert notes.done["impossible values of cardiacoutput read as missing"] == 1
    assert notes.done["rows without any value left out"] == 1


def test_vital_signs_of_an_unknown_stay_are_refused(folder):
    text = VITALS.replace("14,2,", "14,9,")
    (folder / "vitalAperiodic.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match="line 5"):
        load_eicu_demo(folder)


def test_the_real_stays():
    if find_folder(NAME, has_files) is None:
        pytest.skip("the eICU demo is not on this machine")
    records, notes = read_eicu_demo()
    assert (len(records), notes.patients, notes.rows) == (2520, SCHEMA.nominal_size, 274_088)
    died = records.outcomes[:, 0]
    assert ((died == 0).sum(), (died == 1).sum(), np.isnan(died).sum()) == (2280, 212, 28)
    assert (records.static[:, 1] == 90).sum() == 98
