"""Streams of activities: who is in which task, at which rate, and never on both sides."""

import sys
from pathlib import Path

import numpy as np
import pytest

from privet.data.activities import hapt, watch, wisdm
from privet.data.identity import enter_in_ledger
from privet.data.locate import find_folder
from privet.errors import InputError
from privet.ledger import Ledger
from privet.lifelong.tasks import load_stream
from privet.models import registry

sys.path.insert(0, str(Path(__file__).parents[1] / "data" / "activities"))
from study_files import hapt_arrays, write_hapt, write_watch, write_wisdm

FILES = [(hapt, "hapt-rates"), (hapt, "hapt-users"), (watch, "watch-sides"),
         (watch, "watch-users"), (wisdm, "wisdm-users")]  # fmt: skip


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Made-up files of all studies in one folder."""
    folder = tmp_path_factory.mktemp("studies")
    write_hapt(folder / "hapt")
    write_watch(folder / "watch")
    write_wisdm(folder / "wisdm_v1.1")
    return folder


def known_as(task):
    """By which the ledger knows the users who train."""
    return {name.decode() for name in task.data.originals}


@pytest.mark.parametrize(
    ("name", "shape", "tasks", "shared"),
    [
        ("hapt-rates", (1, 3, 100), ["5hz", "10hz", "20hz", "50hz"], True),
        ("hapt-users", (1, 3, 100), ["1", "2", "3"], False),
        ("watch-sides", (1, 6, 100), ["left", "right"], True),
        ("watch-users", (1, 6, 100), ["1", "2"], False),
        ("wisdm-users", (41,), ["1", "2", "3"], False),
    ],
)
def test_streams_of_users(studies, name, shape, tasks, shared):
    stream = load_stream(name, data_dir=studies)
    assert [task.name for task in stream] == tasks
    assert (stream.unit, stream.shape, stream.shared) == ("user", shape, shared)
    about = {"hapt": hapt, "watch": watch, "wisdm": wisdm}[name.split("-")[0]].ABOUT
    everyone = [f"{about.name}/user/{user}" for user in about.train_users]
    for task in stream:
        assert task.data.train.n_units == task.data.nominal_size == len(known_as(task))
        assert not known_as(task) & {f"{about.name}/user/{user}" for user in about.test_users}
        assert np.isfinite(task.data.train.x).all()
        if shared:
            assert task.identities.tolist() == list(about.train_users)
    together = [user for task in stream for user in known_as(task)]
    assert sorted(together) == sorted(everyone * (len(tasks) if shared else 1))


def test_windows_are_of_the_rate_that_their_task_says(tmp_path):
    """A wave of 2 Hz, 40 cycles in 20 s at 5 Hz, 4 in 2 s at 50 Hz."""
    arrays = hapt_arrays()
    wave = 720 * np.sin(2 * np.pi * 2.0 * np.arange(len(arrays["acc"])) / 50)
    arrays["acc"][:] = np.rint(wave)[:, np.newaxis]
    (tmp_path / "hapt").mkdir()
    np.savez(tmp_path / "hapt" / "hapt_raw_50hz.npz", **arrays)
    for task, cycles in zip(
        load_stream("hapt-rates", data_dir=tmp_path), (40, 20, 10, 4), strict=True
    ):
        power = np.abs(np.fft.rfft(task.data.train.x[:, 0, 1], axis=1))
        assert set(power.argmax(axis=1).tolist()) == {cycles}


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("hapt-rates:50-20-10-5", ["50hz", "20hz", "10hz", "5hz"]),
        ("hapt-rates:20-5", ["20hz", "5hz"]),
        ("watch-sides:right-left", ["right", "left"]),
    ],
)
def test_an_order_can_be_chosen(studies, name, tasks):
    stream = load_stream(name, data_dir=studies)
    assert [task.name for task in stream] == tasks
    usual = {task.name: task for task in load_stream(name.split(":")[0], data_dir=studies)}
    for task in stream:
        assert np.array_equal(task.data.train.x, usual[task.name].data.train.x)
        assert task.data.name == usual[task.name].data.name


@pytest.mark.parametrize("name", ["hapt-rates", "watch-sides"])
def test_under_conditions_users_can_be_dealt_out(studies, name):
    stream = load_stream(name, shared=False, data_dir=studies)
    seen = [user for task in stream for user in known_as(task)]
    assert len(seen) == len(set(seen)) == sum(task.data.nominal_size for task in stream)
    assert stream.tasks[0].name.startswith("1-")


def test_groups_for_testing_are_apart_too(studies):
    stream = load_stream("hapt-users", data_dir=studies)
    assert [task.data.test.n_units for task in stream] == [3, 3, 3]
    tested = np.concatenate([task.data.test.x for task in stream])
    assert len(np.unique(tested.reshape(len(tested), -1), axis=0)) == len(tested)


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("hapt-rates:50-50", {}, "bad order"),
        ("hapt-rates:25", {}, r"bad order.*some of 5, 10, 20, 50"),
        ("hapt-rates", {"n_tasks": 5}, "not so many tasks"),
        ("hapt-rates:5-10", {"n_tasks": 3}, "not so many tasks"),
        ("hapt-rates", {"records": 10}, "by users, not by records"),
        ("hapt-users", {"n_tasks": 10}, r"not so many tasks.*1\.\.9"),
        ("hapt-users", {"shared": True}, "is in two tasks"),
        ("hapt-users:1-2", {}, "no order to choose"),
        ("wisdm-users", {"records": 10}, "by users, not by records"),
    ],
)
def test_what_cannot_be_is_refused(studies, name, asked, message):
    with pytest.raises(InputError, match=message):
        load_stream(name, data_dir=studies, **asked)


def test_the_ledger_knows_users_again_across_tasks_and_streams(studies, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    rates = load_stream("hapt-rates", data_dir=studies)
    groups = load_stream("hapt-users", data_dir=studies)
    strangers = load_stream("watch-users", data_dir=studies)
    for task in (*groups, *strangers):
        enter_in_ledger(task.data, ledger)
        assert ledger.account(task.data.name).related == ()
    for task in rates:
        enter_in_ledger(task.data, ledger)
    names = {task.data.name for task in rates}
    for task in rates:
        others = names - {task.data.name} | {group.data.name for group in groups}
        assert set(ledger.account(task.data.name).related) == others
    ledger.close()


@pytest.mark.parametrize("model", ["linear", "mlp", "cnn-tiny", "cnn-strided"])
@pytest.mark.parametrize("channels", [3, 6])
def test_networks_take_signals(model, channels):
    import torch

    net = registry.create(model, (1, channels, 100), 6)
    assert net(torch.zeros(2, 1, channels, 100)).shape == (2, 6)
    assert registry.default_model((1, channels, 100)) == "cnn-tiny"


@pytest.mark.parametrize(("study", "name"), FILES, ids=[name for _, name in FILES])
def test_the_real_streams(study, name):
    if find_folder(study.NAME, study.has_files) is None:
        pytest.skip(f"{study.NAME} is not on this machine")
    stream = load_stream(name)
    for task in stream:
        assert set(task.data.train.y.tolist()) == set(range(len(stream.classes)))
        assert task.data.train.n_units == task.data.nominal_size
    if name == "hapt-rates":
        assert [len(task.data.train) for task in stream] == [686, 1750, 3873, 10_269]
