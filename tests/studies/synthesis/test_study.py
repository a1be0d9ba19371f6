"""A whole study of simulated records: figures are computed again from what it left; it goes on."""

import json
import pickle
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from record_study import laboratory, planned, run_study, source

from privet.data.records.joining import joined
from privet.errors import InputError
from privet.ledger import Ledger
from privet.release import Release
from privet.studies.robust_private.writing import leaked
from privet.studies.synthesis.measuring import SEED, Laboratory
from privet.studies.synthesis.writing import results_of, write_results
from privet.synthesis.evaluation import evaluate
from privet.synthesis.evaluation.missing_patterns import empty_per_record
from privet.synthesis.evaluation.side import Side
from privet.synthesis.fitting import METHODS
from privet.synthesis.sampling import sample

TOLD = {"command": "as given", "data": "simulator", "delta": 1e-5, "seeds": [0, 1]}


def results(study, records=None):
    with closing(Ledger(study.folder / "ledger.db")) as ledger:
        told = TOLD | {"together": leaked(study.folder, ledger, "simulator")}
    return results_of(
        study.records if records is None else records, laboratory=laboratory(),
        yardstick=study.yardstick, epsilon=3.0, left_out={"gan": "why not"}, told=told,
    )  # fmt: skip


def fits(folder):
    """How many runs were ever reserved, by the ledger."""
    with closing(Ledger(folder / "ledger.db")) as ledger:
        return len(ledger.account("simulator").runs)


def drawn_again(study, cell):
    release = Release.load(study.folder / "cells" / cell / "release")
    return joined(list(sample(release, len(source().train), seed=SEED)))


def test_every_figure_follows_from_the_release(finished):
    """Oracle: `privet synthesize evaluate` on the same draws."""
    for record in (finished.records[0], finished.records[-1]):
        found = record["fidelity"]["figures"]
        drawn = drawn_again(finished, record["cell"])
        assert record["fidelity"]["stays"] == len(drawn) == len(source().train)
        names = ["marginals", "timing", "dependence", "missing-rates", "clusters"]
        expected = evaluate(source().train, source().test, drawn, measures=names, seed=SEED)
        for name in names:
            ours = json.loads(json.dumps(found[name]))
            assert ours == expected.to_json()["measures"][name]["synthetic"], name
        kept = np.load(finished.folder / "cells" / record["cell"] / "fidelity.npz")
        assert kept["other_empty"].mean() == pytest.approx(
            empty_per_record(Side(drawn)).mean(), rel=1e-4
        )
        assert len(kept["real_plane"]) == len(source().test)


def test_the_yardstick_is_real_records_in_their_place(finished):
    """Oracle: the same measure's own yardstick."""
    expected = evaluate(
        source().train, source().test, source().train, measures=["timing", "clusters"], seed=SEED
    ).to_json()["measures"]
    assert finished.yardstick["figures"]["timing"] == expected["timing"]["real"]
    assert finished.yardstick["figures"]["clusters"] == expected["clusters"]["real"]
    before = (finished.folder / "real.json").stat().st_mtime_ns
    assert laboratory().yardstick(finished.folder) == finished.yardstick
    assert (finished.folder / "real.json").stat().st_mtime_ns == before


def test_rows_and_privacy(finished):
    found = results(finished)
    assert [(r["name"], r["basis"], r["seeds"]) for r in found["rows"]] == [
        ("autoregressive", "proved", [0, 1]), ("autoregressive:none", "none", [0, 1])
    ]  # fmt: skip
    assert found["rows"][0]["proved"]["add-remove"]["epsilon"] <= 3.0
    assert (found["together"]["trainings"], found["together"]["without_proof"]) == (4, 2)
    assert "no row under the sound analysis" in found["contest"]["why"]
    assert found["failed"] == []


def test_a_finished_study_is_not_done_again(finished):
    kept = {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}
    assert len(kept) == 4
    assert run_study(finished.folder, finished.cells) == finished.records
    assert kept == {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}
    assert fits(finished.folder) == 4


def test_other_terms_are_measured_again_without_fitting(finished, tmp_path):
    copied = tmp_path / "study"
    shutil.copytree(finished.folder, copied)
    (after,) = run_study(copied, finished.cells[-1:], stays=40)
    assert after["fidelity"]["stays"] == 40
    assert after["training"] == finished.records[-1]["training"]


def test_other_settings_are_refused_before_anything_is_fitted(finished):
    cells = planned(("autoregressive",), {"autoregressive": {"epochs": 2.0}})
    with pytest.raises(InputError, match=r"epochs 2.0, there 1.0.*another --out"):
        run_study(finished.folder, cells)
    assert fits(finished.folder) == 4


