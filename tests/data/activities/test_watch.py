"""The watch: a made-up file with known answers, and the real one where it is."""

import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data.activities.sessions import cut
from privet.data.activities.watch import ABOUT, NAME, RANGES, has_files, load_watch
from privet.data.locate import find_folder
from privet.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from study_files import write_watch


def test_sequences_have_their_users_sides_and_exercises(tmp_path):
    arrays = write_watch(tmp_path / "watch")
    sessions = load_watch(tmp_path)
    assert len(sessions) == 140
    one = sessions[2 * 14 + 7 + 3]
    assert (one.user, one.setting, one.segments[0].label) == (3, "right", 3)
    expected = arrays["x"][38 * 300 : 39 * 300] / np.array(RANGES)
    assert one.signal == pytest.approx(np.clip(expected, -1, 1))
    assert np.abs(expected).max() > 1


def test_a_file_that_does_not_add_up_is_refused(tmp_path):
    arrays = write_watch(tmp_path)
    for change in ({"x": arrays["x"][1:]}, {"side": arrays["side"][1:]}):
        np.savez(tmp_path / "watch.npz", **(arrays | change))
        with pytest.raises(InputError, match="do not make up the signal"):
            load_watch(tmp_path)
    bad = arrays["x"].copy()
    bad[7, 3] = np.nan
    np.savez(tmp_path / "watch.npz", **(arrays | {"x": bad}))
    with pytest.raises(InputError, match="finite numbers"):
        load_watch(tmp_path)


def test_the_real_sequences():
    if find_folder(NAME, has_files) is None:
        pytest.skip("the watch's sequences are not on this machine")
    sessions = load_watch()
    assert (len(sessions), sum(len(s.signal) for s in sessions)) == (140, 244_102)
    keys = {(s.user, s.setting, s.segments[0].label) for s in sessions}
    assert len(keys) == 140, "each user did each exercise once on each side"
    windows = cut(sessions)
    assert set(windows.users.tolist()) == set(ABOUT.users)
    assert (np.abs(windows.x) == 1.0).mean() < 0.001, "few values are beyond the ranges"
