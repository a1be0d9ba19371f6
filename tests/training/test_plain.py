"""`train plain`: the loop that anyone would write, resumed exactly, with a card that says no."""

import contextlib
import dataclasses
import json

import dp_accounting as dp
import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.cli import main
from privet.engine.origin import Origin
from privet.errors import BudgetExceeded, CheckFailed, InputError, PrivetError
from privet.ledger import Ledger
from privet.models.augmentation import Views
from privet.release import export
from privet.reports import render_report
from privet.reports.curves import Curves
from privet.training import plain
from privet.training.plain import PlainSettings
from privet.training.unprotected import NO_PRIVACY
from privet.verification import verify

QUICK = {"model": "mlp", "epochs": 3, "batch": 16}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"ema": 0.9},
        {"optimizer": "adam", "learning_rate": 0.01, "input_noise": 0.2, "views": 2},
        {"adversarial": "madry", "adversarial_steps": 2},
    ],
    ids=["ema", "adam-noise", "madry"],
)
def test_a_resumed_run_ends_as_if_nothing_had_happened(make_data, ledger, tmp_path, changes):
    data, options = make_data(), QUICK | {"checkpoint_every": 5, "ledger": ledger} | changes

    def stop(trainer):
        if trainer.next_step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train("plain", data, out=tmp_path / "cut", watch=stop, **options)
    with pytest.raises(InputError, match="privet resume"):
        privet.train("plain", data, out=tmp_path / "cut", **options)
    steps = []
    cut = plain.resume(
        tmp_path / "cut", data, ledger=ledger, watch=lambda t: steps.append(t.next_step)
    )
    whole = privet.train("plain", data, **options)
    assert steps == list(range(6, 16)), "from the checkpoint at 5"
    assert same(weights(cut.model), weights(whole.model))
    assert not (tmp_path / "cut" / "internal" / "checkpoint.pt").exists()
    assert verify(tmp_path / "cut", ledger=ledger).ok
    with pytest.raises(InputError, match="finished"):
        plain.resume(tmp_path / "cut", data, ledger=ledger)


