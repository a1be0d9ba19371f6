"""`privet study synthesis` from the command line."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import run

OPTIONS = {"--records": "120", "--contenders": "autoregressive:none", "--epsilons": "3",
           "--seeds": "0"}  # fmt: skip
SETTINGS = (
    "all.epochs=1",
    "all.batch=120",
    "autoregressive.model=rows-16-0",
    "autoregressive:none.model=rows-16-0",
)
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]


def small(*options, **changed):
    """A study of seconds; `changed` are options in place of its own."""
    chosen = OPTIONS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    words = [word for pair in chosen.items() for word in pair]
    return ["study", "synthesis", *words, *SMALL, *options]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "mine.csv"}, "public records only"),
        ({"data": "mimic-iv-ed-demo"}, "the simulator's"),
        ({"contenders": "igampt"}, "did you mean 'igamt'"),
        ({"contenders": "autoregressive:paper"}, "no analysis 'paper'"),
        ({"epsilons": "0"}, "bad epsilon"),
        ({"epsilons": ""}, "no epsilons"),
        ({"epsilon": "2"}, "one of 3"),
        ({"seeds": "0,0"}, "bad seeds"),
        ({"records": "0"}, "bad number of records"),
        ({"holdout": "1.5"}, "bad holdout"),
        ({"stays": "3"}, "at least 20"),
        ({"classes_of": "rhythm"}, "numeric temporal"),
        ({"set": "vae.epochs=1"}, "does not take part"),
        ({"set": "all.holdout=0.1"}, "--holdout"),
        ({"set": "autoregressive.epochs=-1"}, "autoregressive: bad epochs"),
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
    """The second time nothing is fitted; the study is charged to itself."""
    study = tmp_path / "study"
    assert run(*small(), "--out", study, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((study / "results.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["autoregressive", "autoregressive:none"]
    assert told["records"]["records"] == 120
    assert told["command"].startswith("privet study synthesis --out ")
    assert (told["together"]["trainings"], told["together"]["without_proof"]) == (2, 1)
    assert not (tmp_path / "home" / "ledger.db").exists()  # the user's own
    assert {"index.html", "table.md", "figures.csv", "ledger.db", "pca.svg", "real.json"} <= {
        path.name for path in study.iterdir()
    }
    before = {path: path.stat().st_mtime_ns for path in study.glob("cells/*/*.npz")}
    assert run(*small(), "--out", study) == 0
    shown = capsys.readouterr().out
    for said in ("autoregressive:none", "proved", "leak more than each", "index.html"):
        assert said in shown
    assert before == {path: path.stat().st_mtime_ns for path in study.glob("cells/*/*.npz")}


def test_help_teaches(capsys):
    assert run("study", "synthesis", "--help") == 0
    text = capsys.readouterr().out
    for said in ("Stopped? Repeat the command", "named beforehand", "--data-seed", "edgamt"):
        assert said in text
