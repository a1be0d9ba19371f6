"""`privet audit` as a user meets it: bounds on screen, in JSON, on the card; exit codes."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from privet.audits.canary_patient import Fits
from privet.audits.twins import TwinWorlds
from privet.privacy.noise import GaussianNoise
from privet.release import add_measured
from privet.verification import verify

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import card, privet, run

PRIVATE = "computed from training records, without charge: not for release"
SHORT = ["--epochs", "2", "--batch", "256"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was audited as it went on."""
    folder = tmp_path_factory.mktemp("releases") / "digits"
    outcome = privet(
        "train", "dpsgd", "--data", "digits", "--epsilon", "1", *SHORT, "--canaries", "2000",
        "--out", folder, home=tmp_path_factory.mktemp("home"),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture
def release(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "release")


def test_a_run_with_canaries_is_audited_itself_and_keeps_it_inside(release):
    """Beside the released sums its scores would give the noise away: nothing on the card."""
    kept = release / "internal" / "audit.json"
    rows = json.loads(kept.read_text())["audit"]
    assert [row["subject"] for row in rows] == ["the released run itself"] * 2
    assert all(0 <= row["epsilon"] < 1 for row in rows)
    assert not any(row["refutes"] for row in rows)
    assert kept.stat().st_mode & 0o077 == 0
    assert card(release)["audit"] == []
    assert "the released run itself" not in (release / "report.html").read_text()


def test_a_twin_is_audited_and_recorded(release, tmp_path, capsys):
    options = ["--canaries", "3000", "--seed", "0", "--out", tmp_path / "found", "--record"]
    assert run("audit", release, *options, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["proved"][0]["epsilon"] == pytest.approx(1, abs=0.01)
    added = card(release)["audit"]
    assert [{k: v for k, v in row.items() if k != "run"} for row in added] == found["audit"]
    assert {row["subject"] for row in added} == {
        "a twin, trained under the same plan on made-up records"
    }
    assert json.loads((tmp_path / "found" / "audit.json").read_text()) == found
    assert b"<svg" in (tmp_path / "found" / "audit.svg").read_bytes()
    assert verify(release).ok


def test_a_broken_engine_is_refuted_and_verify_says_so(release, monkeypatch, capsys):
    """A tenth of the noise that the plan accounts: exit code 1, and the card is contradicted."""
    add_to = GaussianNoise.add_to

    def weak(self, total, *, step, stream):
        noisy = add_to(self, total, step=step, stream=stream)
        return total.double() + (noisy - total.double()) / 10

    monkeypatch.setattr(GaussianNoise, "add_to", weak)
    assert run("audit", release, "--canaries", "3000", "--seed", "0", "--record") == 1
    told = capsys.readouterr()
    assert "REFUTED" in told.out
    assert "an audit refutes the plan's trade-off curve" in told.err
    failed = [finding for finding in verify(release).findings if not finding.ok]
    assert "audit against the proved epsilon" in [finding.check for finding in failed]
    assert "Do not rely on this model" in (release / "report.html").read_text()


def test_many_twins_are_audited_and_recorded_without_the_data(
    release, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("privet.data.load", None)
    options = ["--runs", "10", "--seed", "0", "--out", tmp_path / "found", "--record", "--json"]
    assert run("audit", release, *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"].startswith(f"privet audit {release} --runs 10")
    added = card(release)["audit"]
    assert [{k: v for k, v in row.items() if k != "run"} for row in added] == found["audit"]
    assert [row["estimator"] for row in added] == ["two worlds, split", "two worlds, mu-GDP, split"]
    assert {(row["runs"], row["canaries"], row["refutes"]) for row in added} == {(20, 1, False)}
    scores = json.loads((tmp_path / "found" / "scores.json").read_text())
    assert len(scores["without"]) == len(scores["with"]) == 10
    assert b"<svg" in (tmp_path / "found" / "audit.svg").read_bytes()
    assert verify(release).ok
    assert run("audit", release, *options[:-2]) == 0  # from the kept scores
    assert "20 trainings, half of them with a canary" in capsys.readouterr().out


def test_twins_that_stand_too_far_apart_refute_the_plan(release, monkeypatch, capsys):
    worlds = np.linspace(0, 1, 60), np.linspace(2, 3, 60)
    monkeypatch.setattr(TwinWorlds, "scores", lambda *_, **__: worlds)
    assert run("audit", release, "--runs", "60", "--record") == 1
    assert "REFUTED" in capsys.readouterr().out
    failed = [finding.check for finding in verify(release).findings if not finding.ok]
    assert failed == ["audit against the proved epsilon"]


def test_membership_stays_inside(release, tmp_path, capsys):
    before = {path: path.read_bytes() for path in release.glob("*.*")}
    assert run("audit", release, "--membership", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.4 < found["loss"]["auc"] < 0.6
    assert (found["members"], found["others"]) == (1437, 360)
    inside = release / "internal"
    assert json.loads((inside / "membership.json").read_text()) == found
    assert {path: path.read_bytes() for path in release.glob("*.*")} == before
    for name in ("membership.json", "membership.svg"):
        assert (inside / name).stat().st_mode & 0o077 == 0
    assert "not for release" in found["private"]
    assert run("audit", release, "--membership") == 0
    assert "without charge: not for release" in capsys.readouterr().out
    exported = tmp_path / "exported"
    assert run("export", release, exported) == 0
    assert run("audit", exported, "--membership") == 2
    assert "have no place here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such release"),
        (["my.module:train"], "privet audit function my.module:train"),
        (["RELEASE", "--canaries", "0"], "bad number of canaries"),
        (["RELEASE", "--canaries", "1000000"], "bad number of canaries"),
        (["RELEASE", "--confidence", "1"], "bad confidence"),
        (["RELEASE", "--runs", "3"], "too few runs"),
        (["RELEASE", "--runs", "20", "--canaries", "100"], "--canaries does not go with --runs"),
        (["RELEASE", "--records", "20"], "--records does not go with one twin"),
        (["RELEASE", "--shadows", "20"], "--shadows does not go with"),
        (["RELEASE", "--membership", "--record"], "--record does not go with --membership"),
        (["RELEASE", "--membership", "--out", "there"], "--out does not go with --membership"),
        (["RELEASE", "--membership", "--shadows", "2"], "too few shadow models"),
        (["mechanism", "gausian"], "did you mean 'gaussian'"),
        (["mechanism", "gaussian", "--runs", "3"], "too few runs"),
        (["generator", "igamt", "--runs", "3"], "too few runs"),
        (["generator", "igamt", "--analysis", "none"], "nothing is claimed"),
        (["generator", "vae", "--without", "mask", "--analysis", "paper"], "no such setting here"),
        (["function", "nowhere:train", "--data", "digits"], "no such module"),
    ],
)
def test_bad_input_is_one_line(release, arguments, said, capsys):
    given = [str(release) if word == "RELEASE" else word for word in arguments]
    assert run("audit", *given) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert "Traceback" not in told


def test_a_card_that_does_not_follow_from_its_plan_is_not_audited(release, capsys):
    """An audit of the plan would say nothing about what the card states."""
    stated = card(release)
    stated["privacy"][0]["epsilon"] = 0.01
    (release / "trust.json").write_text(json.dumps(stated))
    assert run("audit", release, "--canaries", "100") == 2
    assert "does not verify" in capsys.readouterr().err


@pytest.mark.parametrize("canaries", ["1", "-3"])
def test_too_few_canaries_are_refused_before_anything_is_charged(tmp_path, canaries, capsys):
    where = tmp_path / "run"
    options = ["--data", "digits", "--epsilon", "1", "--canaries", canaries, "--out", where]
    assert run("train", "dpsgd", *options) == 2
    assert "bad canaries" in capsys.readouterr().err
    assert not where.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"refutes": "no"}, "refutes: 'no'"),
        ({"epsilon": -5.0}, "epsilon -5.0"),
        ({"confidence": 1.0}, "confidence 1.0"),
        ({"adjacency": "nearby"}, "neighbours nearby"),
        ({"canaries": 0}, "0 canaries"),
        ({"epsilon": 50.0, "confidence": 0.9995}, "an audit measured"),
        ({"epsilon": 0.5, "refutes": True}, "an audit refutes its trade-off curve"),
    ],
)
def test_audited_rows_are_checked(release, change, said):
    row = {
        "basis": "audited", "epsilon": 0.5, "delta": 1e-5, "confidence": 0.95,
        "adjacency": "add-remove", "unit": "example", "estimator": "one run", "assumptions": ["a"],
        "attack": "x", "canaries": 9, "runs": 1, "subject": "a twin", "refutes": False,
    }  # fmt: skip
    add_measured(release, "audit", [row])
    assert verify(release).ok
    add_measured(release, "audit", [row | change])
    failed = [finding.detail for finding in verify(release).findings if not finding.ok]
    assert any(said in detail for detail in failed), failed


