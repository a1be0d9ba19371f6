"""A whole study on digits: its figures are computed again from what it left; it can be resumed."""

import json
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import betaincinv, ndtri
from scipy.stats import ttest_ind

sys.path.insert(0, str(Path(__file__).parent))
from small_study import PROTOCOL, planned, run_study

import privet
from privet.attacks.attack import Attack
from privet.attacks.registry import ATTACKS
from privet.errors import InputError
from privet.files import read_json
from privet.ledger import Ledger
from privet.studies.robust_private.cells import contenders
from privet.studies.robust_private.plots import all_plots
from privet.studies.robust_private.protocol import Protocol, chosen_examples
from privet.studies.robust_private.writing import leaked, results_of, write_results
from privet.training import plain
from privet.training.registry import METHODS, Method, Variant

TOLD = {"command": "as given", "data": "digits", "delta": 1e-5, "seeds": [0, 1]}


def results(study):
    with closing(Ledger(study.folder / "ledger.db")) as ledger:
        told = TOLD | {"together": leaked(study.folder, ledger, "digits")}
    return results_of(study.records, protocol=PROTOCOL, attack_size=0.1, epsilon=50.0, told=told)


def trainings(folder):
    """How many runs were ever reserved, by the ledger."""
    with closing(Ledger(folder / "ledger.db")) as ledger:
        return len(ledger.account("digits").runs)


def test_every_figure_follows_from_what_the_cells_left(finished):
    rows = {(r["name"], r["epsilon"]): r for r in results(finished)["rows"]}
    assert set(rows) == {(n, e) for n in ("dpsgd", "stobatch") for e in (2.0, 50.0)}
    for (name, epsilon), row in rows.items():
        clean, worst, fgsm, certified = [], [], [], []
        for seed in (0, 1):
            cell = finished.folder / "cells" / f"{name}-sound-epsilon{epsilon}-seed{seed}"
            images, votes = np.load(cell / "attacks.npz"), np.load(cell / "certificates.npz")
            clean.append(images["right"].mean())
            worst.append((images["holds"][0] & images["holds"][1]).mean(1))
            fgsm.append(images["holds"][0].mean(1))
            certified.append(
                [(votes["correct"] & (votes["radius"] >= r)).mean() for r in (0.1, 0.25)]
            )
            card = json.loads((cell / "release" / "trust.json").read_text())
            proved = {p["adjacency"]: p["epsilon"] for p in card["privacy"]}
            assert proved["add-remove"] <= row["proved"]["add-remove"]["epsilon"] <= epsilon
            assert proved["replace-one"] <= row["proved"]["replace-one"]["epsilon"]
        assert row["basis"] == "proved"
        assert row["clean"]["mean"] == pytest.approx(np.mean(clean))
        for place in (0, 1):
            by_seed = [one[place] for one in worst]
            told = row["attacks"]["worst case"][place]
            assert told["values"] == pytest.approx(by_seed)
            assert (told["low"], told["high"]) == pytest.approx((min(by_seed), max(by_seed)))
            assert told["mean"] == pytest.approx(np.mean(by_seed))
            assert row["attacks"]["fgsm"][place]["values"] == pytest.approx(
                [f[place] for f in fgsm]
            )
            assert row["certified"][place]["values"] == pytest.approx([c[place] for c in certified])


def test_attacks_and_clean_accuracy_are_those_of_the_release(finished, digits):
    """Fast gradient sign, written out here."""
    x, y = chosen_examples(digits, 60)
    for cell in (finished.folder / "cells").iterdir():
        release = privet.load(cell / "release")
        images = np.load(cell / "attacks.npz")
        found = release.model(x).argmax(1) == y
        assert np.array_equal(images["right"], found.numpy())
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(
            F.cross_entropy(release.model(leaf), y, reduction="sum"), leaf
        )
        moved = (x + 0.05 * slope.sign()).clamp(0, 1)
        holds = found & (release.model(moved).argmax(1) == y)
        assert np.array_equal(images["holds"][0, 0], holds.numpy())


def test_no_radius_is_beyond_what_the_votes_can_prove(finished):
    most = 0.25 * ndtri(betaincinv(100, 1, 0.001))  # Clopper-Pearson: all of 100 votes
    assert PROTOCOL.reach == pytest.approx(most)
    for cell in (finished.folder / "cells").iterdir():
        assert np.load(cell / "certificates.npz")["radius"].max() <= most * (1 + 1e-9)


