"""Cells of a study by several processes: errors stay with their cell, nobody is left behind."""

import fcntl
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
from small_study import planned, run_study

from command_line import start
from privet.errors import FaultyEnvironment, InputError
from privet.studies.robust_private import working


def test_no_workers_are_refused(tmp_path, digits):
    with pytest.raises(InputError, match="at least 1"):
        run_study(tmp_path, planned(digits), digits, workers=0)


def test_one_cell_fails_and_the_others_are_kept(tmp_path, digits):
    cells = planned(digits, seeds=(0, 1))
    in_the_way = tmp_path / "cells" / cells[0].name / "release"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("no folder")
    with pytest.raises(FaultyEnvironment, match=r"1 of 2 cells are not done.*plain, seed 0"):
        run_study(tmp_path, cells, digits, workers=2)
    assert (tmp_path / "cells" / cells[1].name / "certificates.npz").exists()
    in_the_way.unlink()
    records = run_study(tmp_path, cells, digits, workers=2)
    assert [record["seed"] for record in records] == [0, 1]


def is_free(path):
    """Whether no process holds the lock."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_stopped_it_leaves_no_process_at_work(tmp_path, by):
    study = tmp_path / "study"
    arguments = [
        *("study", "robust-private", "--data", "digits", "--methods", "plain", "--seeds", "0,1"),
        *("--set", "plain.model=linear", "--set", "plain.epochs=100000", "--workers", "2"),
        *("--out", study),
    ]
    process = start(arguments, tmp_path / "home")
    locks = [study / f"cells/plain-none-seed{s}/release/internal/lock" for s in (0, 1)]
    deadline = time.monotonic() + 120
    while not all(lock.exists() for lock in locks) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, by)
    _, err = process.communicate(timeout=60)
    assert all(lock.exists() for lock in locks), err
    deadline = time.monotonic() + 30
    while not all(map(is_free, locks)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert all(map(is_free, locks))
    assert "Traceback" not in err


def test_the_error_names_each_cell_once(digits):
    """A study's own errors begin with the cell (`Study._train`); those of a process do not."""
    first, second = (cell.title for cell in planned(digits, seeds=(0, 1)))
    failed = {first: InputError(f"{first}: bad bounds"), second: BrokenProcessPool("died")}
    told = str(working._joined(failed, cells=2, found=0))
    assert f"got {first}: bad bounds; {second}: died" in told
    assert told.count(first) == 1


def test_cores_where_the_system_does_not_tell_which_are_ours(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert working._cores() == 6


def test_nobody_is_left_when_the_pool_is_left_by_an_error():
    """Ended and joined: no zombies either."""
    before, begun = set(multiprocessing.active_children()), set()

    def interrupted():
        with working._pool(None, 1) as (pool, _):
            pool.submit(time.sleep, 600)
            begun.update(set(multiprocessing.active_children()) - before)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert begun
    assert not any(child.is_alive() for child in begun)


def test_processes_share_the_cores(monkeypatch):
    """Else each takes all of them: scikit-learn and BLAS ask the environment, not torch."""
    monkeypatch.setattr(working, "_cores", lambda: 6)
    for name in working.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")  # the user's own choice
    with working._pool(None, 2) as (pool, _):
        asked = [pool.submit(os.getenv, name).result(60) for name in working.THREADS]
    assert asked == ["3", "3", "5"]
    assert "OMP_NUM_THREADS" not in os.environ
