"""`privet study transdenoiser` from the command line."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import run
from privet.attacks import judging

OPTIONS = {
    "--data": "digits",
    "--contenders": "dpcert",
    "--epsilons": "3",
    "--seeds": "0",
    "--attacks": "fgsm",
    "--norms": "0.5,3",
    "--examples": "10",
    "--n": "60",
    "--radii": "0.1",
}
SMALL = [
    *("--set", "all.epochs=1", "--set", "all.denoiser=unet-4", "--set", "all.batch=180"),
    *(
        "--set",
        "classifier.model=linear",
        "--set",
        "dpcert.model=linear",
        "--set",
        "dpcert.batch=719",
    ),
]


def small(*options, **changed):
    """A study of seconds; `changed` are options in place of its own."""
    chosen = OPTIONS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    words = [word for pair in chosen.items() for word in pair]
    return ["study", "transdenoiser", *words, *SMALL, *options]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "mine.toml"}, "public records only"),
        ({"data": "digits/first"}, "halves the data itself"),
        ({"contenders": "td-2"}, "did you mean 'td-1'"),
        ({"contenders": "dpcert,dpcert"}, "each one once"),
        ({"epsilons": "0"}, "bad epsilon"),
        ({"epsilons": ""}, "no epsilons"),
        ({"epsilon": "2"}, "one of 3"),
        ({"radius": "0.3"}, "one of 0.1"),
        ({"attack_norm": "1"}, "one of 0.5, 3"),
        ({"sigma": "0"}, "bad sigma"),
        ({"norms": "0,1"}, "bad sizes"),
        ({"eot": "3"}, "at least 20"),
        ({"seeds": "0,0"}, "bad seeds"),
        ({"set": "td.epochs=1"}, "does not take part"),
        ({"set": "dpcert.input_noise=1"}, "--sigma"),
        ({"set": "public-denoiser.denoiser=conv"}, "not made for such images"),
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


def test_results_go_to_stdout_and_a_second_time_to_people(tmp_path, capsys, monkeypatch):
    """The second time nothing is trained; the study is charged to itself."""
    judging._enough()  # kept for the whole process, which has other tests: of all draws
    monkeypatch.setattr(judging, "MOST", 40)  # a thousand take a minute
    study = tmp_path / "study"
    assert run(*small(), "--out", study, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((study / "results.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["classifier", "public-denoiser", "dpcert"]
    assert (told["epsilon"], told["radius"], told["attack_norm"]) == (3.0, 0.1, 3.0)
    assert (told["together"]["trainings"], told["together"]["without_proof"]) == (1, 0)
    assert told["command"].startswith("privet study transdenoiser --data digits --out ")
    assert not (tmp_path / "home" / "ledger.db").exists()  # the user's own
    assert {"index.html", "table.md", "figures.csv", "ledger.db"} <= {
        path.name for path in study.iterdir()
    }
    before = {path: path.stat().st_mtime_ns for path in study.glob("cells/*/*.npz")}
    assert run(*small(), "--out", study) == 0
    shown = capsys.readouterr().out
    for said in ("public-denoiser", "gain", "EOT", "leak more than each", "index.html"):
        assert said in shown
    assert before == {path: path.stat().st_mtime_ns for path in study.glob("cells/*/*.npz")}


def test_help_teaches(capsys):
    assert run("study", "transdenoiser", "--help") == 0
    text = capsys.readouterr().out
    for said in ("Stopped? Repeat the command", "DATA/first", "--sigma", "paper-inp_0.1"):
        assert said in text


def test_what_a_run_finds_itself_is_not_offered():
    from privet.studies.transdenoiser.contenders import chosen
    from privet.training.registry import FOUND

    assert all(not one.options & FOUND for one in chosen())
