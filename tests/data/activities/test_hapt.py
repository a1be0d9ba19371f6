"""HAPT: made-up files in both of its forms with known answers, and the real one where it is."""

import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data.activities.hapt import ABOUT, NAME, RANGES, has_files, load_hapt, read_hapt
from privet.data.activities.sessions import Segment, cut
from privet.data.locate import find_folder
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from study_files import write_hapt, write_hapt_texts


def test_sessions_have_their_users_signals_and_activities(tmp_path):
    arrays = write_hapt(tmp_path / "hapt", users=(3, 3, 30))
    sessions = load_hapt(tmp_path)
    assert [session.user for session in sessions] == [3, 3, 30]
    second = sessions[1]
    assert second.signal.shape == (10_000, 6)
    start = 10_000
    assert second.signal[5, 0] == pytest.approx(arrays["acc"][start + 5, 0] / 720 / 2.0)
    assert second.signal[5, 4] == pytest.approx(arrays["gyro"][start + 5, 1] * 3.05e-4 / RANGES[4])
    assert second.segments == (
        Segment(label=0, start=0, stop=2500),
        Segment(label=1, start=2500, stop=5000),
        Segment(label=5, start=7500, stop=10_000),
    ), "counted from 0; the transition is left out"


def test_values_beyond_the_range_are_cut_off(tmp_path):
    arrays = write_hapt(tmp_path, users=(1,))
    np.savez(tmp_path / "hapt_raw_50hz.npz", **(arrays | {"acc_scale": np.float64(1.0)}))
    (session,) = read_hapt(tmp_path)
    assert np.abs(session.signal).max() == 1.0


def test_both_forms_give_the_same(tmp_path):
    write_hapt(tmp_path / "archive", seconds=3, users=(1, 2))
    write_hapt_texts(tmp_path / "texts", seconds=3, users=(1, 2))
    for one, other in zip(*(read_hapt(tmp_path / f) for f in ("archive", "texts")), strict=True):
        assert (one.user, one.segments, one.rate) == (other.user, other.segments, other.rate)
        assert one.signal == pytest.approx(other.signal, abs=1e-6)


def test_files_are_recognised_by_either_form(tmp_path):
    assert not has_files(tmp_path)
    write_hapt_texts(tmp_path, seconds=1, users=(1,))
    assert has_files(tmp_path)


def test_broken_files_are_refused(tmp_path):
    write_hapt_texts(tmp_path / "one", seconds=1, users=(1,))
    raw = tmp_path / "one" / "RawData"
    (raw / "gyro_exp01_user01.txt").write_text("0 0 0\n")
    with pytest.raises(InputError, match="differ in length"):
        read_hapt(tmp_path / "one")
    (raw / "gyro_exp01_user01.txt").write_text("0 0\n")
    with pytest.raises(InputError, match="other columns"):
        read_hapt(tmp_path / "one")
    (raw / "gyro_exp01_user01.txt").unlink()
    with pytest.raises(InputError, match=r"gyro_exp01_user01\.txt cannot be read"):
        read_hapt(tmp_path / "one")
    arrays = write_hapt(tmp_path / "two", users=(1,))
    late = arrays["labels"].copy()
    late[-1, 4] += 1
    np.savez(tmp_path / "two" / "hapt_raw_50hz.npz", **(arrays | {"labels": late}))
    with pytest.raises(InputError, match="outside its session"):
        read_hapt(tmp_path / "two")


def test_the_split_is_the_published_one():
    assert len(ABOUT.train_users) == 21
    assert set(ABOUT.train_users) | set(ABOUT.test_users) == set(range(1, 31))


def test_the_real_sessions():
    if find_folder(NAME, has_files) is None:
        pytest.skip("HAPT is not on this machine")
    sessions = load_hapt()
    assert (len(sessions), sum(len(s.signal) for s in sessions)) == (61, 1_122_772)
    samples = np.zeros(6, dtype=int)
    for session in sessions:
        for segment in session.segments:
            samples[segment.label] += segment.stop - segment.start
    assert samples.tolist() == [122_091, 116_707, 107_961, 126_677, 138_105, 136_865]
    windows = cut(sessions)
    assert windows.x.shape == (14_436, 1, 6, 100)
    # Who lies has gravity along another axis than who stands.
    upright = np.abs(windows.x[:, 0, 0].mean(axis=1) * 2.0)
    assert np.median(upright[windows.y == 4]) > 0.9
    assert np.median(upright[windows.y == 5]) < 0.4
