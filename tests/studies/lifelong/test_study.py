"""Whole studies on digits: what they leave, going on, and the same tasks for all of a seed."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from task_study import planned, run_study, streams_of

from privet.errors import InputError
from privet.lifelong import fitting
from privet.release import Release
from privet.studies.lifelong import learning
from privet.studies.lifelong.contenders import CONTENDERS, chosen
from privet.studies.lifelong.known import SETTINGS


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two contenders, two seeds; (folder, cells, records)."""
    folder, cells = tmp_path_factory.mktemp("study") / "out", planned()
    return folder, cells, run_study(folder, cells)


def test_accuracies_are_those_of_the_versions(finished):
    """Measured again, from the releases and the test records."""
    folder, cells, records = finished
    for cell, record in zip(cells, records, strict=True):
        stream = cell.stream.at(cell.seed)
        place = folder / "cells" / cell.name / "stream" / "versions"
        for number, row in enumerate(record["scores"]["accuracy"], start=1):
            release = Release.load(place / f"{number:02d}")
            again = [
                np.mean(release.predict(task.data.test.x) == task.data.test.y)
                for task in stream.tasks[:number]
            ]
            assert row == pytest.approx(again)
        assert len(stream.tasks[0].data.test) == 50


def test_a_cell_is_judged_by_its_last_version(finished):
    folder, cells, records = finished
    for cell, record in zip(cells, records, strict=True):
        release = folder / "cells" / cell.name / "release"
        assert release.resolve().name == "02"
        proved = record["privacy"]["proved"]
        if cell.epsilon is None:
            assert proved == {}
        else:
            assert 2.9 < proved["add-remove"]["epsilon"] <= 3.0 * (1 + 1e-3)


def test_contenders_of_a_seed_learn_the_same_tasks(finished):
    _, cells, _ = finished
    by_seed = {}
    for cell in cells:
        x = np.concatenate([task.data.train.x.ravel() for task in cell.stream.at(cell.seed)])
        by_seed.setdefault(cell.seed, []).append(x)
    assert all(np.array_equal(a, b) for a, b in by_seed.values())
    assert not np.array_equal(by_seed[0][0], by_seed[1][0])
    assert {cell.options["init_seed"] for cell in cells} == {0, 1}


def test_a_second_time_nothing_is_learned(finished, monkeypatch):
    folder, cells, records = finished
    monkeypatch.setattr(learning, "fit", lambda *_, **__: pytest.fail("learned again"))
    monkeypatch.setattr(learning, "extend", lambda *_, **__: pytest.fail("learned again"))
    assert run_study(folder, cells) == records


def test_a_killed_stream_goes_on_where_it_was(tmp_path, monkeypatch):
    (cell,) = planned(("l2dp-objective",), seeds=(0,))
    learn = fitting.OBJECTIVES.learn

    def killed(life, settings, number, watch):
        if number == 2:
            raise KeyboardInterrupt
        return learn(life, settings, number, watch)

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "OBJECTIVES", replace(fitting.OBJECTIVES, learn=killed))
        with pytest.raises(KeyboardInterrupt):
            run_study(tmp_path, [cell])
    first = tmp_path / "cells" / cell.name / "stream" / "versions" / "01" / "manifest.json"
    before = first.stat().st_mtime_ns
    (record,) = run_study(tmp_path, [cell])
    assert record["training"]["how"] == "resumed"
    assert first.stat().st_mtime_ns == before
    assert len(record["scores"]["accuracy"]) == 2


def test_a_folder_without_a_plan_is_begun_anew(tmp_path):
    (cell,) = planned(("agem",), seeds=(0,))
    place = tmp_path / "cells" / cell.name / "stream" / "internal"
    place.mkdir(parents=True)
    (place / "README").write_text("killed here")
    (record,) = run_study(tmp_path, [cell])
    assert record["training"]["how"] == "trained"


def test_other_settings_are_refused_in_the_same_folder(finished):
    folder, _, _ = finished
    with pytest.raises(InputError, match="was trained with other settings"):
        run_study(folder, planned(("agem",), sets=("agem.epochs=3",)))


def test_processes_leave_what_one_leaves(tmp_path):
    """Of what draws nothing in secret: bit for bit."""
    cells = planned(("twin",), sets=("twin.epochs=2",))
    once = run_study(tmp_path / "one", cells)
    again = run_study(tmp_path / "two", cells, workers=2)
    assert [r["scores"]["accuracy"] for r in again] == [r["scores"]["accuracy"] for r in once]
    assert [r["training"]["weights"] for r in again] == [r["training"]["weights"] for r in once]


def test_streams_stand_apart_by_how_they_share(tmp_path):
    streams = streams_of("permuted-digits/disjoint", "permuted-digits/shared", records=40)
    cells = planned(("l2dp-objective",), streams=streams, seeds=(0,))
    records = run_study(tmp_path, cells)
    assert [r["asked"]["data"] for r in records] == [s.label for s in streams]
    noise = [r["training"]["mechanism"]["noise_multiplier"] for r in records]
    assert noise[1] == pytest.approx(np.sqrt(2) * noise[0], rel=1e-3)  # two tasks for a unit
    first = [s.at(0).tasks for s in streams]
    assert len(first[0][0].data.train) == 40


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_can_take_part(name):
    (cell,) = planned((name,), seeds=(0,), sets=())
    assert (cell.epsilon is None) == (not cell.contender.target)
    assert cell.contender.way.needs_target <= cell.contender.target
    json.dumps(cell.asked())


def test_known_settings_are_those_of_contenders():
    for kinds in SETTINGS.values():
        for layer in kinds.values():
            for name, options in layer.items():
                assert set(options) <= CONTENDERS[name].options


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: chosen(("l2pd",)), "did you mean 'l2dp'"),
        (lambda: chosen(("l2dp", "l2dp")), "each one once"),
        (lambda: streams_of("mine"), "named, public streams"),
        (lambda: streams_of("permuted-digits/both"), "NAME/disjoint"),
        (lambda: streams_of("permuted-digits", examples=0), "at least 1"),
        (lambda: planned(("agem",), sets=("agem.epochs=-1",)), "agem: bad epochs"),
        (lambda: planned(("agem",), sets=("agem.init_seed=3",)), "--seeds"),
        (lambda: planned(("twin",), sets=("twin.variant=agem",)), "--contenders"),
        (lambda: planned(("agem",), seeds=(0, 0)), "bad seeds"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_learned(wrong, said):
    with pytest.raises(InputError) as refused:
        wrong()
    assert said in str(refused.value)


def test_a_link_is_all_that_a_release_is(finished):
    folder, cells, _ = finished
    release = folder / "cells" / cells[0].name / "release"
    assert release.is_symlink()
    moved = folder.parent / "moved"
    shutil.copytree(folder, moved, symlinks=True)
    assert (moved / "cells" / cells[0].name / "release" / "trust.json").exists()