def test_tests_are_those_of_scipy(finished):
    tests = results(finished)["tests"]
    assert "equal_var" not in tests["test"]
    assert len(tests["rows"]) == 2
    by = {(r["name"], r["epsilon"], r["seed"]): r for r in finished.records}
    for row in tests["rows"]:
        ours, theirs = (
            [by[row[who], row["epsilon"], s]["attacks"]["robust_accuracy"][1] for s in (0, 1)]
            for who in ("best", "other")
        )
        assert np.mean(ours) >= np.mean(theirs)
        assert row["points"] == pytest.approx(100 * (np.mean(ours) - np.mean(theirs)))
        if np.var(ours) + np.var(theirs) > 0:
            t, p = ttest_ind(ours, theirs, equal_var=False)
            assert (row["t"], row["p"]) == pytest.approx((t, p))


def test_what_is_written_shows_every_method_and_basis(finished):
    found = results(finished)
    write_results(finished.folder, found)
    assert read_json(finished.folder / "results.json") == json.loads(json.dumps(found))
    page, table = ((finished.folder / n).read_text() for n in ("index.html", "table.md"))
    plots = all_plots(found)
    assert set(plots) == {
        "accuracy_by_epsilon", "accuracy_by_epsilon_fgsm", "accuracy_by_epsilon_pgd",
        "accuracy_by_size", "certified_by_radius",
    }  # fmt: skip
    for name in ("dpsgd", "stobatch"):
        assert name in page
        assert f"| {name} | 50 |" in table
        for plot in plots:
            assert f"{name} (proved)" in (finished.folder / f"{plot}.svg").read_text()
    assert "0.1 (0.2 on [-1, 1])" in table
    assert page.count("data:image/svg+xml;base64,") == len(plots)
    assert found["together"]["note"] in page


def test_together_they_leak_the_sum(finished):
    total = results(finished)["together"]
    assert total["trainings"] == trainings(finished.folder) == 8
    proved = [r["privacy"]["proved"]["add-remove"] for r in finished.records]
    assert total["epsilon"] == pytest.approx(sum(p["epsilon"] for p in proved))
    assert total["delta"] == pytest.approx(8e-5)
    assert "more than each" in total["note"]


def test_a_finished_study_is_not_done_again(finished, digits):
    def never(*_, **__):
        raise AssertionError("trained again")

    cells = []
    for cell in finished.cells:
        variant = replace(cell.contender.variant, run=never, resume=never)
        cells.append(replace(cell, contender=replace(cell.contender, variant=variant)))
    kept = {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}
    assert len(kept) == 16
    assert run_study(finished.folder, cells, digits) == finished.records
    assert trainings(finished.folder) == 8
    assert kept == {p: p.stat().st_mtime_ns for p in finished.folder.glob("cells/*/*.npz")}


def test_progress_speaks_of_every_cell_and_stage(finished):
    assert {done for done, _ in finished.heard} == set(range(8))
    said = {what.split(": ")[1].rsplit(" ", 2)[0] for _, what in finished.heard}
    assert {"training", "attacks", "certificates"} <= said
    assert any(what == "dpsgd, epsilon 2, seed 0: training 100 %" for _, what in finished.heard)


class Killed(BaseException):
    """Nothing may catch it."""


def killer(title, at):
    """Raises once a cell's training has come so far."""

    def watch(done, what):
        if what.startswith(f"{title}: training") and int(what.split()[-2]) >= at:
            raise Killed

    return watch


def weights(folder):
    return {
        cell.name: (cell / "release" / "weights.safetensors").read_bytes()
        for cell in (folder / "cells").iterdir()
    }


def test_killed_within_and_between_cells_it_goes_on_and_ends_alike(tmp_path, digits):
    """Plain training follows from its seed: the resumed study ends with the same weights."""
    settings = {"all": {"model": "linear", "epochs": 4, "checkpoint_every": 1, "batch": 400}}
    cells = planned(digits, settings=settings, seeds=(0, 1, 2))
    run_study(tmp_path / "whole", cells, digits)
    with pytest.raises(Killed):
        run_study(tmp_path / "killed", cells, digits, watch=killer("plain, seed 1", 50))
    before = weights_of_first(tmp_path / "killed")
    assert trainings(tmp_path / "killed") == 2
    hows = [r["training"]["how"] for r in run_study(tmp_path / "killed", cells, digits)]
    assert hows == ["trained", "resumed", "trained"]
    assert trainings(tmp_path / "killed") == 3
    assert weights_of_first(tmp_path / "killed") == before
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def weights_of_first(folder):
    path = folder / "cells" / "plain-none-seed0" / "release" / "weights.safetensors"
    return path.read_bytes(), path.stat().st_mtime_ns


