"""PhysioNet 2012: a folder in its form with known answers, and the real one where it is."""

import gzip

import numpy as np
import pytest

from privet.data.locate import find_folder
from privet.data.records.constraints import violations
from privet.data.records.physionet import (
    NAME,
    SCHEMA,
    has_files,
    load_physionet2012,
    read_physionet2012,
)
from privet.errors import InputError

PATIENTS = """\
record_id,set,age,gender,height_cm,icu_type,saps_i,sofa,los_days,survival_days,in_hospital_death
1,a,54,0,-1,4,6,1,5,-1,0
2,a,90,1,175.3,2,16,8,8,9,1
3,b,44,-1,13,3,21,11,19,-1,0
4,c,44,1,170,3,21,11,19,-1,0
"""
NAMES = [feature.name for feature in SCHEMA.temporal]


@pytest.fixture
def folder(tmp_path):
    def line(record, minute, **values):
        return ",".join([str(record), str(minute), *(str(values.get(n, "")) for n in NAMES)])

    header = ",".join(["record_id", "t_min", *NAMES])
    events = {
        "a": [
            line(1, 0, Weight=-1),
            line(1, 7, HR=73, NISysABP=147, NIDiasABP=65, GCS=15),
            line(1, 29, HR=77, Temp=-17.8),
            line(1, 37, MechVent=1, Temp=35.1),
            line(2, 0, Weight=80, pH=735),
            line(2, 0, Weight=81),
        ],
        "b": [line(3, 10, Urine=900)],
        "c": [line(4, 0, Weight=-1)],
    }
    files = {f"events_{k}": "\n".join([header, *rows]) + "\n" for k, rows in events.items()}
    for name, text in {"patients": PATIENTS, **files}.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def column(records, name):
    return records.values[:, NAMES.index(name)]


def test_unmerged_rows_are_as_in_the_files(folder):
    records, notes = read_physionet2012(folder, merge_within=0)
    assert records.patients.tolist() == records.stays.tolist() == ["1", "2", "3", "4"]
    assert records.lengths.tolist() == [3, 2, 1, 0]
    assert records.times.tolist() == [7, 29, 37, 0, 0, 10]
    np.testing.assert_array_equal(column(records, "HR")[:3], [73, 77, np.nan])
    np.testing.assert_array_equal(column(records, "Temp")[:3], [np.nan, np.nan, 35.1])
    np.testing.assert_array_equal(column(records, "MechVent")[:3], [np.nan, np.nan, 1])
    assert column(records, "Weight")[3:5].tolist() == [80, 81]
    np.testing.assert_array_equal(
        records.static,
        [[54, 0, np.nan, 3], [90, 1, 175.3, 1], [44, np.nan, np.nan, 2], [44, 1, 170, 2]],
    )
    assert records.outcomes[:, 0].tolist() == [0, 1, 0, 0]
    assert notes.done["impossible values of Weight read as missing"] == 2
    assert notes.done["impossible values of pH read as missing"] == 1
    assert notes.done["impossible values of height_cm read as missing"] == 1
    assert notes.done["rows without any value left out"] == 2


def test_rows_of_half_an_hour_are_merged(folder):
    records, notes = read_physionet2012(folder, merge_within=30)
    assert records.lengths.tolist() == [2, 1, 1, 0]
    assert records.times.tolist() == [29, 37, 0, 10]
    np.testing.assert_array_equal(column(records, "HR"), [77, np.nan, np.nan, np.nan])
    assert column(records, "Weight")[2] == 81
    assert notes.done["rows merged into another"] == 3
    assert notes.done["values replaced by a later one in merging"] == 2
    again = load_physionet2012(folder, merge_within=30)
    assert again.times.tolist() == records.times.tolist()


def test_rows_of_an_hour_are_merged_unless_told_otherwise(folder):
    assert load_physionet2012(folder).times.tolist() == [37, 0, 10]


def test_without_files_it_is_said_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"'physionet2012' were not found.*--data-dir"):
        read_physionet2012(tmp_path)


def test_levels_of_the_coma_scale_are_exact():
    coma = SCHEMA.feature("GCS")
    assert (coma.exact, coma.levels) == (True, 13)


def test_the_real_stays():
    if find_folder(NAME, has_files) is None:
        pytest.skip("PhysioNet 2012 is not on this machine")
    records, notes = read_physionet2012(merge_within=0)
    assert (len(records), notes.patients, notes.rows) == (12_000, 12_000, 909_818)
    has = np.zeros((12_000, len(NAMES)), dtype=bool)
    rows, places = np.nonzero(~np.isnan(records.values))
    has[records.stay_of_row[rows], places] = True
    share = dict(zip(NAMES, has.mean(axis=0), strict=True))
    published = {"HR": 0.985, "Temp": 0.985, "GCS": 0.985, "SaO2": 0.447, "RespRate": 0.277}
    for name, expected in published.items():
        assert share[name] == pytest.approx(expected, abs=6e-4)
    assert records.outcomes.mean() == pytest.approx(0.1423, abs=1e-4)
    assert np.isnan(records.static[:, 1]).sum() == 12  # gender -1
    broken, checkable = violations(records)["SysABP >= DiasABP"]
    assert 0 < broken < 0.01 * checkable
    merged = load_physionet2012()
    assert merged.lengths.max() <= 2880 // 30 + 1
    assert np.median(merged.lengths) < SCHEMA.max_steps