def test_a_release_without_privacy_has_no_twin(tmp_path, capsys):
    assert run("train", "plain", "--data", "digits", "--epochs", "1", "--out", tmp_path / "p") == 0
    assert run("audit", tmp_path / "p") == 2
    assert "no twin of this release can be trained" in capsys.readouterr().err


def test_a_sound_mechanism_passes_and_a_broken_one_does_not(tmp_path, capsys):
    assert run("audit", "mechanism", "gaussian", "--runs", "20000", "--out", tmp_path) == 0
    assert "not refuted" in capsys.readouterr().out
    assert json.loads((tmp_path / "audit.json").read_text())["refuted"] is False
    assert run("audit", "mechanism", "noise-over-batch", "--json") == 1
    row = json.loads(capsys.readouterr().out)
    assert row["refuted"] is True
    assert row["epsilon"] > row["claimed"] == pytest.approx(1, abs=0.01)


def test_a_generator_is_audited_by_small_fits(capsys, monkeypatch):
    """What the fits make is replaced by a number, which the canary moves."""
    asked = []

    def sample(self, included, runs, seed):
        asked.append((self.method, self.analysis, self.options["without"], runs))
        noise = np.random.default_rng(seed).standard_normal((runs, 1))
        return noise + 100.0 * included * (self.analysis == "paper")

    monkeypatch.setattr(Fits, "__call__", sample)
    options = ("--without", "mixed", "--runs", "200", "--json")
    assert run("audit", "generator", "igamt", "--analysis", "paper", *options) == 1
    row = json.loads(capsys.readouterr().out)
    assert row["refuted"]
    assert row["epsilon"] > row["claimed"] == 1.5
    assert row["unit"] == "patient"
    assert run("audit", "generator", "igamt", *options) == 0
    assert not json.loads(capsys.readouterr().out)["refuted"]
    assert asked == [("igamt", "paper", "mixed", 200)] * 2 + [("igamt", "sound", "mixed", 200)] * 2


