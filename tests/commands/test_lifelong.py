"""`privet lifelong` on the command line."""

import json

import pytest

from privet.cli import main
from privet.release import Release


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


QUICK = ("--n-tasks", "2", "--records", "100", "--model", "linear", "--epochs", "1")


def test_a_stream_from_start_to_verified_versions(capsys, tmp_path):
    out = tmp_path / "life"
    target = ("--epsilon", "3", "--horizon", "3", "--out", str(out))
    code, said, _ = run(capsys, "lifelong", "fit", "l2dp", *QUICK, *target, "--json")
    assert code == 0
    found = json.loads(said)
    assert found["versions"] == ["01", "02"]
    assert [len(row) for row in found["accuracy"]] == [1, 2]
    assert found["privacy"] == [
        "proved (ε = 3, δ = 1e-05), adding or removing one example, for its whole lifetime"
    ]
    assert (out / "accuracy.svg").read_bytes().startswith(b"<?xml")
    assert run(capsys, "verify", str(out / "versions" / "02"))[0] == 0
    code, said, _ = run(capsys, "lifelong", "extend", str(out), "--n-tasks", "3")
    assert code == 0
    assert "version 03" in said
    assert Release.load(out / "versions" / "03").privacy.epsilon <= 3.003
    code, said, _ = run(capsys, "lifelong", "show", str(out))
    assert code == 0
    assert "forgetting" in said
    code, _, said = run(capsys, "lifelong", "show", str(out / "versions" / "02"))
    assert (code, f"it is in {out}" in said) == (2, True)


def test_as_published_the_epsilon_is_a_claim(capsys, tmp_path):
    out = tmp_path / "life"
    words = ("--analysis", "paper", "--n-tasks", "2", "--records", "60", "--epochs", "1")
    fit = ("lifelong", "fit", "l2dp", *words)
    code, said, _ = run(capsys, *fit, "--epsilon", "1", "--out", str(out), "--json")
    assert code == 0
    found = json.loads(said)
    assert found["analysis"] == "paper"
    (line,) = found["privacy"]
    assert line.startswith("claimed (ε = 1, δ = 0), replacing one example")
    assert "refuted" in line
    assert run(capsys, "verify", str(out / "versions" / "02"))[0] == 0
    assert run(capsys, "lifelong", "extend", str(out), "--n-tasks", "3")[0] == 0
    code, said, _ = run(capsys, "lifelong", "show", str(out))
    assert (code, "version 03" in said, "paper analysis" in said) == (0, True, True)
    agem = (*fit, "--variant", "agem", "--out", str(tmp_path / "agem"))
    code, said, _ = run(capsys, *agem, "--json")
    assert (code, json.loads(said)["privacy"]) == (0, [])
    code, _, said = run(capsys, *agem, "--epsilon", "1")
    assert code == 2
    assert "takes no target" in said


def test_resume_knows_a_stream(capsys, tmp_path):
    out = tmp_path / "life"
    run(capsys, "lifelong", "fit", "agem", *QUICK, "--out", str(out))
    for folder in (out, out / "versions" / "02"):
        code, _, said = run(capsys, "resume", str(folder))
        assert code == 2
        assert f"privet lifelong extend {out}" in said


def test_more_tasks_that_would_cut_the_records_anew_are_refused(capsys, tmp_path):
    out = str(tmp_path / "life")
    run(capsys, "lifelong", "fit", "agem", "--n-tasks", "2", "--epochs", "1",
        "--model", "linear", "--out", out)  # fmt: skip
    code, _, said = run(capsys, "lifelong", "extend", out, "--n-tasks", "3")
    assert code == 2
    assert "--records" in said


