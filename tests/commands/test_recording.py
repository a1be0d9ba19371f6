import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import privet as library
from privet.commands.recording import require_recordable
from privet.errors import InputError
from privet.release import add_measured
from privet.signing import new_key, sign
from privet.verification import verify
from privet.verification.files import check_digests

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import card, privet, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases") / "digits"
    outcome = privet(
        "train", "dpsgd", "--data", "digits", "--epsilon", "3", "--epochs", "5",
        "--model", "linear", "--out", folder, home=tmp_path_factory.mktemp("home"),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture
def release(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "release")


ATTACK = ["--attacks", "fgsm,pgd", "--sizes", "0.05,0.1", "--examples", "50", "--steps", "5"]
CERTIFY = ["--scale", "0.1", "--n", "500", "--radii", "0,0.1", "--examples", "50"]
BOTH = [("attack", *ATTACK), ("certify", *CERTIFY)]


def test_figures_come_onto_the_card_and_into_the_report(release, capsys):
    before = card(release)
    assert run("attack", release, *ATTACK, "--record", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    rows = card(release)["attacks"]
    assert [(r["attack"], r["size"]) for r in rows] == [
        (a, s) for a in ("fgsm", "pgd", "worst case") for s in (0.05, 0.1)
    ]
    assert [r["accuracy"] for r in rows[4:]] == found["robust_accuracy"]
    assert {r["examples"] for r in rows} == {50}
    assert rows[2]["settings"]["steps"] == 5
    assert run("certify", release, *CERTIFY, "--record", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    certified = card(release)["robustness"]
    assert [(r["radius"], r["certified_accuracy"]) for r in certified] == [
        (r["radius"], r["accuracy"]) for r in found["certified_accuracy"]
    ]
    assert {(r["alpha"], r["n"], r["scale"]) for r in certified} == {(0.001, 500, 0.1)}
    after = card(release)
    assert {k: v for k, v in after.items() if k not in ("attacks", "robustness")} == {
        k: v for k, v in before.items() if k not in ("attacks", "robustness")
    }
    outcome = verify(release)
    assert outcome.ok, outcome.findings
    assert {"attacks figures", "robustness figures"} <= {f.check for f in outcome.findings}
    assert "worst case" in (release / "report.html").read_text()


def test_a_second_measurement_stands_beside_the_first(release, capsys):
    for _ in range(2):
        assert run("attack", release, *ATTACK, "--record") == 0
    capsys.readouterr()
    rows = card(release)["attacks"]
    assert [r["run"] for r in rows] == [1] * 6 + [2] * 6
    assert [r["accuracy"] for r in rows[:6]] == [r["accuracy"] for r in rows[6:]]


def test_nothing_is_recorded_unless_asked_for(release, capsys):
    before = {p.name: p.read_bytes() for p in release.iterdir() if p.is_file()}
    assert run("attack", release, *ATTACK) == 0
    assert run("certify", release, *CERTIFY) == 0
    capsys.readouterr()
    assert {p.name: p.read_bytes() for p in release.iterdir() if p.is_file()} == before


def test_a_signed_release_stays_as_it_was_signed(release, tmp_path, capsys):
    secret, public = new_key(tmp_path / "key")
    sign(release, secret)
    assert run("attack", release, *ATTACK, "--record") == 2
    assert "signed" in capsys.readouterr().err
    assert verify(release, key=public).ok


@pytest.mark.parametrize(
    "file", ["weights.safetensors", "config.json", "trust.json", "report.html"]
)
def test_recording_blesses_no_change(release, file):
    content = (release / file).read_bytes()
    changed = content.replace(b"digits", b"digitz") if b"digits" in content else content + b"\n"
    (release / file).write_bytes(changed)
    with pytest.raises(InputError, match="changed after it was made") as error:
        add_measured(release, "attacks", [{"attack": "pgd"}])
    assert file in str(error.value)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_card_that_was_being_exchanged_when_the_process_died_is_finished(
    release, monkeypatch, writes
):
    """Killed before each of its files is written: the next figures find it whole again."""
    done = []

    def dying(write):
        def until_killed(*given):
            if len(done) == writes:
                raise KeyboardInterrupt
            done.append(given[0].name)
            write(*given)

        return until_killed

    with monkeypatch.context() as patch:
        for name in ("write_json", "write_atomically"):
            patch.setattr(library.release, name, dying(getattr(library.release, name)))
        with pytest.raises(KeyboardInterrupt):
            add_measured(release, "attacks", [{"attack": "first"}])
    assert done == ["next_card.json", "trust.json", "report.html"][:writes]
    assert any("half written" in f.detail for f in check_digests(release)) == (writes > 1)
    add_measured(release, "attacks", [{"attack": "second"}])
    rows = json.loads((release / "trust.json").read_text())["attacks"]
    assert [row["attack"] for row in rows] == (["first"] if writes else []) + ["second"]
    assert not (release / "internal" / "next_card.json").exists()
    assert all(finding.ok for finding in check_digests(release))


def half_written(release, monkeypatch):
    """A card whose process died before its first file was exchanged."""

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(library.release, "_write_card", killed)
        with pytest.raises(KeyboardInterrupt):
            add_measured(release, "attacks", [{"attack": "first"}])
    assert (release / "internal" / "next_card.json").exists()


def test_a_half_written_card_blesses_no_changed_weights(release, monkeypatch):
    half_written(release, monkeypatch)
    weights = release / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="changed after it was made"):
        add_measured(release, "attacks", [{"attack": "second"}])
    assert not all(finding.ok for finding in check_digests(release))


def test_a_half_written_card_brings_no_other_guarantee(release, monkeypatch):
    half_written(release, monkeypatch)
    pending = release / "internal" / "next_card.json"
    wanted = json.loads(pending.read_text())
    wanted["utility"]["test_accuracy"] = 0.999
    pending.write_text(json.dumps(wanted))
    with pytest.raises(InputError, match="changed after it was made"):
        add_measured(release, "attacks", [{"attack": "second"}])


def test_a_half_written_card_is_neither_signed_nor_exported(release, monkeypatch, tmp_path):
    half_written(release, monkeypatch)
    secret, _ = new_key(tmp_path / "key")
    with pytest.raises(InputError, match="half written"):
        sign(release, secret)
    with pytest.raises(InputError, match="half written"):
        library.release.export(release, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_processes_lose_no_figures(release):
    """Each waits for the other's card."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: add_measured(release, "attacks", [{"attack": i}]), range(8)))
    rows = card(release)["attacks"]
    assert sorted(row["attack"] for row in rows) == list(range(8))
    assert sorted(row["run"] for row in rows) == list(range(1, 9))


def test_only_measured_parts_take_figures(release):
    with pytest.raises(InputError, match="no such part"):
        add_measured(release, "privacy", [{"epsilon": 0.1}])


def test_private_test_records_stay_off_the_card(make_data, release):
    private = make_data(test_is_public=False)
    assert require_recordable(release, private, record=False) == ""
    weights = json.loads((release / "manifest.json").read_text())["files"]["weights.safetensors"]
    assert require_recordable(release, library.data.load("digits"), record=True) == weights
    with pytest.raises(InputError, match="private test records"):
        require_recordable(release, private, record=True)


@pytest.mark.parametrize(
    "options", [("attack", *ATTACK), ("certify", *CERTIFY)], ids=lambda o: o[0]
)
def test_both_commands_ask_before_they_work(release, options, monkeypatch, capsys):
    """Private records, a signed release: refused at once, and nothing is asked of the model."""

    def private(*_, **__):
        raise InputError("figures on private test records are not for a card")

    for room in ("attack", "certify"):
        monkeypatch.setattr(f"privet.commands.{room}.require_recordable", private)
    monkeypatch.setattr("privet.classifiers.open_classifier", None)
    verb, *rest = options
    assert run(verb, release, *rest, "--record") == 2
    assert "private test records" in capsys.readouterr().err


def test_figures_of_other_weights_are_refused(release):
    with pytest.raises(InputError, match="exchanged while it was measured"):
        add_measured(release, "attacks", [{"attack": "pgd"}], of="0" * 64)


def test_one_attack_alone_is_no_worst_case(release, capsys):
    one = ["--attacks", "fgsm", "--sizes", "0.1", "--examples", "30"]
    assert run("attack", release, *one, "--record") == 0
    capsys.readouterr()
    assert [row["attack"] for row in card(release)["attacks"]] == ["fgsm"]


def test_what_was_certified_is_on_the_card(release, capsys):
    hidden = ["--hidden-scale", "0.5", "--n", "300", "--examples", "20", "--radii", "0,0.01"]
    assert run("certify", release, *hidden, "--record") == 0
    capsys.readouterr()
    row = card(release)["robustness"][0]
    assert row["noise"] == "hidden gaussian"
    assert (row["hidden_scale"], row["layer"], row["precision"]) == (0.5, 1, "float32")
    assert "not the bare model" in row["classifier"]
    assert "not the bare model" in (release / "report.html").read_text()


def test_poisoning_has_nothing_to_record(release, capsys):
    asked = ["--threat", "poisoning", "--accuracy", "0.9", "--record"]
    assert run("certify", release, *asked) == 2
    assert "no figures for a card" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [("attack", *ATTACK), ("certify", *CERTIFY)], ids=lambda o: o[0]
)
def test_results_do_not_go_into_a_release(release, options, capsys):
    verb, *rest = options
    assert run(verb, release, *rest, "--out", release) == 2
    assert "a release is in that folder" in capsys.readouterr().err
    assert verify(release).ok