def test_killed_between_training_and_measuring_it_only_measures(tmp_path, digits):
    cells = planned(digits, seeds=(0,))
    with pytest.raises(Killed):
        run_study(
            tmp_path, cells, digits,
            watch=lambda _, what: _raise() if "attacks" in what else None,
        )  # fmt: skip
    (record,) = run_study(tmp_path, cells, digits)
    assert record["training"]["how"] == "trained"
    assert trainings(tmp_path) == 1


def _raise():
    raise Killed


@pytest.mark.parametrize("name", ["dpsgd", "plain"])
def test_killed_before_its_first_step_a_cell_begins_anew_and_owes_nothing(
    tmp_path, digits, name, monkeypatch
):
    """What is left then: the run's folder and its reservation, no checkpoint."""
    settings = {"all": {"model": "linear", "epochs": 1, "batch": 1437}}
    cells = planned(digits, (name,), settings=settings, seeds=(0,))
    module = "privet.training.dpsgd.save_checkpoint"
    if name == "plain":
        module = "privet.training.unprotected.save"
    with monkeypatch.context() as patched:
        patched.setattr(module, lambda *_, **__: _raise())
        with pytest.raises(Killed):
            run_study(tmp_path, cells, digits)
    assert (tmp_path / "cells" / cells[0].name / "release" / "internal" / "run.json").exists()
    (record,) = run_study(tmp_path, cells, digits)
    assert record["training"]["how"] == "trained"
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        first, second = ledger.account("digits").runs
    assert (first.committed, first.status, second.status) == (0, "settled", "settled")


def test_other_settings_are_refused_before_anything_is_trained(tmp_path, digits):
    run_study(tmp_path, planned(digits, seeds=(0,)), digits)
    other = {"all": {"model": "linear", "epochs": 3}, "plain": {"batch": 200}}
    with pytest.raises(InputError, match=r"epochs 3, there 2.*another --out"):
        run_study(tmp_path, planned(digits, settings=other, seeds=(5, 0)), digits)
    assert trainings(tmp_path) == 1


def test_other_terms_are_measured_again_without_training(tmp_path, digits):
    cells = planned(digits, seeds=(0,))
    (before,) = run_study(tmp_path, cells, digits)
    wider = Protocol(**{**vars(PROTOCOL), "sizes": (0.05, 0.1, 0.3)})
    (after,) = run_study(tmp_path, cells, digits, protocol=wider)
    assert after["attacks"]["sizes"] == [0.05, 0.1, 0.3]
    assert after["attacks"]["robust_accuracy"][:2] == before["attacks"]["robust_accuracy"]
    assert after["certificates"] == before["certificates"]
    assert after["training"] == before["training"]


def test_an_exchanged_release_is_refused(tmp_path, digits):
    cells = planned(digits)
    run_study(tmp_path, cells, digits)
    first, second = ((tmp_path / "cells" / cell.name / "release") for cell in cells)
    shutil.rmtree(first)
    shutil.copytree(second, first)
    with pytest.raises(InputError, match="was exchanged"):
        run_study(tmp_path, cells, digits)


def test_two_processes_do_not_share_a_study(tmp_path, digits):
    def second(*_):
        with pytest.raises(InputError, match="another process is at work"):
            run_study(tmp_path, planned(digits, seeds=(1,)), digits)
        raise Killed

    with pytest.raises(Killed):
        run_study(tmp_path, planned(digits, seeds=(0,)), digits, watch=second)


