"""Kill -9 in the middle of training, through the real command line."""

import contextlib
import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import privet, start
from privet.data.dataset import LearnedFact, Split
from privet.engine.account import RunAccount
from privet.engine.checkpoint import load_checkpoint
from privet.engine.origin import Origin
from privet.errors import CheckFailed, InputError
from privet.ledger import Ledger
from privet.release import Release
from privet.training import dpsgd, train
from privet.training.run_folder import RunFolder
from privet.verification import verify

QUICK = ["--data", "digits", "--epsilon", "3", "--model", "linear", "--epochs", "60",
         "--checkpoint-every", "40"]  # fmt: skip
STEPS = 300


def weights(folder):
    return safetensors.torch.load_file(folder / "weights.safetensors")


def same_weights(one, other):
    first, second = weights(one), weights(other)
    return all(torch.equal(first[name], second[name]) for name in first)


def train_and_kill(folder, home, *options, after_steps):
    """Start training, kill -9 once `after_steps` updates are in the journal."""
    process = start(["train", "dpsgd", *QUICK, *options, "--out", folder], home)
    journal, deadline = folder / "internal" / "steps.log", time.monotonic() + 120
    while time.monotonic() < deadline:
        if journal.exists() and journal.read_text().count("\n") >= after_steps:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "manifest.json").exists()
    return journal.read_text().count("\n")


def runs(home):
    return privet("ledger", "show", "digits", "--json", home=home).json[0]["runs"]


def test_a_killed_run_repeats_its_lost_steps_exactly_and_free_of_charge(tmp_path):
    """With known noise, an undisturbed run is the oracle: the weights are equal bit for bit."""
    seed = ["--noise-seed", "7"]
    done = train_and_kill(tmp_path / "killed", tmp_path / "a", *seed, after_steps=50)
    assert 50 <= done < STEPS
    resumed = privet("resume", tmp_path / "killed", "--json", home=tmp_path / "a")
    assert resumed.code == 0, resumed.err
    assert resumed.json["mechanism"]["redone_steps"] == 0
    undisturbed = privet(
        "train", "dpsgd", *QUICK, *seed, "--out", tmp_path / "whole", home=tmp_path / "b"
    )
    assert undisturbed.code == 0, undisturbed.err
    assert same_weights(tmp_path / "killed", tmp_path / "whole")


def test_with_kept_keys_the_guarantee_is_as_planned(tmp_path):
    train_and_kill(tmp_path / "run", tmp_path / "home", after_steps=50)
    (before,) = runs(tmp_path / "home")
    assert before["status"] == "open"
    assert 50 <= before["charged"] <= STEPS
    card = privet("resume", tmp_path / "run", "--json", home=tmp_path / "home").json
    assert card["mechanism"]["redone_steps"] == 0
    assert 2.99 < card["privacy"][0]["epsilon"] <= 3.0
    (after,) = runs(tmp_path / "home")
    assert (after["status"], after["charged"], after["redone"]) == ("settled", STEPS, 0)
    assert privet("verify", tmp_path / "run", home=tmp_path / "home").code == 0
    assert not (tmp_path / "run" / "internal" / "checkpoint.pt").exists()


def test_without_keys_every_redone_step_is_charged_again(tmp_path):
    done = train_and_kill(tmp_path / "run", tmp_path / "home", "--no-keep-keys", after_steps=50)
    checkpoint = done // 40 * 40
    keys = torch.load(tmp_path / "run" / "internal" / "checkpoint.pt", weights_only=True)["keys"]
    assert keys is None
    card = privet("resume", tmp_path / "run", "--json", home=tmp_path / "home").json
    assert card["mechanism"]["redone_steps"] == done - checkpoint > 0
    assert card["events"][-1]["event"]["count"] == STEPS + done - checkpoint
    assert card["privacy"][0]["epsilon"] > 3.0
    (run,) = runs(tmp_path / "home")
    assert (run["charged"], run["redone"]) == (STEPS, done - checkpoint)
    assert privet("verify", tmp_path / "run", home=tmp_path / "home").code == 0


@pytest.mark.parametrize("moment", ["settle", "forget_keys", "save"])
def test_a_run_killed_while_it_is_handed_over_can_be_resumed(
    tmp_path, make_data, monkeypatch, moment
):
    """The process dies just before the ledger is settled, the keys are deleted, or in saving."""
    homes = {"settle": RunAccount, "forget_keys": RunFolder, "save": Release}

    def die(*_):
        raise KeyboardInterrupt

    data, book = make_data(), Ledger(tmp_path / "ledger.db")
    options = {"epsilon": 3.0, "epochs": 2, "model": "linear", "ledger": book}
    with monkeypatch.context() as patch:
        patch.setattr(homes[moment], moment, die)
        with pytest.raises(KeyboardInterrupt):
            train("dpsgd", data, out=tmp_path / "run", **options)
    release = dpsgd.resume(tmp_path / "run", data, ledger=book)
    assert release.trust["mechanism"]["redone_steps"] == 0
    assert release.privacy.epsilon <= 3.0
    assert not (tmp_path / "run" / "internal" / "checkpoint.pt").exists()
    assert verify(tmp_path / "run", ledger=book).ok
    (run,) = book.account("made-up").runs
    assert (run.status, run.charged) == ("settled", release.trust["mechanism"]["steps"])
    with pytest.raises(InputError, match="finished"):
        dpsgd.resume(tmp_path / "run", data, ledger=book)
    book.close()