def test_a_version_is_attacked_on_its_own_task_and_a_stream_is_no_release(capsys, tmp_path):
    out = tmp_path / "life"
    run(capsys, "lifelong", "fit", "agem", *QUICK, "--task-seed", "5", "--out", str(out))
    accuracy = json.loads((out / "scores.json").read_text())["accuracy"]
    words = ("--attacks", "fgsm", "--sizes", "0.01", "--json")
    for number in (1, 2):
        code, said, _ = run(capsys, "attack", str(out / "versions" / f"{number:02d}"), *words)
        assert code == 0
        found = json.loads(said)
        assert found["data"] == f"permuted-digits-2x100/{number}"
        assert found["clean_accuracy"] == pytest.approx(accuracy[number - 1][number - 1])
    for verb in (("verify", str(out)), ("attack", str(out), *words), ("export", str(out), "x")):
        code, _, said = run(capsys, *verb)
        assert (code, f"name one of {out}/versions" in said) == (2, True)


def test_a_version_away_from_its_stream_needs_to_be_told_its_data(capsys, tmp_path):
    out = tmp_path / "life"
    run(capsys, "lifelong", "fit", "agem", *QUICK, "--out", str(out))
    run(capsys, "export", str(out / "versions" / "01"), str(tmp_path / "01"))
    code, _, said = run(capsys, "attack", str(tmp_path / "01"), "--sizes", "0.1")
    assert (code, "say which data: --data" in said) == (2, True)


@pytest.mark.parametrize("lost", ["internal/life.json", "scores.json"])
def test_a_file_without_its_fields_is_one_line(capsys, tmp_path, lost):
    out = tmp_path / "life"
    run(capsys, "lifelong", "fit", "agem", *QUICK, "--out", str(out))
    (out / lost).write_text("{}")
    code, _, said = run(capsys, "lifelong", "show", str(out))
    assert (code, "incomplete JSON" in said, said.count("\n")) == (2, True, 1)


def test_nothing_to_learn_is_told_and_no_version_is_taken_back(capsys, tmp_path):
    out = str(tmp_path / "life")
    run(capsys, "lifelong", "fit", "agem", *QUICK, "--out", out)
    code, said, told = run(capsys, "lifelong", "extend", out)
    assert (code, "version 02" in said) == (0, True)
    assert told == "privet: nothing new: all 2 tasks were learned before\n"
    code, _, told = run(capsys, "lifelong", "extend", out, "--n-tasks", "1")
    assert (code, "fewer tasks than were learned: got 1" in told) == (2, True)


def test_listings(capsys):
    code, said, _ = run(capsys, "lifelong", "methods", "--json")
    assert code == 0
    analyses = {row["name"]: row["analyses"] for row in json.loads(said)}
    assert set(analyses) == {"l2dp", "dpsgd-agem", "agem", "er", "ewc", "naive", "joint"}
    assert (analyses["l2dp"], analyses["agem"]) == (["sound", "paper"], ["none"])
    code, said, _ = run(capsys, "lifelong", "streams", "--json")
    assert code == 0
    assert {"permuted-digits", "hapt-rates"} <= {row["name"] for row in json.loads(said)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "l2dp", "--out", "x"), "no privacy target"),
        (("fit", "l2dp", "--epsilon", "0", "--out", "x"), "epsilon"),
        (("fit", "l2dp", "--epsilon", "2", "--delta", "1", "--out", "x"), "delta"),
        (("fit", "l2dp", "--epsilon", "2", "--tasks", "permuted", "--out", "x"), "unknown stream"),
        (("fit", "nope", "--epsilon", "2", "--out", "x"), "unknown method"),
        (("fit", "l2dp", "--epsilon", "2", "--ridge", "1", "--out", "x"), "--memory objective"),
        (("fit", "l2dp", "--variant", "agem", "--out", "x"), "it with l2dp --analysis paper"),
        (
            ("fit", "naive", "--epsilon", "2", "--projection", "always", "--out", "x"),
            "it with l2dp --analysis paper",
        ),
        (
            ("fit", "l2dp", "--epsilon", "2", "--tasks", "split-digits", "--shared", "--out", "x"),
            "leave --shared out",
        ),
        (("extend", "nowhere"), "no stream was begun"),
        (("show", "nowhere"), "no stream was begun"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "lifelong", *words)
    assert code == 2
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
