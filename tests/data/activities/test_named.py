"""The activities by name: what a window is, who is on which side, and what may be published."""

import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data import load
from privet.data.activities import hapt, watch, wisdm
from privet.data.activities.named import simulated_population
from privet.data.locate import find_folder
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from study_files import write_hapt, write_watch, write_wisdm

READERS = {"hapt": hapt, "watch": watch, "wisdm": wisdm}


def test_windows_are_accelerations_of_everybody(tmp_path):
    """50 s of each activity: 42.5 s train, so the first windows are the first samples."""
    arrays = write_hapt(tmp_path / "hapt")
    data = load("hapt", tmp_path)
    assert (data.shape, data.unit, data.nominal_size) == ((3, 100), "user", 30)
    assert not data.test_is_public
    expected = np.clip(arrays["acc"][50:150] / 720 / 2.0, -1, 1).T
    assert data.train.x[1] == pytest.approx(expected, abs=1e-6)  # one every 50 samples
    # 2,125 samples of each of three activities train, 375 test.
    assert np.bincount(data.train.y, minlength=6).tolist() == [30 * 41, 30 * 41, 0, 0, 0, 30 * 41]
    assert np.bincount(data.test.y, minlength=6).tolist() == [180, 180, 0, 0, 0, 180]
    assert data.train.n_units == data.test.n_units == 30


def test_no_window_of_the_test_shares_a_sample_with_training(tmp_path):
    write_hapt(tmp_path / "hapt")
    data = load("hapt", tmp_path)
    # Samples are drawn anew each: three axes together say which sample it is.
    seen = {sample.tobytes() for window in data.train.x for sample in window.T}
    tested = [sample.tobytes() for window in data.test.x for sample in window.T]
    shared = sum(sample in seen for sample in tested) / len(tested)
    assert shared < 1e-3, "by chance alone"


@pytest.mark.parametrize(
    ("name", "shape", "sizes"),
    [("hapt", (3, 100), (21, 9)), ("watch", (3, 100), (8, 2)), ("wisdm", (41,), (27, 9))],
)
def test_new_users_are_whole_users_and_public(tmp_path, name, shape, sizes):
    write_hapt(tmp_path / "hapt")
    write_watch(tmp_path / "watch_seglearn", seconds=20)
    write_wisdm(tmp_path / "wisdm_v1.1", each=60)
    data, usual = load(f"{name}/new-users", tmp_path), load(name, tmp_path)
    assert data.name == f"{name}/new-users"
    assert data.shape == usual.shape == shape
    assert (data.train.n_units, data.test.n_units) == sizes
    assert (data.nominal_size, usual.nominal_size) == (sizes[0], sum(sizes))
    assert (data.test_is_public, usual.test_is_public) == (True, False)
    assert set(data.originals) < set(usual.originals)


def test_both_arms_are_tested(tmp_path):
    """The later part of each sequence, not of the right arm alone."""
    write_watch(tmp_path / "watch_seglearn", seconds=20)
    data = load("watch", tmp_path)
    # 1,000 samples a sequence: 850 make 16 windows, 150 make 2; 10 users, 2 arms, 7 exercises.
    assert (len(data.train), len(data.test)) == (16 * 140, 2 * 140)


def test_the_last_rows_of_each_activity_are_for_testing(tmp_path):
    write_wisdm(tmp_path / "wisdm_v1.1", each=60)
    data, rows = load("wisdm", tmp_path), wisdm.read_wisdm(tmp_path / "wisdm_v1.1")
    own = rows.x[(rows.users == 3) & (rows.y == 4)]  # 10 of them: 8.5 rounds to 8
    train, test = (s.x[(s.units == 2) & (s.y == 4)] for s in (data.train, data.test))
    bounds = wisdm.ABOUT.bounds
    assert np.array_equal(np.concatenate([train, test]), np.clip(own, bounds.low, bounds.high))
    assert (len(train), len(test)) == (8, 2)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("hapt", (12_188, 1975)),
        ("hapt/new-users", (10_269, 4167)),
        ("watch", (3943, 523)),
        ("watch/new-users", (3668, 1009)),
        ("wisdm", (4608, 810)),
        ("wisdm/new-users", (4075, 1343)),
    ],
)
def test_the_real_ones(name, sizes):
    reader = READERS[name.partition("/")[0]]
    if find_folder(reader.NAME, reader.has_files) is None:
        pytest.skip(f"'{name}' is no part of the project and was not found on this machine")
    data = load(name)
    assert (len(data.train), len(data.test)) == sizes


def test_a_simulated_population_grows_without_changing_who_is_there():
    few, more = simulated_population(3), simulated_population(5)
    assert (few.name, more.name, more.nominal_size) == ("activities-3", "activities-5", 5)
    there = more.train.units < 3
    assert np.array_equal(more.train.x[there], few.train.x)
    with pytest.raises(InputError, match="bad number of users"):
        simulated_population(0)
