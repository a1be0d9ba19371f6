"""A whole study on digits: its figures are computed again from what it left; it can be resumed."""

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from denoiser_study import PROTOCOL, planned, run_study

import privet
from privet.errors import InputError
from privet.ledger import Ledger
from privet.studies.robust_private.writing import leaked
from privet.studies.transdenoiser.writing import results_of

TOLD = {"command": "as given", "data": "digits", "delta": 1e-5, "seeds": [0, 1]}


def results(study):
    with closing(Ledger(study.folder / "ledger.db")) as ledger:
        told = TOLD | {"together": leaked(study.folder, ledger, "digits/second")}
    return results_of(
        study.records, protocol=PROTOCOL, attack_norm=1.0, epsilon=3.0, radius=0.1, told=told
    )


def release_of(study, cell):
    return study.folder / "cells" / cell / "release"


def card(study, cell):
    return json.loads((release_of(study, cell) / "trust.json").read_text())


def trainings(folder):
    """How many runs were ever reserved, by the ledger."""
    with closing(Ledger(folder / "ledger.db")) as ledger:
        return sum(len(ledger.account(f"digits/{half}").runs) for half in ("first", "second"))


def test_every_figure_follows_from_what_the_cells_left(finished):
    rows = results(finished)["rows"]
    assert [(r["name"], len(r["cells"])) for r in rows] == [
        ("classifier", 1), ("public-denoiser", 2), ("td-start", 2), ("paper-inp_0.1", 2),
        ("dpcert", 2),
    ]  # fmt: skip
    for row in rows:
        for seed, cell in enumerate(row["cells"]):
            crafted, through, votes = (
                np.load(finished.folder / "cells" / cell / f"{stage}.npz")
                for stage in ("crafted", "attacks", "certificates")
            )
            assert row["noisy"]["values"][seed] == pytest.approx(crafted["right"].mean())
            assert row["clean"]["values"][seed] == pytest.approx(through["right"].mean())
            for place in (0, 1):
                pgd = row["crafted"]["pgd"][place]["values"][seed]
                assert pgd == pytest.approx(crafted["holds"][1, place].mean())
                worst = row["attacks"]["worst case"][place]["values"][seed]
                assert worst == pytest.approx(through["holds"][:, place].all(0).mean())
                radius = PROTOCOL.radii[place]
                held = (votes["correct"] & (votes["radius"] >= radius)).mean()
                assert row["certified"][place]["values"][seed] == pytest.approx(held)


def test_bases_and_noise(finished):
    by = {row["name"]: row for row in results(finished)["rows"]}
    assert {name: row["basis"] for name, row in by.items()} == {
        "classifier": "public", "public-denoiser": "public", "td-start": "proved",
        "paper-inp_0.1": "claimed", "dpcert": "proved",
    }  # fmt: skip
    assert by["td-start"]["proved"]["add-remove"]["epsilon"] <= 3.0
    assert {row["scale"] for name, row in by.items() if name != "paper-inp_0.1"} == {0.25}
    assert by["paper-inp_0.1"]["scale"] == 0.1
    most = {name: row["certified_curve"][-1]["radius"] for name, row in by.items()}
    assert most["paper-inp_0.1"] == pytest.approx(0.4 * most["dpcert"])


def test_halves_classifier_and_start_are_on_the_cards(finished):
    cards = {cell.name: card(finished, cell.name) for cell in finished.cells}
    public = {name for name, trust in cards.items() if trust["data"]["name"] == "digits/first"}
    assert public == {"classifier-seed0", "public-denoiser-seed0", "public-denoiser-seed1"}
    parts = {p["part"]: p for p in cards["td-start-epsilon3.0-seed1"]["fixed_parts"]}
    assert parts["classifier"]["public"]
    assert "digits/first" in parts["classifier"]["statement"]
    assert parts["first denoiser"]["source"] == str(release_of(finished, "public-denoiser-seed1"))


