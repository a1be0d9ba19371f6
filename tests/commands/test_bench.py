import json

import pytest

from privet import cli


def bench(*options):
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "dpsgd", *map(str, options)])
    return end.value.code


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--models", "cn"], "did you mean 'cnn'"),
        (["--peers", "opacus"], "expected one of plain-best, opacus-hooks"),
        (["--batches", "0"], "bad batches"),
        (["--batches", "a,b"], "separated by commas"),
        (["--batches", "70000"], "1 to 60000"),
        (["--rounds", "0"], "bad number of rounds"),
        (["--precision", "tf32"], "expected a CUDA device"),
        (["--precision", "half"], "one of float32, tf32, bf16"),
        (["--device", "tpu"], "cpu or cuda"),
        (["--models", ""], "no model"),
        (["--growth", "--models", "cnn"], "growth has models of its own"),
        (["--threads", "100000"], "bad number of threads"),
        (["--out", "/dev/null"], "results cannot be kept there"),
        (["--out", "/dev/null/x"], "results cannot be kept there"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert bench(*options) == 2
    message = capsys.readouterr().err.strip()
    assert said in message
    assert message.startswith("privet: ")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tiny_only(monkeypatch):
    """The smallest network in place of the benchmark's."""
    from privet.studies.private_step import workloads

    tiny = workloads.by_name("cnn-tiny", (1, 8, 8))
    monkeypatch.setattr(workloads, "workloads", lambda: {"cnn-tiny": tiny})


def test_the_record_goes_where_it_is_told_and_to_stdout(tiny_only, tmp_path, capsys):
    options = ["--models", "cnn-tiny", "--peers", "vmap", "--batches", "8", "--rounds", "2"]
    assert bench(*options, "--out", tmp_path / "new", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "new" / "dpsgd_step_cnn-tiny_cpu.json").read_text())
    assert told["command"] == (
        "privet bench dpsgd --batches 8 --rounds 2 --device cpu --cell-seconds 60"
        " --precision float32 --models cnn-tiny --peers vmap"
    )
    assert {"versions", "hardware", "threads", "precision", "memory", "parity"} <= set(told)
    assert [row["contestant"] for row in told["cells"]] == ["plain", "privet", "vmap"]


def test_by_default_it_goes_to_the_current_folder(tiny_only, tmp_path, monkeypatch, capsys):
    """Published figures of a checkout are not overwritten; the command can be given again."""
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert bench("--models", "cnn-tiny", "--peers", "", "--batches", "8", "--rounds", "1") == 0
    assert list((tmp_path / "benchmarks" / "results").iterdir()) == []
    assert (tmp_path / "dpsgd_step_cnn-tiny_cpu.svg").exists()
    assert "as in training" in capsys.readouterr().out
    command = json.loads((tmp_path / "dpsgd_step_cnn-tiny_cpu.json").read_text())["command"]
    assert command.endswith("--models cnn-tiny --peers ''")


def test_a_wrong_sum_ends_with_code_1_and_no_record(tiny_only, tmp_path, monkeypatch, capsys):
    from privet.studies.private_step import contestants

    right = contestants.make_clipper
    monkeypatch.setattr(
        contestants,
        "make_clipper",
        lambda model, loss, c, **more: right(model, loss, c, **more).with_clip_norm(0.5 * c),
    )
    options = ["--models", "cnn-tiny", "--peers", "", "--batches", "8", "--rounds", "1"]
    assert bench(*options, "--out", tmp_path / "new") == 1
    assert "nothing was timed" in capsys.readouterr().err
    assert list((tmp_path / "new").iterdir()) == []


def test_help_teaches(capsys):
    assert bench("--help") == 0
    told = capsys.readouterr().out
    assert "autograd" in told
    assert "Example: privet bench dpsgd" in told


def test_runs_on_other_models_do_not_overwrite_each_other():
    from privet.commands.bench import MODELS, PEERS, _name
    from privet.studies.private_step.contestants import PEERS as ALL
    from privet.studies.private_step.workloads import workloads

    assert _name(MODELS, growth=False) == "dpsgd_step"
    assert _name("cnn,lstm", growth=False) == "dpsgd_step_cnn_lstm"
    assert _name("cnn", growth=True) == "dpsgd_growth"
    assert MODELS.split(",") == list(workloads())  # the help names all of them
    assert PEERS.split(",") == list(ALL)


def test_audits_are_recorded_and_told(tmp_path, monkeypatch, capsys):
    from privet.audits.registry import subjects
    from privet.studies.audit_power import study

    some = {name: subjects()[name] for name in ("gaussian", "reused-noise")}
    monkeypatch.setattr(study, "subjects", lambda: some)
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "audits", "--share", "0.02", "--out", str(tmp_path), "--json"])
    assert end.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "audit_power.json").read_text())
    assert told["command"] == "privet bench audits --share 0.02 --seed 0"
    assert {"power", "false_alarms", "subjects", "versions", "hardware"} <= set(told)
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "audits", "--share", "2"])
    assert end.value.code == 2
    assert "bad share" in capsys.readouterr().err