@pytest.fixture
def interrupted(make_data, ledger, tmp_path):
    def stop(trainer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train("plain", make_data(), ledger=ledger, out=tmp_path / "run", watch=stop, **QUICK)
    return tmp_path / "run"


def test_a_run_goes_on_with_its_own_data_and_its_own_entry_only(make_data, ledger, interrupted):
    with pytest.raises(InputError, match="data changed"):
        plain.resume(interrupted, make_data(seed=1), ledger=ledger)
    (interrupted / "internal" / "checkpoint.pt").write_bytes(b"cut off")
    with pytest.raises(InputError, match="corrupt checkpoint"):
        plain.resume(interrupted, make_data(), ledger=ledger)
    record = json.loads((interrupted / "internal" / "run.json").read_text())
    private = ledger.reserve("made-up", label="other", step_event=dp.GaussianDpEvent(1.0), steps=1)
    digest = Origin.of(make_data()).sealed(ledger, private)
    changed = record | {"run": private, "data_digest": digest}
    (interrupted / "internal" / "run.json").write_text(json.dumps(changed))
    with pytest.raises(CheckFailed, match="not in the ledger as one without privacy"):
        plain.resume(interrupted, make_data(), ledger=ledger)


# --- what it says ------------------------------------------------------------------------------


@pytest.fixture
def released(make_data, ledger, tmp_path):
    release = privet.train(
        "plain", make_data(), ledger=ledger, out=tmp_path / "run", ema=0.5, **QUICK
    )
    return release, tmp_path / "run"


def test_the_card_promises_nothing_and_says_why(released, ledger):
    release, folder = released
    trust = release.trust
    assert (trust["privacy"], trust["withheld"], trust["analysis"]) == ([], [NO_PRIVACY], "none")
    assert release.privacy is None
    assert trust["events"] == [{"label": "train", "event": {"type": "NonPrivate"}}]
    assert trust["mechanism"]["noise"] == "none"
    assert "epsilon" not in json.dumps(trust["provenance"])
    found = verify(folder, ledger=ledger)
    assert found.ok, [f for f in found.findings if not f.ok]
    details = {f.check: f.detail for f in found.findings}
    assert details["no privacy, and none is promised"] == NO_PRIVACY
    assert details["ledger"] == "entered as an access without privacy"
    assert not any("noise was secret" in text for text in found.unproven)
    report = render_report(trust, Curves())
    assert "No privacy guarantee is given for this model" in report
    assert NO_PRIVACY in report
    assert "none analysis" not in report


def test_a_release_is_loaded_and_exported_like_any_other(released, make_data, tmp_path):
    release, folder = released
    x = make_data().test.x
    assert np.array_equal(privet.load(folder).predict(x), release.predict(x))
    export(folder, tmp_path / "copy")
    assert verify(tmp_path / "copy").ok
    assert not (tmp_path / "copy" / "internal").exists()


def test_figures_on_private_records_stay_inside(make_data, ledger, tmp_path):
    data = make_data(test_is_public=False)
    release = privet.train("plain", data, ledger=ledger, out=tmp_path / "run", **QUICK)
    assert release.trust["utility"] == {}
    figures = json.loads((tmp_path / "run" / "internal" / "figures.json").read_text())
    assert {"train_accuracy", "test_accuracy"} <= set(figures)
    card = (tmp_path / "run" / "trust.json").read_text()
    assert "train_accuracy" not in card
    assert "test_accuracy" not in card


def test_the_ledger_holds_an_access_without_privacy(released, ledger):
    (run,) = ledger.account("made-up").runs
    assert (run.step_event, run.planned, run.charged) == (dp.NonPrivateDpEvent(), 1, 1)
    assert (run.status, run.label) == ("settled", "plain run")
    with pytest.raises(BudgetExceeded):
        ledger.cap("made-up", 100.0, 1e-5)


def test_no_cap_has_room_for_it(make_data, ledger, tmp_path):
    ledger.open_account("made-up")
    ledger.cap("made-up", 100.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="exceed the cap of 'made-up'") as caught:
        privet.train("plain", make_data(), ledger=ledger, out=tmp_path / "run", **QUICK)
    assert "Fix: train with privacy" in str(caught.value)
    assert "smaller epsilon" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert ledger.account("made-up").runs == ()


def test_a_private_run_under_a_cap_is_refused_on_records_that_a_plain_one_has_seen(
    make_data, ledger, tmp_path
):
    """Under another name, whose cap was set before; the ledger knows the records again."""
    ledger.open_account("later")
    ledger.cap("later", 100.0, 1e-5)
    release = privet.train("plain", make_data(), ledger=ledger, **QUICK)
    (run,) = ledger.account("made-up").runs
    assert run.id == release.trust["provenance"]["run"]
    later = dataclasses.replace(make_data(), name="later")
    private = {"epsilon": 1.0, "delta": 1e-3, "model": "linear", "epochs": 1}
    with pytest.raises(BudgetExceeded, match=f"run {run.id} .plain") as caught:
        privet.train("dpsgd", later, ledger=ledger, out=tmp_path / "private", **private)
    assert "no epsilon is small enough" in str(caught.value)
    assert not (tmp_path / "private").exists()
    other = dataclasses.replace(make_data(seed=1), name="other")
    ledger.open_account("other")
    ledger.cap("other", 100.0, 1e-5)
    assert privet.train("dpsgd", other, ledger=ledger, **private).privacy is not None


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 3.0}, "gives no privacy, and takes no target: got epsilon 3.0"),
        ({"delta": 1e-5}, "takes no target: got delta 1e-05"),
        ({"clip_norm": 1.0}, "'plain' has no such setting here: got clip_norm"),
        ({"recipe": "mnist"}, "'plain' has no such setting here: got recipe"),
        ({"clipnorm": 1.0}, "unknown setting of 'plain': got clipnorm"),
        ({"batch": 81}, "bad batch: got 81, expected a whole number, 1 to the nominal size 80"),
        ({"model": nn.Linear(4, 2)}, "a setting names the model"),
        ({"precision": "tf32"}, "no TF32 here"),
        ({"augment": "shift", "views": 2}, "images only"),
        ({"device": "nowhere"}, "device not usable"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_entered(
    make_data, ledger, tmp_path, options, said
):
    with pytest.raises(PrivetError) as caught:
        privet.train("plain", make_data(), ledger=ledger, out=tmp_path / "run", **options)
    assert said in str(caught.value)
    assert ledger.names() == []
    assert not (tmp_path / "run").exists()


def test_the_settings_of_a_search_are_private_ones(make_data):
    with pytest.raises(InputError, match="takes no target"):
        privet.tune("plain", make_data(), epsilon=3.0, search={"learning_rate": [0.1, 1.0]})


def told(capsys, *arguments):
    """The command line in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code, " ".join(said.out.split()), said.err


def test_from_the_command_line(tmp_path, capsys):
    """Refused a target, trained, verified; and a private method is refused without one."""
    folder = tmp_path / "run"
    quick = ["--data", "digits", "--model", "linear", "--epochs", "2", "--out"]
    code, out, err = told(capsys, "train", "plain", *quick, folder, "--epsilon", "3")
    assert (code, out) == (2, "")
    assert "gives no privacy" in err
    code, out, err = told(capsys, "train", "plain", *quick, folder, "--input-noise", "0.1")
    assert code == 0, err
    assert "withheld: no privacy guarantee is given" in out
    assert NO_PRIVACY in out
    assert "22 steps of 128, without clipping and noise" in out
    assert "a random view of each example (noise 0.1)" in out
    assert told(capsys, "verify", folder)[0] == 0
    code, out, err = told(capsys, "resume", folder)
    assert (code, out) == (2, "")
    assert "the run is finished" in err
    code, out, err = told(capsys, "train", "dpsgd", *quick, tmp_path / "other")
    assert (code, out) == (2, "")
    assert "privet train plain" in err


def test_a_killed_run_is_resumed_by_its_method(interrupted, capsys, monkeypatch, make_data):
    record = json.loads((interrupted / "internal" / "run.json").read_text())
    record["data"] = {"name": "made-up", "data_dir": None}
    (interrupted / "internal" / "run.json").write_text(json.dumps(record))
    monkeypatch.setattr(privet.data, "load", lambda *_: make_data())
    code, out, err = told(capsys, "resume", interrupted, "--json")
    assert code == 0, err
    assert json.loads(out)["mechanism"]["steps_run"] == 15


def test_noise_is_what_views_draw(make_data):
    settings = PlainSettings(input_noise=0.2, views=3)
    assert settings.augmentation == Views("none", 3, 0.2)
    assert PlainSettings().augmentation is None