def test_files(finished):
    write_results(finished.folder, results(finished))
    text = (finished.folder / "table.md").read_text()
    for said in ("| real |", "Not in these tables", "why not", "(published)", "Public data only"):
        assert said in text
    page = (finished.folder / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert page.count("<figure") == len(list(finished.folder.glob("*.svg")))
    read = json.loads((finished.folder / "results.json").read_text())
    assert read["rows"] == json.loads(json.dumps(results(finished)["rows"]))


def failing(method, analysis, error):
    """The method, one of whose analyses raises."""

    def run(*_, **__):
        raise error

    variant = replace(method.analyses[analysis], run=run)
    return replace(method, analyses={**method.analyses, analysis: variant})


def test_who_fails_is_told_and_tried_again(tmp_path, monkeypatch):
    """The others go on; nothing of it is in the rows."""
    reference = METHODS["autoregressive"]
    with monkeypatch.context() as planted:
        broken = failing(reference, "sound", RuntimeError("out of memory"))
        planted.setitem(METHODS, "autoregressive", broken)
        cells = planned(("autoregressive:none",), seeds=(0,))
        records = run_study(tmp_path, cells)
    assert [record.get("failed") for record in records] == ["out of memory", None]
    assert "fidelity" in records[1]
    found = results_of(
        records, laboratory=laboratory(), yardstick=laboratory().yardstick(tmp_path), epsilon=3.0,
        left_out={}, told=TOLD | {"together": {"note": ""}},
    )  # fmt: skip
    assert [row["name"] for row in found["rows"]] == ["autoregressive:none"]
    assert [(one["name"], one["why"]) for one in found["failed"]] == [
        ("autoregressive", "out of memory")
    ]
    write_results(tmp_path, found)
    again = run_study(tmp_path, planned(("autoregressive:none",), seeds=(0,)))
    assert "failed" not in again[0]
    assert again[0]["privacy"]["proved"]
    assert again[1] == records[1]


def test_who_failed_before_it_began_may_have_other_settings(tmp_path, monkeypatch):
    reference = METHODS["autoregressive"]
    with monkeypatch.context() as planted:
        broken = failing(reference, "sound", InputError("bad luck"))
        planted.setitem(METHODS, "autoregressive", broken)
        (record,) = run_study(tmp_path, planned(("autoregressive",), seeds=(0,)))
    assert record["failed"] == "autoregressive, epsilon 3, seed 0: bad luck"
    cells = planned(("autoregressive",), {"autoregressive": {"epochs": 2.0}}, seeds=(0,))
    (record,) = run_study(tmp_path, cells)
    assert record["asked"]["settings"]["epochs"] == 2.0
    assert "failed" not in record


def test_figures_that_cannot_be_taken_are_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(Laboratory, "measured", lambda *_: 1 / 0)
    cells = planned(("autoregressive:none",), seeds=(0,))
    records = run_study(tmp_path, cells)
    assert {record["failed"] for record in records} == {"division by zero"}
    assert all("training" in record for record in records)


class Killed(BaseException):
    """Nothing may catch it."""


def test_killed_within_a_fit_it_goes_on(tmp_path):
    settings = {"autoregressive": {"checkpoint_every": 1, "epochs": 4.0}}

    def watch(_, what):
        if "training 50 %" in what:
            raise Killed

    with pytest.raises(Killed):
        run_study(tmp_path, planned(("autoregressive",), settings, seeds=(0,)), watch=watch)
    (record,) = run_study(tmp_path, planned(("autoregressive",), settings, seeds=(0,)))
    assert record["training"]["how"] == "resumed"
    assert fits(tmp_path) == 1
    assert record["privacy"]["proved"]["add-remove"]["epsilon"] <= 3.0


def test_by_two_processes_it_is_the_same_study(tmp_path):
    cells = planned(("autoregressive:none",), seeds=(0,))
    records = run_study(tmp_path, cells, workers=2)
    assert [record["cell"] for record in records] == [cell.name for cell in cells]
    assert run_study(tmp_path, cells) == records
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        assert [run.status for run in ledger.account("simulator").runs] == ["settled"] * 2


def test_every_cell_can_go_to_another_process():
    """Settings travel by the name of their class: one made on the fly would stay at home."""
    kinds = ("all", "all:paper", "all:none")
    cells = planned(kinds, seeds=(0,))
    assert {cell.contender.name for cell in cells} >= {"igamt", "vae:paper", "daae:none"}
    for cell in cells:
        assert pickle.loads(pickle.dumps(cell)) == cell


def test_too_few_stays_are_refused():
    with pytest.raises(InputError, match="at least 20"):
        laboratory(stays=19)