def test_one_classifier_is_in_all_denoised_releases(finished):
    first = privet.load(release_of(finished, "classifier-seed0")).model.state_dict()
    for cell in finished.cells:
        if cell.contender.behind:
            held = privet.load(release_of(finished, cell.name)).model.classifier.state_dict()
            for name, weights in first.items():
                (same,) = [v for k, v in held.items() if k.endswith(name)]
                assert np.array_equal(weights, same), (cell.name, name)


def test_together_the_private_half_alone_is_counted(finished):
    total = results(finished)["together"]
    assert (total["trainings"], total["without_proof"]) == (6, 2)
    assert total["epsilon"] is None
    assert trainings(finished.folder) == 9


def test_a_finished_study_is_not_done_again(finished):
    kept = {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}
    assert len(kept) == 27
    assert run_study(finished.folder, finished.cells) == finished.records
    assert kept == {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}
    assert trainings(finished.folder) == 9


def test_other_norms_are_measured_again_without_training(finished):
    wider = replace(PROTOCOL, sizes=(0.5, 1.0, 2.0))
    (before, after) = (
        finished.records[0],
        run_study(finished.folder, finished.cells[:1], protocol=wider)[0],
    )
    assert after["crafted"]["sizes"] == [0.5, 1.0, 2.0]
    assert after["certificates"] == before["certificates"]
    assert after["training"] == before["training"]
    run_study(finished.folder, finished.cells[:1])


def test_other_settings_are_refused_before_anything_is_trained(finished):
    cells = planned(finished.folder, ("td-start", "td"), {"classifier": {"epochs": 21}})
    with pytest.raises(InputError, match=r"epochs 21, there 20.*another --out"):
        run_study(finished.folder, cells)
    assert trainings(finished.folder) == 9


class Killed(BaseException):
    """Nothing may catch it."""


def test_killed_within_a_denoiser_it_goes_on(tmp_path):
    """With another process's settings: read back from the folder, classifier and start too."""
    settings = {"td-start": {"checkpoint_every": 1}}
    cells = planned(tmp_path, ("td-start",), settings, seeds=(0,))

    def watch(_, what):
        if what.startswith("td-start") and "training 50 %" in what:
            raise Killed

    few = replace(PROTOCOL, attacks=("fgsm",), sizes=(1.0,), examples=4)
    with pytest.raises(Killed):
        run_study(tmp_path, cells, few, watch)
    before = (tmp_path / "cells" / "classifier-seed0" / "cell.json").read_bytes()
    records = run_study(tmp_path, planned(tmp_path, ("td-start",), settings, seeds=(0,)), few)
    assert [r["training"]["how"] for r in records] == ["trained", "trained", "resumed"]
    assert (tmp_path / "cells" / "classifier-seed0" / "cell.json").read_bytes() == before
    assert trainings(tmp_path) == 3
    assert records[-1]["privacy"]["proved"]["add-remove"]["epsilon"] <= 3.0


def test_by_two_processes_it_is_the_same_study(tmp_path):
    """Whoever needs another is trained after it; every step is on the one ledger."""
    few = replace(PROTOCOL, attacks=("fgsm",), sizes=(1.0,), examples=2)
    cells = planned(tmp_path, ("td-start", "dpcert"), seeds=(0,))
    heard = []
    records = run_study(
        tmp_path, cells, few, lambda done, what: heard.append((done, what)), workers=2
    )
    assert [record["cell"] for record in records] == [cell.name for cell in cells]
    for record in records:
        kept = json.loads((tmp_path / "cells" / record["cell"] / "cell.json").read_text())
        assert kept == record
        assert {"training", "crafted", "attacks", "certificates", "privacy"} <= set(record)
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        runs = [r for half in ("first", "second") for r in ledger.account(f"digits/{half}").runs]
    assert [run.status for run in runs] == ["settled"] * 4
    assert all(run.charged == run.planned for run in runs)
    assert heard
    assert run_study(tmp_path, cells, few) == records
    assert trainings(tmp_path) == 4
