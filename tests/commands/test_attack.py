import json
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from privet import cli

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import privet


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases") / "digits"
    outcome = privet(
        "train", "dpsgd", "--data", "digits", "--epsilon", "3", "--epochs", "5",
        "--model", "linear", "--out", folder, home=tmp_path_factory.mktemp("home"),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    return folder


def attack(*options):
    with pytest.raises(SystemExit) as end:
        cli.main(["attack", *map(str, options)])
    return end.value.code


def test_figures_go_to_the_table_and_to_the_folder(release, tmp_path, capsys):
    options = ["--attacks", "fgsm,pgd", "--sizes", "0.1,0.05", "--examples", "50", "--steps", "5"]
    assert attack(release, *options, "--out", tmp_path / "new") == 0
    told = capsys.readouterr().out
    kept = json.loads((tmp_path / "new" / "attack.json").read_text())
    assert kept["examples"] == 50
    assert kept["sizes"] == [0.05, 0.1]
    assert kept["data"] == "digits"
    assert [row["attack"] for row in kept["attacks"]] == ["fgsm", "pgd"]
    assert kept["attacks"][1]["settings"]["steps"] == 5
    for share in (kept["clean_accuracy"], *kept["robust_accuracy"]):
        assert f"{100 * share:.1f} %" in told
    lines = (tmp_path / "new" / "attack.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 3
    assert (tmp_path / "new" / "attack.svg").read_bytes().startswith(b"<?xml")


def test_weights_that_were_changed_are_told_and_attacked(release, tmp_path, capsys):
    copy = shutil.copytree(release, tmp_path / "copy")
    weights = load_file(copy / "weights.safetensors")
    save_file({k: 2 * v for k, v in weights.items()}, copy / "weights.safetensors")
    options = ["--attacks", "fgsm", "--sizes", "0.1", "--examples", "20", "--json"]
    warning = "privet: the release's files are not those of its manifest: privet verify"
    for folder, expected in ((release, []), (copy, [f"{warning} {copy} says which"])):
        assert attack(folder, *options) == 0
        told = capsys.readouterr()
        assert json.loads(told.out)["examples"] == 20
        assert told.err.splitlines() == expected


def test_json_is_alone_on_stdout_and_says_what_the_api_finds(release, capsys):
    import privet as library

    assert attack(release, "--attacks", "fgsm", "--sizes", "0.1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    data = library.data.load("digits")
    x = data.bounds.clamp_and_scale(data.test.x)
    found = library.attack("fgsm", release, x, data.test.y, sizes=0.1)
    assert told["examples"] == len(data.test)
    assert told["robust_accuracy"] == [found.robust_accuracy[0.1]]
    trained = json.loads((release / "trust.json").read_text())["utility"]["test_accuracy"]
    assert told["clean_accuracy"] == pytest.approx(trained)


def test_figures_of_private_records_are_marked(release, tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    import privet.data

    public = privet.data.load
    monkeypatch.setattr(privet.data, "load", lambda *a: replace(public(*a), test_is_public=False))
    assert attack(release, "--attacks", "fgsm", "--sizes", "0.1", "--examples", "9") == 0
    assert "private test records: not for release" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attacks", "bim"], "did you mean 'ifgsm'"),
        (["--attacks", "cw", "--norm", "l1"], "cw does not work in this norm"),
        (["--attacks", ","], "bad list of attacks"),
        (["--norm", "l3"], "unknown norm"),
        (["--sizes", "a"], "separated by commas"),
        (["--sizes", "-1"], "bad sizes"),
        (["--sizes", ""], "bad sizes"),
        (["--examples", "0"], "bad number of examples"),
        (["--steps", "0"], "bad steps"),
        (["--eot", "0"], "bad eot"),
        (["--device", "tpu"], "no such device"),
        (["--data", "digit"], "did you mean 'digits'"),
        (["--attacks", "fgsm", "--epochs", "3"], "epochs of no network"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, said, release, tmp_path, capsys):
    given = ([] if "--sizes" in options else ["--sizes", "0.1"]) + options
    assert attack(release, *given, "--out", tmp_path / "new") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.strip().splitlines()) == 1
    assert said in told.err
    assert not (tmp_path / "new").exists()


def test_noise_of_its_own_that_is_not_there_is_refused_in_words_of_attack(release, capsys):
    assert attack(release, "--sizes", "0.1", "--scale", "own") == 2
    told = capsys.readouterr().err
    assert "no noise on its inputs to attack it behind: got --scale own of a release by" in told
    assert "Fix: leave --scale out" in told
    assert "hidden" not in told
    assert "radii" not in told


def test_figures_that_are_there_are_kept(release, tmp_path):
    asked = ("--attacks", "fgsm", "--examples", "9", "--out", tmp_path)
    sizes = ["0.1", "0.2", "0.3"]
    for size in sizes:
        assert attack(release, *asked, "--sizes", size) == 0
    files = ["attack.json.1", "attack.json.2", "attack.json"]
    kept = [json.loads((tmp_path / name).read_text())["sizes"] for name in files]
    assert kept == [[float(size)] for size in sizes]


def test_a_folder_without_a_release_is_refused(tmp_path, capsys):
    assert attack(tmp_path / "none", "--sizes", "0.1") == 2
    assert "no such release" in capsys.readouterr().err


def test_other_data_are_refused(release, make_data, capsys, monkeypatch):
    import privet.data

    monkeypatch.setattr(privet.data, "load", lambda *_: make_data())
    assert attack(release, "--sizes", "0.1") == 2
    assert "the data do not fit the release: got 'made-up'" in capsys.readouterr().err
