"""`privet federate` on the command line."""

import csv
import json
import signal
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import card, privet, run, start

QUICK = ("--data", "digits", "--clients", "20", "--model", "linear", "--local-epochs", "1")


def weights(folder):
    return safetensors.torch.load_file(folder / "weights.safetensors")


def test_from_a_population_to_a_verified_release(capsys, tmp_path):
    out = tmp_path / "run"
    words = (*QUICK, "--rounds", "5", "--epsilon", "8", "--times", "2", "--out", str(out))
    assert run("federate", "simulate", "flsys", *words) == 0
    said = capsys.readouterr().out
    assert "a client in at most 2" in said
    assert "adding or removing one client" in " ".join(said.split())
    assert run("verify", str(out)) == 0
    assert "2 turns of a client charged" in capsys.readouterr().out
    assert run("federate", "show", str(out)) == 0
    said = capsys.readouterr().out
    assert "clients chose themselves; had a server asked each with chance" in said
    assert "40 taken" in said
    assert (out / "internal" / "rounds.svg").read_bytes().startswith(b"<?xml")
    assert run("export", str(out), str(tmp_path / "handover")) == 0
    assert not (tmp_path / "handover" / "internal").exists()


def test_json_is_the_card_and_nothing_else(capsys, tmp_path):
    words = (*QUICK, "--rounds", "2", "--out", str(tmp_path / "run"), "--json")
    assert run("federate", "simulate", "flsys", *words) == 0
    assert json.loads(capsys.readouterr().out) == card(tmp_path / "run")
    assert run("federate", "show", str(tmp_path / "run"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [reading["round"] for reading in found["rounds"]] == [1, 2]


def test_traces_are_written_edited_and_read(capsys, tmp_path):
    file = tmp_path / "phones.csv"
    assert run("federate", "traces", "--out", file, "--clients", "20", "--days", "9") == 0
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["client"] for row in rows} == {str(client) for client in range(20)}
    # Phone 3 is thrown away: it never trains again.
    kept = [row for row in rows if row["client"] != "3"]
    edited = tmp_path / "edited.csv"
    with edited.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, rows[0].keys())
        writer.writeheader()
        writer.writerows(kept)
    out = tmp_path / "run"
    words = (*QUICK, "--rounds", "3", "--seconds", "86400", "--traces", edited, "--out", out)
    assert run("federate", "simulate", "flsys", *words) == 0
    capsys.readouterr()
    assert run("federate", "show", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["clients_that_took_part"] == 19
    assert run("federate", "traces", "--out", file) == 2
    assert run("federate", "traces", "--out", tmp_path / "none.csv", "--clients", "0") == 2
    assert "the file exists" in capsys.readouterr().err
    (out / "internal" / "rounds.json").write_text("{}")
    assert run("federate", "show", out) == 2
    assert "incomplete JSON" in capsys.readouterr().err


def test_a_killed_simulation_goes_on_by_resume(tmp_path):
    """Kill -9 through the real command line; an undisturbed run is the oracle."""
    words = (*QUICK, "--rounds", "60", "--epsilon", "8", "--checkpoint-every", "7")
    words += ("--looks", "2", "--noise-seed", "3")
    fit = ["federate", "simulate", "flsys", *words]
    process = start([*fit, "--out", tmp_path / "cut"], tmp_path / "a")
    journal, end = tmp_path / "cut" / "internal" / "steps.log", time.monotonic() + 120
    while not journal.exists() or journal.read_text().count("\n") < 20:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "cut" / "manifest.json").exists()
    unfinished = privet("verify", tmp_path / "cut", home=tmp_path / "a")
    assert (unfinished.code, "privet resume" in unfinished.err) == (2, True)
    resumed = privet("resume", tmp_path / "cut", home=tmp_path / "a")
    assert resumed.code == 0, resumed.err
    assert f"privet federate show {tmp_path / 'cut'}" in resumed.out
    whole = privet(*fit, "--out", tmp_path / "whole", home=tmp_path / "b")
    assert whole.code == 0, whole.err
    one, other = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_rules_are_listed_with_what_they_allow(capsys):
    assert run("federate", "rules", "--json") == 0
    allows = {rule["name"]: rule["allows"] for rule in json.loads(capsys.readouterr().out)}
    assert "neither --epsilon nor secure aggregation" in allows["krum"]
    assert allows["fedbuff"].endswith("; --epsilon")
    assert allows["flsys"].endswith("--epsilon and secure aggregation")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("krum", "--epsilon", "8"), "one update can move the result at will"),
        (("fedbuff", "--buffer", "21"), "a buffer of more clients than there are"),
        (("flsys", "--epsilon", "0"), "epsilon"),
        (("flsys", "--epsilon", "8", "--delta", "1"), "delta"),
        (("flsys", "--times", "2"), "details of privacy without a target"),
        (("flsys", "--rate", "0.1"), "no such setting"),
        (("fedsgd",), "unknown rule"),
        (("flsys", "--pool", "5", "--epsilon", "8"), "--public-pool"),
        (("flsys", "--traces", "nowhere.csv"), "no such file of traces"),
        (("flsys", "--rate", "0.2", "--epsilon", "3"), "no such setting: got rate"),
        (("flsys", "--clip", "3"), "details of privacy without a target"),
        (("flsys", "--clip", "1"), "details of privacy without a target: got clip"),
        (("flsys", "--delta", "1e-5"), "details of privacy without a target: got delta"),
        (("fedavg", "--cohort", "0"), "at least 1"),
        (("flsys", "--dropout", "1"), "bad dropout"),
        (("flsys", "--clients", "2000"), "bad number of clients"),
        (("flsys", "--epsilon", "8", "--apart", "2", "--bands", "3"), "at most 2 bands"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(capsys, tmp_path, words, said):
    quick = (*QUICK[:2], *(() if "--clients" in words else QUICK[2:4]), *QUICK[4:])
    out = ("--rounds", "4", "--out", tmp_path / "run")
    assert run("federate", "simulate", *words, *quick, *out) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_simulation_is_bad_input(capsys, tmp_path):
    assert run("federate", "show", tmp_path) == 2
    assert "no simulation is there" in capsys.readouterr().err
