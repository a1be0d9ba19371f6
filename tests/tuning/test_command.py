"""`privet tune` and `privet resume` as they are typed."""

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import privet, start
from privet.cli import main
from privet.privacy.randomness import Randomness
from privet.tuning.repetitions import Repetitions

SEARCH = 'learning_rate = [0.1, 0.25, 1.0]\nclip_norm = [0.1, 1.0]\nmodel = "linear"\n'
TUNE = ["tune", "dpsgd", "--data", "digits", "--epsilon", "3"]


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "search.toml").write_text(SEARCH)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("search", "options", "words"),
    [
        (SEARCH + "epochs = [1, 2]\n", [], ["'epochs' cannot be searched", "one value"]),
        (SEARCH + "epochs = 1\n", ["--epochs", "2"], ["'epochs' is given twice"]),
        ("learning_rate = 0.1\n", [], ["bad number of candidates"]),
        ("learning_rate = [\n", [], ["corrupt TOML", "search.toml"]),
        (None, [], ["file not found", "search.toml"]),
        (SEARCH, ["--trials", "1"], ["bad expected number of trials", "2 to 10000"]),
        (SEARCH, ["--holdout", "0"], ["bad holdout"]),
        (SEARCH, ["--delta", "2"], ["bad delta"]),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(typed, tmp_path, search, options, words):
    if search is None:
        (tmp_path / "search.toml").unlink()
    else:
        (tmp_path / "search.toml").write_text(search)
    code, out, err = typed(*TUNE, "--search", "search.toml", "--out", "x", *options)
    assert (code, out) == (2, "")
    line = " ".join(err.split())
    assert line.startswith("privet: ")
    assert all(word in line for word in words), line
    assert not (tmp_path / "x").exists()


def test_the_help_teaches(typed):
    code, out, _ = typed("tune", "--help")
    said = " ".join(out.split())
    assert code == 0
    assert "privet tune dpsgd --data digits --epsilon 3 --search search.toml" in said
    assert "learning_rate = [0.1, 0.25, 0.5]" in said


def test_a_search_from_end_to_end(typed, tmp_path):
    code, out, err = typed(
        *TUNE, "--search", "search.toml", "--epochs", "1", "--trials", "3", "--out", "run", "--json"
    )
    assert code == 0, err
    card = json.loads(out)
    assert card == json.loads((tmp_path / "run" / "trust.json").read_text())
    assert 2.99 < card["privacy"][0]["epsilon"] <= 3.0
    assert typed("verify", "run")[0] == 0
    chosen = card["provenance"]["config"]
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert "charged: the best of a random number of runs (3 expected)" in page
    assert f"learning rate {chosen['learning_rate']:g}, clip norm {chosen['clip_norm']:g}" in page
    assert "a random number of runs (3 expected, shape 1)" in page
    shown = " ".join(typed("ledger", "show", "digits")[1].split())
    assert "tune dpsgd run" in shown
    assert "the best" in shown  # in a narrow terminal the cell is broken into lines
    assert "of 3 expected runs" in shown
    assert "1/1" in shown
    (run,) = json.loads(typed("ledger", "show", "digits", "--json")[1])[0]["runs"]
    assert (run["step_event"]["type"], run["charged"]) == ("Selection", 1)
    code, _, err = typed(*TUNE, "--search", "search.toml", "--out", "run")
    assert (code, "already there" in err) == (2, True)


def test_the_example_of_the_documentation_runs(monkeypatch, tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "verbs" / "tune.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path / "home"))
    exec(example, {})
    rate, epsilon = map(float, capsys.readouterr().out.split())
    assert rate in (0.1, 1.0)
    assert 2.99 < epsilon <= 3.0


@pytest.fixture
def one_thread():
    """As many as the command line has in these tests: their number decides how sums round."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(folder):
    return safetensors.torch.load_file(folder / "weights.safetensors")


def test_a_search_killed_in_the_middle_of_a_trial_finds_the_same_winner(
    tmp_path, typed, one_thread
):
    """Known noise makes an undisturbed search the oracle. Five trials; killed in the second."""
    chosen = Repetitions(mean=4.0, shape=1.0)
    seed = next(s for s in range(99) if chosen.draw(Randomness.seeded(s).sampling) == 5)
    options = [*TUNE, "--search", tmp_path / "search.toml", "--epochs", "3", "--trials", "4",
               "--noise-seed", str(seed)]  # fmt: skip
    folder = tmp_path / "killed"
    process = start([*options, "--out", folder], tmp_path / "a")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        state = folder / "internal" / "checkpoint.pt"
        if state.exists() and torch.load(state, weights_only=True)["done"] >= 1:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "manifest.json").exists()
    resumed = privet("resume", folder, "--json", home=tmp_path / "a")
    assert resumed.code == 0, resumed.err
    code, out, err = typed(*options, "--out", tmp_path / "whole")
    assert code == 0, err
    assert "chosen learning rate" in " ".join(out.split())
    one, two = weights(folder), weights(tmp_path / "whole")
    assert all(torch.equal(one[name], two[name]) for name in one)
    config = json.loads((tmp_path / "whole" / "trust.json").read_text())["provenance"]["config"]
    assert resumed.json["provenance"]["config"] == config