@pytest.fixture
def interrupted(tmp_path, make_data):
    """A run that stopped after 12 of its steps, with a checkpoint at 5."""
    data, book = make_data(), Ledger(tmp_path / "ledger.db")

    def stop(trainer):
        if trainer.next_step == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            "dpsgd", data, epsilon=3.0, epochs=4, model="linear", checkpoint_every=10, ledger=book,
            out=tmp_path / "run", watch=stop,
        )  # fmt: skip
    yield tmp_path / "run", data, book
    book.close()


def test_a_repeated_step_that_comes_out_different_is_drawn_anew(interrupted):
    """Other hardware, say: the old sample with other noise would leak more than is charged."""
    folder, data, book = interrupted
    journal = folder / "internal" / "steps.log"
    lines = journal.read_text().splitlines()
    assert [line.split()[0] for line in lines] == [str(step) for step in range(12)]
    journal.write_text("\n".join([*lines[:10], "10 " + "0" * 32, lines[11]]) + "\n")
    old = load_checkpoint(folder / "internal" / "checkpoint.pt", torch.device("cpu"))
    keys = []
    release = dpsgd.resume(
        folder, data, ledger=book, watch=lambda t: keys.append(t.randomness.sampling.key)
    )
    assert old.randomness.sampling.key not in keys
    assert release.trust["mechanism"]["redone_steps"] == 2
    assert any("interrupted" in text for text in release.privacy.assumptions)
    assert verify(folder, ledger=book).ok


@pytest.mark.parametrize("sampler", ["poisson", "cyclic-poisson", "fixed-batches", "shuffled"])
def test_a_run_is_not_resumed_in_another_order_or_with_facts_restated(
    tmp_path, make_data, monkeypatch, sampler
):
    """Killed right after a checkpoint, so that no repeated step would come out different.

    Units are named by their place: in another order some would have a second turn.
    """
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 1.0)
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=0.5),))
    book = Ledger(tmp_path / "ledger.db")
    saved = dpsgd.save_checkpoint

    def save_and_die(path, trainer, **options):
        saved(path, trainer, **options)
        if trainer.next_step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dpsgd, "save_checkpoint", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            train(
                "dpsgd", data, epsilon=3.0, epochs=1, batch=8, sampler=sampler, model="linear",
                checkpoint_every=1, ledger=book, out=tmp_path / "run",
            )  # fmt: skip
    order = np.random.default_rng(0).permutation(80)
    reordered = Split(x=data.train.x[order], y=data.train.y[order])
    for other in (replace(data, train=reordered), replace(data, learned=())):
        with pytest.raises(InputError, match=r"data changed.*same records in the same order"):
            dpsgd.resume(tmp_path / "run", other, ledger=book)
    (run,) = book.account("made-up").runs
    assert (run.charged, run.status) == (5 if sampler == "poisson" else 1, "open")
    release = dpsgd.resume(tmp_path / "run", data, ledger=book)
    assert release.trust["mechanism"]["steps_run"] == 10
    book.close()


def test_no_name_of_the_records_leaves_the_private_folder(interrupted):
    """Neither the digest in order nor what it was made of: both could confirm a guess."""
    folder, data, book = interrupted
    record = json.loads((folder / "internal" / "run.json").read_text())
    origin = Origin.of(data)
    kept = load_checkpoint(folder / "internal" / "checkpoint.pt", torch.device("cpu")).origin
    assert record["data_digest"] == kept == origin.sealed(book, record["run"])
    dpsgd.resume(folder, data, ledger=book)
    released = b"".join(p.read_bytes() for p in folder.iterdir() if p.is_file())
    for secret in (kept.split(":")[1], origin.train[-64:], origin.train.split("|")[0][-64:]):
        assert secret.encode() not in released


def test_a_plan_that_was_not_reserved_is_refused(interrupted):
    folder, data, book = interrupted
    record = json.loads((folder / "internal" / "run.json").read_text())
    record["plan"]["noise_multiplier"] /= 4
    (folder / "internal" / "run.json").write_text(json.dumps(record))
    with pytest.raises(CheckFailed, match="not the one that was reserved"):
        dpsgd.resume(folder, data, ledger=book)