def test_mechanisms_are_listed(capsys):
    assert run("audit", "mechanism") == 0
    assert {"gaussian", "batch-norm", "securesgd"} <= set(capsys.readouterr().out.split())


MINE = """
import numpy as np

def remembering(x, y, seed):
    known = {image.tobytes(): label for image, label in zip(x, y)}
    rng = np.random.default_rng(seed)

    def predict(inputs):
        scores = rng.normal(size=(len(inputs), 10))
        for row, image in enumerate(inputs):
            if image.tobytes() in known:
                scores[row, known[image.tobytes()]] += 30
        return scores

    return predict

def failing(x, y, seed):
    raise ValueError("no such thing")

def nothing(x, y, seed):
    return None

def knowing(x, y, seed):
    # Ignores its records, and replays what the auditor might have drawn from the same seed.
    rng = np.random.default_rng(seed)
    rng.random((1000, 1, 8, 8))
    labels, coins = rng.integers(0, 10, 1000), rng.random(1000) < 0.5

    def predict(inputs):
        scores = np.random.default_rng(seed).normal(size=(len(inputs), 10))
        if len(inputs) == 1000:
            scores[np.arange(1000), labels] += 30 * coins
        return scores

    return predict

def forgetting(x, y, seed):
    return lambda inputs: np.random.default_rng(seed).normal(size=(len(inputs), 10))
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "audited_by_test.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return lambda name, *more: run(
        "audit", "function", f"audited_by_test:{name}", "--data", "digits", *more
    )


@pytest.mark.parametrize("how", [[], ["--runs", "40"]], ids=["one run", "many runs"])
def test_functions_that_remember_are_told_from_those_that_forget(mine, how, capsys):
    assert mine("remembering", "--epsilon", "1", *how) == 1
    told = capsys.readouterr()
    assert "refutes epsilon 1.0" in told.err
    assert PRIVATE in told.out
    assert mine("forgetting", "--epsilon", "1", *how, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["refuted"] is False
    assert found["private"] == PRIVATE
    assert found["bounds"][0]["epsilon"] < 1


def test_a_function_is_not_given_the_seed_of_the_coins(mine):
    assert mine("knowing", "--epsilon", "1") == 0


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("failing", [], "the training function failed: got ValueError: no such thing"),
        ("nothing", [], "returns no model"),
        ("forgetting", ["--runs", "-5"], "bad number of trainings"),
        ("forgetting", ["--runs", "1"], "too few runs"),
    ],
)
def test_what_goes_wrong_in_a_function_is_bad_input_and_no_refutation(
    mine, name, more, said, capsys
):
    assert mine(name, "--epsilon", "1", *more) == 2
    assert said in capsys.readouterr().err


def test_shadows_describe_and_are_not_for_release(mine, capsys):
    assert mine("remembering", "--shadows", "12", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lira"]["auc"] > 0.99
    assert "not for release" in found["private"]
    assert mine("forgetting", "--shadows", "2") == 2
    assert "too few shadow models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shadows", "8", "--epsilon", "1"], "--epsilon does not go with --shadows"),
        (["--shadows", "8", "--runs", "20"], "--runs does not go with --shadows"),
        (["--runs", "20", "--canaries", "50"], "--canaries does not go with --runs"),
        (["--delta", "2"], "bad delta"),
        (["--confidence", "0.2"], "bad confidence"),
        (["--canaries", "0"], "bad number of canaries"),
    ],
)
def test_what_a_function_would_be_trained_for_in_vain_is_refused_before(
    tmp_path, monkeypatch, capsys, options, said
):
    """A claim that no option tests must not seem to have been tested."""
    (tmp_path / "never.py").write_text("def train(x, y, seed):\n    raise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    assert run("audit", "function", "never:train", "--data", "digits", *options) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_file_is_no_place_for_results(release, tmp_path, capsys):
    (tmp_path / "taken").touch()
    assert run("audit", release, "--out", tmp_path / "taken" / "x") == 2
    assert "not a folder" in capsys.readouterr().err


def test_a_row_from_a_known_seed_says_so(release):
    assert run("audit", release, "--canaries", "300", "--seed", "7", "--record") == 0
    assert all("seed 7" in row["assumptions"][-1] for row in card(release)["audit"])
