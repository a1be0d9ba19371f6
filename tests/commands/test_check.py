import json
import sys
from pathlib import Path

import pytest

from privet import cli

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import privet

CORPUS = Path(__file__).parents[1] / "audits" / "static_corpus"
DOUBTFUL = f"{CORPUS / 'reused_noise.py'}:doubtful_torch"
RIGHT = f"{CORPUS / 'right_trainers.py'}"
WRONG = f"{CORPUS / 'mutants.py'}:mutant_shuffled"


def check(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main(["check", *map(str, arguments)])
    return end.value.code


def test_a_wrong_finding_says_what_why_and_how_to_mend_it(capsys):
    assert check(WRONG) == 1
    told = capsys.readouterr().out
    assert "wrong sampler-vs-accountant" in told
    assert "mutants.py:83" in told
    assert "`DataLoader(records, batch_size=600, shuffle=True)`" in told
    assert "Mend it: " in told
    assert "1 wrong, 0 in doubt, 0 allowed" in told


@pytest.mark.parametrize(
    ("target", "says"), [(DOUBTFUL, "0 wrong, 1 in doubt"), (RIGHT, "nothing found")]
)
def test_doubts_and_silence_leave_exit_code_0(target, says, capsys):
    assert check(target) == 0
    told = capsys.readouterr().out
    assert says in told
    assert "no proof" in told


def test_json_is_alone_on_stdout(capsys):
    assert check(WRONG, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert told["allowed"] == []
    (finding,) = told["findings"]
    assert finding.keys() == {"file", "line", "rule", "severity", "what", "why", "fix"}
    assert (finding["line"], finding["rule"], finding["severity"]) == (
        83,
        "sampler-vs-accountant",
        "wrong",
    )


def test_an_accepted_finding_is_listed_with_its_reason(tmp_path, capsys):
    text = (CORPUS / "mutants.py").read_text().splitlines()
    text[82] += "  # privet: allow sampler-vs-accountant because it is a toy"
    (tmp_path / "toy.py").write_text("\n".join(text))
    target = f"{tmp_path / 'toy.py'}:mutant_shuffled"
    assert check(target) == 0
    assert "allowed sampler-vs-accountant, because it is a toy" in capsys.readouterr().out
    assert check(target, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [a["reason"] for a in told["allowed"]] == ["it is a toy"]
    assert told["ok"] is True


def test_the_real_command_runs_in_the_users_folder_and_never_runs_the_code(tmp_path):
    (tmp_path / "mine").mkdir()
    loud = "raise SystemExit('was run')\n" + (CORPUS / "mutants.py").read_text()
    (tmp_path / "mine" / "code.py").write_text(loud)
    outcome = privet("check", "mine.code:mutant_batch_norm", home=tmp_path / "h", cwd=tmp_path)
    assert outcome.code == 1
    assert "mine/code.py:104" in outcome.out
    assert "was run" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("target", "says"), [("release", "privet verify FOLDER"), ("bad.py", "not Python")]
)
def test_a_folder_is_sent_to_verify_and_bad_code_is_one_line(
    target, says, tmp_path, monkeypatch, capsys
):
    (tmp_path / "release").mkdir()
    (tmp_path / "bad.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    assert check(target) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