def test_the_worst_case_is_taken_image_by_image(tmp_path, digits, monkeypatch):
    """One attack fools the even digits, the other the odd ones: each leaves half, both nothing."""
    (cell,) = planned(digits, seeds=(0,))
    x, y = chosen_examples(digits, 60)

    def fools(parity):
        class Fools(Attack):
            name = f"parity{parity}"

            def _within(self, victim, images, goal, size):
                scores = victim.scores(x)
                found = images.clone()
                for i, label in enumerate(goal.labels):
                    if label % 2 == parity:
                        found[i] = x[int((scores.argmax(1) != label).nonzero()[0])]
                return found

        return Fools

    for kind in (fools(0), fools(1)):
        monkeypatch.setitem(ATTACKS, kind.name, kind)
    protocol = Protocol(**{**vars(PROTOCOL), "attacks": ("parity0", "parity1")})
    (record,) = run_study(tmp_path, [cell], digits, protocol=protocol)
    right = np.load(tmp_path / "cells" / cell.name / "attacks.npz")["right"]
    odd = float((right & (y.numpy() % 2 == 1)).mean())
    left = {one["attack"]: one["accuracy"][0] for one in record["attacks"]["attacks"]}
    assert left == {"parity0": odd, "parity1": pytest.approx(right.mean() - odd)}
    assert min(left.values()) > 0.2
    assert record["attacks"]["robust_accuracy"] == [0.0, 0.0]


def test_an_audit_is_on_the_card_and_who_has_no_twin_says_why(tmp_path, digits):
    settings = {"all": {"model": "linear", "epochs": 2}, "dpsgd": {"batch": 1437}}
    cells = planned(digits, ("dpsgd", "plain"), settings=settings, seeds=(0,))
    private, without = run_study(tmp_path, cells, digits, auditing=True, canaries=100)
    card = read_json(tmp_path / "cells" / cells[0].name / "release" / "trust.json")
    assert private["audit"]["rows"] == card["audit"]
    least = min(len(row["assumptions"]) for row in card["audit"])
    best = max(r["epsilon"] for r in card["audit"] if len(r["assumptions"]) == least)
    assert private["privacy"]["audited"]["epsilon"] == best
    assert "no twin" in without["audit"]["why"]
    assert without["privacy"]["audited"] is None
    again = run_study(tmp_path, cells, digits, auditing=True, canaries=100)
    assert again[0]["audit"] == private["audit"]


def test_a_network_that_mixes_its_inputs_says_so_instead_of_a_certificate(
    tmp_path, digits, monkeypatch
):
    def refuse(*_, **__):
        raise InputError("rows are not apart")

    monkeypatch.setattr("privet.studies.robust_private.measuring.certify", refuse)
    (record,) = run_study(tmp_path, planned(digits, seeds=(0,)), digits)
    assert record["certificates"]["why"] == "rows are not apart"
    assert not (tmp_path / "cells" / "plain-none-seed0" / "certificates.npz").exists()


def test_the_study_follows_the_registry(digits, monkeypatch):
    """A method that is registered takes part; a paper's analysis beside the sound one."""

    @dataclass(frozen=True, kw_only=True)
    class Pure(plain.PlainSettings):
        epsilon: float
        delta: float = 0.0

    paper = Variant(promises="a claim", settings=Pure, run=plain.run, resume=plain.resume)
    sound = METHODS["dpsgd"].analyses["sound"]
    new = Method(name="new", summary="", analyses={"sound": sound, "paper": paper})
    monkeypatch.setitem(METHODS, "new", new)
    names = [one.name for one in contenders()]
    assert {"dpsgd", "plain", "new", "new:paper"} <= set(names)
    given = ("transdenoiser", "ain", "atn", "advgan")  # need a classifier that is there already
    others = [method for method in METHODS.values() if method.name not in given]
    assert len(names) == sum(len(method.analyses) for method in others)
    cells = planned(digits, ("new", "new:paper"), {"all": {"epochs": 1}}, epsilons=(1.0, 2.0))
    assert [c.name for c in cells[3:5]] == [
        "new-sound-epsilon2.0-seed1",
        "new-paper-epsilon1.0-seed0",
    ]
    assert [c.settings.delta for c in cells[3:5]] == [1e-5, 0.0]  # pure: none is asked for
    assert [c.settings.init_seed for c in cells[:2]] == [0, 1]


def test_a_refused_training_names_its_cell(tmp_path, digits):
    def refuse(*_, **__):
        raise InputError("no such network")

    (cell,) = planned(digits, seeds=(0,))
    variant = replace(cell.contender.variant, run=refuse)
    cell = replace(cell, contender=replace(cell.contender, variant=variant))
    with pytest.raises(InputError, match="plain, seed 0: no such network"):
        run_study(tmp_path, [cell], digits)