def test_a_resumed_run_keeps_its_precision_and_stays_compiled(tmp_path, make_data, monkeypatch):
    """In float32, or put together in another way, its lost steps would come out different."""
    monkeypatch.setattr("privet.engine.summing.by_torch", lambda graph: graph)
    data, seen = make_data(), []

    def look(trainer):
        fixed = trainer._summing.fixed is not None
        seen.append((trainer.precision, trainer._summing.compiled, fixed))
        if len(seen) == 12:
            raise KeyboardInterrupt

    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as book:
        with pytest.raises(KeyboardInterrupt):
            train(
                "dpsgd", data, epsilon=3.0, epochs=4, model="linear", checkpoint_every=10,
                precision="bf16", compile=True, ledger=book, out=tmp_path / "run", watch=look,
            )  # fmt: skip
        release = dpsgd.resume(tmp_path / "run", data, ledger=book, watch=look)
        assert verify(tmp_path / "run", ledger=book).ok
    assert set(seen) == {("bf16", True, True)}
    assert release.trust["mechanism"]["precision"] == "bf16"
    assert release.trust["mechanism"]["redone_steps"] == 0
    assert release.trust["provenance"]["config"]["compile"] is True


def test_a_run_that_began_before_there_were_precisions_goes_on_in_float32(interrupted):
    folder, data, book = interrupted
    record = json.loads((folder / "internal" / "run.json").read_text())
    del record["settings"]["precision"], record["settings"]["compile"]
    (folder / "internal" / "run.json").write_text(json.dumps(record))
    release = dpsgd.resume(folder, data, ledger=book)
    assert release.trust["mechanism"]["precision"] == "float32"
    assert release.trust["mechanism"]["redone_steps"] == 0
    assert verify(folder, ledger=book).ok


def test_one_process_at_a_time(interrupted):
    folder, data, book = interrupted
    with RunFolder(folder).locked(), pytest.raises(InputError, match="another process"):
        dpsgd.resume(folder, data, ledger=book)


def test_a_checkpoint_cut_off_while_writing_is_forgotten_too(interrupted):
    folder, data, book = interrupted
    leftover = folder / "internal" / ".checkpoint.pt.0badc0de"
    leftover.write_bytes(b"keys")
    dpsgd.resume(folder, data, ledger=book)
    assert not leftover.exists()


def test_a_finished_run_and_a_folder_without_one_cannot_be_resumed(tmp_path):
    outcome = privet("resume", tmp_path / "nothing", home=tmp_path / "home")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no run to resume" in outcome.err


def test_a_run_is_not_resumed_on_changed_data(tmp_path):
    source = tmp_path / "own.csv"
    lines = ["a,b,y"] + [f"{i % 7},{i % 3},{i % 2}" for i in range(200)]
    source.write_text("\n".join(lines) + "\n")
    home = tmp_path / "home"
    declared = privet(
        "data", "declare", source, "--label", "y", "--classes", "0", "1", "--feature", "a=0:7",
        "b=0:3", "--nominal-size", "160", "--test-fraction", "0.2", "--out", tmp_path / "own.toml",
        home=home,
    )  # fmt: skip
    assert declared.code == 0, declared.err
    options = ["--data", str(tmp_path / "own.toml"), *QUICK[2:]]
    process = start(["train", "dpsgd", *options, "--out", tmp_path / "run"], home)
    journal = tmp_path / "run" / "internal" / "steps.log"
    while not journal.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()
    source.write_text("\n".join([*lines, "1,1,1"]) + "\n")
    outcome = privet("resume", tmp_path / "run", home=home)
    assert outcome.code == 2
    assert "data changed" in outcome.err


def test_two_runs_started_together_under_a_cap_for_one(tmp_path):
    home, cap = tmp_path / "home", 4.0
    assert (
        privet("ledger", "cap", "digits", "--epsilon", cap, "--delta", "1e-5", home=home).code == 0
    )
    processes = [
        start(["train", "dpsgd", *QUICK, "--out", tmp_path / f"run{i}"], home) for i in range(2)
    ]
    outcomes = [(p, *p.communicate(timeout=300)) for p in processes]
    assert sorted(p.returncode for p, _, _ in outcomes) == [0, 1]
    (refused,) = [err for p, _, err in outcomes if p.returncode == 1]
    assert "would exceed the cap of 'digits'" in refused
    account = json.loads(privet("ledger", "show", "--json", home=home).out)[0]
    assert len(account["runs"]) == 1
    # The refused run left nothing behind that a new one would stumble over.
    assert sum((tmp_path / f"run{i}").exists() for i in range(2)) == 1
    assert account["spent_epsilon"] <= cap
