"""`privet study lifelong` from the command line."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import run

OPTIONS = {"--n-tasks": "2", "--records": "60", "--examples": "40", "--seeds": "0",
           "--contenders": "l2dp-objective,agem"}  # fmt: skip
SMALL = ["--set", "l2dp-objective.model=cosines-2-16", "--set", "agem.epochs=2"]


def small(*options, sets=SMALL, **changed):
    chosen = OPTIONS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return ["study", "lifelong", *(word for pair in chosen.items() for word in pair), *sets,
            *options]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tasks": "mine"}, "named, public streams"),
        ({"tasks": "permuted-mnist/often"}, "NAME/shared"),
        ({"tasks": "split-digits/shared"}, "no unit of 'split-digits' is in two tasks"),
        ({"contenders": "l2dp-objectives"}, "did you mean 'l2dp-objective'"),
        ({"epsilons": "0"}, "bad epsilon"),
        ({"epsilon": "2"}, "one of 3"),
        ({"seeds": "0,0"}, "bad seeds"),
        ({"examples": "0"}, "bad number of examples"),
        ({"set": "l2dp.epochs=2"}, "does not take part"),
        ({"settings": "nowhere.toml"}, "no such settings file"),
        ({"device": "toaster"}, "no such device"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*small(**options), "--out", "study") == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("privet: ")
    assert said in message
    assert not (tmp_path / "study").exists()


def test_results_go_to_stdout_and_a_second_time_to_people(tmp_path, capsys):
    study = tmp_path / "study"
    assert run(*small(), "--out", study, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((study / "results.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["l2dp-objective", "agem"]
    assert told["protocol"]["permuted-digits"]["examples"] == 40
    assert told["command"].startswith("privet study lifelong --out ")
    assert (told["together"]["trainings"], told["together"]["without_proof"]) == (2, 1)
    assert told["together"]["unfinished"] == 0
    assert not (tmp_path / "home" / "ledger.db").exists()  # the user's own
    made = {path.name for path in study.iterdir()}
    assert {"index.html", "table.md", "figures.csv", "accuracy-permuted-digits.svg"} <= made
    before = {path: path.stat().st_mtime_ns for path in study.glob("cells/*/stream/scores.json")}
    assert run(*small(), "--out", study) == 0
    shown = capsys.readouterr().out
    for said in ("l2dp-objective", "proved", "leak more than each", "index.html"):
        assert said in shown
    assert before == {path: path.stat().st_mtime_ns for path in before}
