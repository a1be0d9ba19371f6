"""`privet study robust-private` from the command line."""

import json
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import privet, run, start
from privet.ledger import Ledger

OPTIONS = {
    "--data": "digits",
    "--methods": "plain",
    "--seeds": "0,1",
    "--attacks": "fgsm",
    "--sizes": "0.05,0.1",
    "--examples": "40",
    "--n": "60",
    "--radii": "0.1",
}
LINEAR = ["--set", "all.model=linear", "--set", "all.epochs=1", "--set", "plain.batch=400"]


def small(*options, **changed):
    """A study of seconds; `changed` are options in place of its own."""
    chosen = OPTIONS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    words = [word for pair in chosen.items() for word in pair]
    return ["study", "robust-private", *words, *LINEAR, *options]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "mine.toml"}, "public records only"),
        ({"data": "digitz"}, "did you mean 'digits'"),
        ({"methods": "dpsdg"}, "did you mean 'dpsgd'"),
        ({"methods": "plain:paper"}, "no such analysis"),
        *(
            ({"methods": f"plain,{name}"}, f"'{name.partition(':')[0]}' needs a classifier that is")
            for name in (
                "ain",
                "ain:sound",
                "transdenoiser",
                "transdenoiser:paper",
                "atn",
                "advgan",
            )
        ),
        ({"methods": "nobody"}, "dpal, securesgd, adlm, pixeldp, plain. Fix"),
        ({"methods": "atn"}, "Fix: see `privet study transdenoiser`"),
        ({"set": "plain.foo=1"}, "attacker, augment"),
        ({"set": "plain.attacker_data=1"}, "unknown setting of 'plain'"),
        ({"methods": "plain,plain"}, "each one once"),
        ({"epsilons": "1,0"}, "bad epsilon"),
        ({"epsilons": "1,x"}, "bad epsilons"),
        ({"epsilons": ""}, "no epsilons"),
        ({"delta": "2"}, "bad delta"),
        ({"seeds": "0,a"}, "bad seeds"),
        ({"seeds": "0,0"}, "bad seeds"),
        ({"attack_size": "0.4"}, "one of 0.05, 0.1"),
        ({"epsilon": "7"}, "one of 0.2, 0.5, 1, 2"),
        ({"sizes": "0,0.1"}, "bad sizes"),
        ({"eot": "3"}, "at least 20"),
        ({"set": "plain.epoch=1"}, "did you mean 'epochs'"),
        ({"set": "plain.epochs=many"}, "bad epochs"),
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


def test_the_results_go_to_stdout_and_the_study_is_charged_to_itself(tmp_path, capsys):
    assert run(*small(), "--out", tmp_path / "study", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "study" / "results.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["plain"]
    assert (told["attack_size"], told["epsilon"]) == (0.1, 1.0)
    assert told["together"]["without_proof"] == 2
    assert told["command"].startswith("privet study robust-private --data digits --out ")
    assert "--set all.model=linear --set all.epochs=1" in told["command"]
    assert "--json" not in told["command"]
    assert not (tmp_path / "home").exists()  # the user's own ledger
    assert {"index.html", "table.md", "ledger.db", "accuracy_by_size.svg"} <= {
        path.name for path in (tmp_path / "study").iterdir()
    }


def test_what_people_see(tmp_path, capsys):
    assert run(*small(), "--out", tmp_path / "study") == 0
    shown = capsys.readouterr().out
    assert "0.1 (0.2 on [-1, 1])" in shown
    assert "leak more than each" in shown
    assert "index.html" in shown


def test_help_teaches(capsys):
    assert run("study", "robust-private", "--help") == 0
    text = capsys.readouterr().out
    for said in ("Stopped? Repeat the command", "public data only", "--set", "stobatch:paper"):
        assert said in text


def test_a_killed_process_goes_on(tmp_path):
    """SIGKILL in the second training; the first one is not repeated, by the ledger and by time."""
    study, slow = tmp_path / "study", ["--set", "plain.epochs=100"]
    arguments = small(*slow, "--set", "all.checkpoint_every=5", "--out", study)
    process = start(arguments, tmp_path / "home")
    checkpoint = study / "cells" / "plain-none-seed1" / "release" / "internal" / "checkpoint.pt"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert checkpoint.exists()
    first = study / "cells" / "plain-none-seed0" / "release" / "weights.safetensors"
    before = first.stat().st_mtime_ns
    outcome = privet(*arguments, "--json", home=tmp_path / "home")
    assert outcome.code == 0, outcome.err
    assert first.stat().st_mtime_ns == before
    hows = [
        json.loads((study / "cells" / f"plain-none-seed{s}" / "cell.json").read_text())["training"]
        for s in (0, 1)
    ]
    assert [how["how"] for how in hows] == ["trained", "resumed"]
    with closing(Ledger(study / "ledger.db")) as ledger:
        assert len(ledger.account("digits").runs) == 2
