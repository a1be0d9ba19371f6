"""`privet attack --attacks ain`: a network is trained, kept, used again, and goes on if killed."""

import contextlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet.attacks.generated import Generated
from privet.commands.attack_networks import Wanted
from privet.ledger import Ledger, default_ledger_path
from privet.release import Release
from privet.training import unprotected
from privet.training.perturbing import PerturberTrainer
from privet.verification import verify

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import card, run

ASKED = ["--sizes", "0.2,0.3", "--target", "8", "--epochs", "2", "--examples", "120"]


def attack(release, out, *options, attacks="ain", asked=ASKED):
    where = [] if out is None else ["--out", out]
    return run("attack", release, "--attacks", attacks, *asked, *where, *options)


def with_other(name, *value):
    """The options above with one replaced, or left out."""
    at = ASKED.index(name)
    return [*ASKED[:at], *([name, *value] if value else []), *ASKED[at + 2 :]]


def content(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def plain(data, folder, ledger, init_seed=0):
    privet.train("plain", data, model="linear", epochs=5, out=folder, ledger=ledger,
                 init_seed=init_seed)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def data():
    return privet.data.load("digits")


@pytest.fixture(scope="module")
def release(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("releases")
    return plain(data, folder / "R", Ledger(folder / "ledger.db"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, release):
    """What one call leaves; not to be written to."""
    folder = tmp_path_factory.mktemp("attacked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVET_HOME", str(folder / "home"))
        assert attack(release, folder / "O") == 0
    return folder / "O"


@pytest.fixture
def kept(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "O")


@pytest.fixture
def no_training(monkeypatch):
    def step(*_):
        raise AssertionError("trained")

    monkeypatch.setattr(PerturberTrainer, "step", step)


def refused(capsys, code):
    """The one line of an error."""
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    (line,) = told.err.strip().splitlines()
    return line


# --- trained and kept ---------------------------------------------------------------------------


def test_a_network_is_trained_as_asked_and_kept_as_a_release(trained, release):
    network = card(trained / "ain")
    assert network["method"] == "ain"
    assert network["mechanism"]["target"] == "8"
    assert network["mechanism"]["bounds"] == [0.3, 0.2]
    assert network["provenance"]["config"]["epochs"] == 2
    fixed, own = Release.load(trained / "ain").model.classifier, Release.load(release).model
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fixed(x), own(x))
    assert verify(trained / "ain", ledger=Ledger(trained.parent / "home" / "ledger.db")).ok


def test_figures_are_those_of_the_network_against_the_release(trained, release, data):
    """The library is the oracle; images of the target class are left out."""
    told = json.loads((trained / "attack.json").read_text())
    spread = np.linspace(0, len(data.test) - 1, 120).round().astype(int)
    x, y = data.bounds.clamp_and_scale(data.test.x[spread]), data.test.y[spread]
    others = y != 8
    assert 0 < others.sum() < 120
    network = Generated(source=str(trained / "ain"))
    found = privet.attack(network, release, x[others], y[others], sizes=[0.2, 0.3], target=8)
    assert told["target"] == "8"
    assert told["examples"] == others.sum()
    (row,) = told["attacks"]
    assert row["attack"] == "ain"
    assert row["settings"]["source"] == str(trained / "ain")
    assert row["accuracy"] == list(found.accuracy("ain").values())
    assert told["clean_accuracy"] == found.clean_accuracy


def test_a_network_stands_in_the_table_beside_others(kept, release, capsys):
    assert attack(release, kept, "--steps", "3", attacks="ifgsm,ain") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    named = [row[1] for row in rows if len(row) > 3 and row[0] == "│"]
    assert named == ["ifgsm", "ain", "worst"]
    told = json.loads((kept / "attack.json").read_text())
    assert [row["attack"] for row in told["attacks"]] == ["ifgsm", "ain"]


def test_without_a_target_all_examples_are_attacked(release, tmp_path, capsys):
    asked = ["--sizes", "0.3", "--epochs", "0.2", "--examples", "50"]
    assert attack(release, tmp_path / "O", "--json", attacks="advgan", asked=asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["examples"] == 50
    assert "target" not in told
    assert card(tmp_path / "O" / "advgan")["mechanism"]["target"] == "any wrong class"


def test_each_method_learns_the_bounds_that_it_can(release, tmp_path, capsys):
    """advgan the largest size, atn none; and attacks may be mixed."""
    asked, out = with_other("--epochs", "0.2"), tmp_path / "O"
    assert attack(release, out, "--json", attacks="fgsm,atn,advgan", asked=asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["attack"] for row in told["attacks"]] == ["fgsm", "atn", "advgan"]
    assert card(out / "atn")["mechanism"]["bounds"] == [1.0]
    assert card(out / "advgan")["mechanism"]["bounds"] == [0.3]
    again = ["--sizes", "0.1,0.3", "--target", "8"]  # the same largest size
    assert attack(release, out, attacks="atn,advgan", asked=again) == 0


def test_sizes_are_handed_on_to_the_last_digit():
    """Rounded up, a bound would lie above the size that it is for."""
    sizes = [4 / 255, 16 / 255]
    wanted = Wanted(
        classifier=Path(), norm="linf", sizes=sizes, target=None, epochs=None, device="cpu"
    )
    assert [float(b) for b in wanted.settings("ain")["bounds"].split(",")] == sizes
    assert float(wanted.settings("advgan")["bounds"]) == 16 / 255
    assert "bounds" not in wanted.settings("atn")


# --- there already ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [ASKED, with_other("--sizes", "0.3,0.2"), with_other("--epochs")],
    ids=["the same", "in another order", "epochs not said"],
)
@pytest.mark.usefixtures("no_training")
def test_a_network_that_is_there_is_used_again(kept, release, asked, capsys):
    before, figures = content(kept / "ain"), json.loads((kept / "attack.json").read_text())
    assert attack(release, kept, "--json", asked=asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert content(kept / "ain") == before
    assert told["robust_accuracy"] == figures["robust_accuracy"]
    assert json.loads((kept / "attack.json").read_text()) == told


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (with_other("--target", "3"), "target"),
        (with_other("--target"), "target"),
        (with_other("--sizes", "0.2"), "sizes"),
        (with_other("--sizes", "0.2,0.3,0.4"), "sizes"),
        (with_other("--epochs", "3"), "epochs"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_a_network_for_something_else_is_not_used(kept, release, asked, what, capsys):
    before = content(kept)
    line = refused(capsys, attack(release, kept, asked=asked))
    assert f"the network that is there differs in its {what}: got {kept / 'ain'}" in line
    assert "choose another --out" in line
    assert content(kept) == before


@pytest.mark.usefixtures("no_training")
def test_a_network_against_another_classifier_is_not_used(kept, data, tmp_path, capsys):
    other = plain(data, tmp_path / "other", Ledger(tmp_path / "ledger.db"), init_seed=1)
    assert "differs in its classifier" in refused(capsys, attack(other, kept))


@pytest.mark.usefixtures("no_training")
def test_a_network_that_learned_from_other_data_is_not_used(
    kept, release, data, monkeypatch, capsys
):
    monkeypatch.setattr(privet.data, "load", lambda *_: replace(data, name="other digits"))
    assert "differs in its data" in refused(capsys, attack(release, kept))


@pytest.mark.usefixtures("no_training")
def test_what_is_no_network_is_not_used(kept, release, capsys):
    shutil.rmtree(kept / "ain")
    shutil.copytree(release, kept / "ain")
    assert "differs in its method" in refused(capsys, attack(release, kept))


@pytest.mark.usefixtures("no_training")
def test_a_network_that_was_changed_is_refused(kept, release, capsys):
    weights = kept / "ain" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "changed after it was made" in refused(capsys, attack(release, kept))


def test_a_folder_is_named_in_place_of_a_method(trained, release, tmp_path, capsys):
    """Without --out, too; it is the same attack."""
    folder, asked = str(trained / "ain"), with_other("--epochs")
    assert attack(release, None, "--json", attacks=folder, asked=asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((trained / "attack.json").read_text())


# --- killed -------------------------------------------------------------------------------------


@pytest.fixture
def killed(release, tmp_path, monkeypatch, capsys):
    """A run that was stopped after five of its steps, with a checkpoint behind each."""
    monkeypatch.setattr(unprotected, "checkpoint_due", lambda *_: True)
    steps, step = [], PerturberTrainer.step

    def stopped(trainer):
        if len(steps) == 5:
            raise KeyboardInterrupt
        steps.append(trainer.next_step)
        step(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(PerturberTrainer, "step", stopped)
        assert attack(release, tmp_path / "O") == 130
    capsys.readouterr()
    assert not (tmp_path / "O" / "ain" / "manifest.json").exists()
    return tmp_path / "O"


@pytest.mark.parametrize(
    "verb",
    [
        ["attack", "--sizes", "0.1", "--attacks", "fgsm"],
        ["certify", "--scale", "0.1", "--n", "100", "--examples", "2"],
        ["certify", "--threat", "poisoning", "--accuracy", "0.9"],
    ],
    ids=["attack", "certify", "poisoning"],
)
def test_a_network_that_attacks_is_no_classifier(trained, verb, capsys):
    line = refused(capsys, run(verb[0], trained / "ain", *verb[1:]))
    assert "got a network that attacks, method 'ain', expected a classifier" in line
    assert "--attacks" in line


@pytest.mark.parametrize(
    "source",
    [
        lambda ain: ["--classifier", ain],
        lambda ain: ["--classifier", json.loads((ain / "config.json").read_text())["model"],
                     "--classifier-weights", ain / "weights.safetensors"],
    ],
    ids=["release", "weights"],
)  # fmt: skip
def test_no_denoiser_is_trained_and_charged_for_a_network_that_attacks(
    trained, source, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path / "home"))
    code = run(
        "train", "transdenoiser", "--data", "digits", "--epsilon", "3", "--epochs", "1",
        *source(trained / "ain"), "--public-classifier", "made up", "--out", tmp_path / "td",
    )  # fmt: skip
    assert "got a network that attacks, method 'ain', expected a classifier" in refused(
        capsys, code
    )
    assert not (tmp_path / "td").exists()
    with contextlib.closing(Ledger(default_ledger_path())) as book:
        assert not any(book.account(name).runs for name in book.names())


def test_a_run_that_was_killed_goes_on(killed, trained, release, monkeypatch, capsys):
    """No step is taken twice, and it ends with the weights of one that was not killed."""
    steps, step = [], PerturberTrainer.step

    def counted(trainer):
        steps.append(trainer.next_step)
        step(trainer)

    monkeypatch.setattr(PerturberTrainer, "step", counted)
    assert attack(release, killed, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert steps == list(range(5, card(trained / "ain")["mechanism"]["steps"]))
    weights = "ain/weights.safetensors"
    assert (killed / weights).read_bytes() == (trained / weights).read_bytes()
    expected = json.loads((trained / "attack.json").read_text())
    assert told["robust_accuracy"] == expected["robust_accuracy"]


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (with_other("--target", "3"), "target"),
        (with_other("--sizes", "0.1"), "sizes"),
        (with_other("--epochs", "7"), "epochs"),
    ],
)
def test_a_killed_run_does_not_go_on_for_something_else(killed, release, asked, what, capsys):
    before = content(killed)
    assert f"differs in its {what}" in refused(capsys, attack(release, killed, asked=asked))
    assert content(killed) == before


def test_a_run_killed_before_it_was_settled_is_settled(release, tmp_path, monkeypatch, capsys):
    """The release is whole; only the cleaning up was left to do."""

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", die)
        assert attack(release, tmp_path / "O", asked=with_other("--epochs", "0.2")) == 130
    checkpoint = tmp_path / "O" / "ain" / "internal" / "checkpoint.pt"
    assert checkpoint.exists()
    monkeypatch.setattr(PerturberTrainer, "step", die)
    assert attack(release, tmp_path / "O", asked=with_other("--epochs", "0.2")) == 0
    assert not checkpoint.exists()
    (entered,) = Ledger(default_ledger_path()).account("digits").runs
    assert entered.status == "settled"


# --- refused before anything is trained ---------------------------------------------------------


@pytest.mark.parametrize(
    ("attacks", "asked", "said"),
    [
        ("ain", with_other("--target", "ten"), "got 'ten', expected one of 0, 1, 2, 3, 4, 5, 6"),
        ("ain", [*ASKED, "--norm", "l2"], "ain does not work in this norm: got l2"),
        ("advgan", with_other("--sizes", ""), "bad sizes"),
        ("atn", with_other("--sizes", "0.2,-1"), "bad sizes"),
        ("advgan", with_other("--sizes", "0.2,inf"), "bad sizes"),
        ("ain", with_other("--sizes", "1.5"), "bad bounds"),
        ("ain", with_other("--epochs", "0"), "bad epochs"),
        ("atn", with_other("--target"), "atn has no attack without a target"),
        ("ain,pdg", ASKED, "did you mean 'pgd'"),
        ("ain,pgd", [*ASKED, "--eot", "0"], "bad eot"),
        ("ain,nowhere/ain", ASKED, "unknown attack"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_what_could_not_be_used_is_not_trained(release, tmp_path, attacks, asked, said, capsys):
    line = refused(capsys, attack(release, tmp_path / "O", attacks=attacks, asked=asked))
    assert said in line
    assert not (tmp_path / "O").exists()


@pytest.mark.usefixtures("no_training")
def test_a_network_is_not_trained_for_nothing(release, capsys):
    line = refused(capsys, attack(release, None))
    assert "ain needs a network, which is kept: got no --out" in line
    assert "--attacks runs/ain" in line


@pytest.mark.usefixtures("no_training")
def test_a_release_that_does_not_attack_is_no_attack(release, tmp_path, capsys):
    line = refused(capsys, attack(release, tmp_path / "O", attacks=f"ain,{release}"))
    assert "a release that does not attack" in line


def test_networks_of_one_name_are_refused(kept, release, capsys):
    line = refused(capsys, attack(release, kept, attacks=f"ain,{kept / 'ain'}"))
    assert "each one once" in line


# --- on the card --------------------------------------------------------------------------------


def test_the_target_is_on_the_card_and_the_card_holds(kept, release, tmp_path, capsys):
    folder = shutil.copytree(release, tmp_path / "release")
    assert attack(folder, kept, "--record", "--steps", "3", attacks="ifgsm,ain") == 0
    asked = ["--sizes", "0.2,0.3", "--examples", "120"]
    assert attack(folder, None, "--record", attacks="fgsm", asked=asked) == 0
    capsys.readouterr()
    rows = card(folder)["attacks"]
    assert [(row["attack"], row["size"], row.get("target")) for row in rows[:6]] == [
        (name, size, "8") for name in ("ifgsm", "ain", "worst case") for size in (0.2, 0.3)
    ]
    assert {row["examples"] for row in rows[:6]} == {
        json.loads((kept / "attack.json").read_text())["examples"]
    }
    assert [row.get("target") for row in rows[6:]] == [None, None]
    outcome = verify(folder, ledger=Ledger(release.parent / "ledger.db"))
    assert outcome.ok, outcome.findings
    assert "attacks figures" in {finding.check for finding in outcome.findings}
