"""WISDM: made-up files in both of its forms with known answers, and the real one where it is."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data.activities.by_user import dataset_of
from privet.data.activities.wisdm import ABOUT, BLANK, NAME, has_files, load_wisdm, read_wisdm
from privet.data.locate import find_folder
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from study_files import write_wisdm, write_wisdm_arff


def test_rows_have_their_users_features_and_activities(tmp_path):
    rows = write_wisdm(tmp_path / "wisdm_v1.1")
    made = load_wisdm(tmp_path)
    assert made.x.shape == (216, 41)
    assert made.users.tolist() == [place // 6 + 1 for place in range(216)]
    assert made.y.tolist() == [place % 6 for place in range(216)]
    column = ABOUT.features.index("ZAVG")
    assert made.x[:, column] == pytest.approx([float(row["ZAVG"]) for row in rows])
    assert not {"XAVG", "ZSTANDDEV", "user", "UNIQUE_ID", "class"} & set(ABOUT.features)
    peaks = made.x[:, ABOUT.features.index("YPEAK")]
    assert peaks[:4].tolist() == [BLANK, 250.5, 250.5, BLANK]


def test_both_forms_give_the_same(tmp_path):
    write_wisdm(tmp_path / "table")
    write_wisdm_arff(tmp_path / "original")
    assert has_files(tmp_path / "table")
    assert has_files(tmp_path / "original")
    one, other = (read_wisdm(tmp_path / form) for form in ("table", "original"))
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.y, other.y)
    assert np.array_equal(one.users, other.users)


def test_values_are_cut_off_at_the_bounds(tmp_path):
    write_wisdm(tmp_path)
    data = dataset_of(read_wisdm(tmp_path), ABOUT, name="w")
    assert set(data.train.x[:, ABOUT.features.index("XSTANDDEV")].tolist()) == {20.0}
    assert len(data.bounds.low) == 41
    assert data.features == ABOUT.features


@pytest.mark.parametrize(
    ("before", "after"),
    [("Walking", "Flying"), ("250.5", "fast"), ("250.5", "nan"), (",RESULTANT,", ",OTHER,")],
)
def test_rows_that_are_not_the_studys_are_refused(tmp_path, before, after):
    write_wisdm(tmp_path)
    path = tmp_path / "transformed.csv.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    assert before in text
    path.write_bytes(gzip.compress(text.replace(before, after, 1).encode()))
    with pytest.raises(InputError, match=r"row \d+ is not one of 'wisdm'"):
        read_wisdm(tmp_path)


def test_a_blank_is_filled_in_the_columns_of_peaks_only(tmp_path):
    write_wisdm_arff(tmp_path)
    path = tmp_path / "WISDM_ar_v1.1_transformed.arff"
    path.write_text(path.read_text().replace("31.5", "?", 1))
    with pytest.raises(InputError, match="row 1 is not one"):
        read_wisdm(tmp_path)


def test_broken_files_are_refused(tmp_path):
    (tmp_path / "transformed.csv.gz").write_bytes(gzip.compress(b"user,class\n"))
    with pytest.raises(InputError, match="has no rows"):
        read_wisdm(tmp_path)
    write_wisdm(tmp_path)
    whole = (tmp_path / "transformed.csv.gz").read_bytes()
    for broken in (whole[:500], b"no gzip at all", whole[:300] + b"\xff" * 40 + whole[340:]):
        (tmp_path / "transformed.csv.gz").write_bytes(broken)
        with pytest.raises(InputError, match=r"cannot be read|is not one of"):
            read_wisdm(tmp_path)


def test_the_real_rows():
    if find_folder(NAME, has_files) is None:
        pytest.skip("WISDM is not on this machine")
    made = load_wisdm()
    assert np.bincount(made.y).tolist() == [2081, 1625, 632, 528, 306, 246]
    assert set(made.users.tolist()) == set(range(1, 37))
    blanks = [(made.x[:, ABOUT.features.index(f"{a}PEAK")] == BLANK).sum() for a in "XYZ"]
    assert blanks == [381, 131, 103]
    low, high = (np.array(side, dtype=np.float32) for side in (ABOUT.bounds.low, ABOUT.bounds.high))
    assert ((made.x >= low) & (made.x <= high)).all(), "the ranges of the sensor cut nothing off"
