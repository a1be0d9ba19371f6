"""Checkpoints: a killed run resumed exactly, or charged again; files that cannot harm."""

import hashlib
import json
import pickle
import stat
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch

from privet.engine.account import RunAccount
from privet.engine.checkpoint import load_checkpoint, restore, save_checkpoint
from privet.engine.handover import _events
from privet.engine.tuned import DECLARED
from privet.errors import BudgetExceeded, CheckFailed, InputError
from privet.privacy import noise as noise_room
from privet.privacy.randomness import Randomness

CPU = torch.device("cpu")


@pytest.fixture
def killed(make_trainer, tools, tmp_path):
    """A run that went on for two steps after its checkpoint at step 2, then died."""

    def make(keep_keys, dropout=False, **changes):
        journal = tmp_path / "steps.log"
        model = make_trainer.model(dropout=dropout)
        trainer = make_trainer(
            model=model, journal=journal, randomness=Randomness.fresh(), **changes
        )
        tools.run(trainer, until=2)
        save_checkpoint(tmp_path / "checkpoint.pt", trainer, keep_keys=keep_keys)
        tools.run(trainer, until=4)
        return trainer, journal

    return make


def successor(make_trainer, trainer, journal, tmp_path, dropout=False, **changes):
    """The trainer of a new process on the same account, and the checkpoint for it."""
    checkpoint = load_checkpoint(tmp_path / "checkpoint.pt", CPU)
    torch.manual_seed(99)  # whatever state the new process is in
    again = make_trainer(
        model=make_trainer.model(dropout=dropout),
        account=RunAccount(
            trainer.account.ledger, trainer.account.run_id, journal, cycle=trainer.plan.cycle
        ),
        randomness=checkpoint.randomness or Randomness.fresh(),
        **changes,
    )
    return again, checkpoint


def resume(make_trainer, tools, *killed, **changes):
    again, checkpoint = successor(make_trainer, *killed, **changes)
    restore(again, checkpoint)
    assert again.next_step == 2
    tools.run(again)
    return again


@pytest.mark.parametrize("dropout", [False, True])
def test_with_keys_a_resumed_run_is_bit_equal_and_free(
    make_trainer, tools, killed, tmp_path, dropout
):
    trainer, journal = killed(keep_keys=True, dropout=dropout)
    again = resume(make_trainer, tools, trainer, journal, tmp_path, dropout=dropout)
    tools.run(trainer)  # what would have come had it not died
    assert torch.equal(tools.weights(again.model), tools.weights(trainer.model))
    assert again.account.redone_steps == 0


BANDED = {"sampler_name": "cyclic-poisson", "cycle": 3, "bands": (0.9, 0.4, 0.1)}


@pytest.mark.parametrize(
    "changes",
    [
        {"average": 0.9},
        BANDED,
        {"sampler_name": "fixed-batches", "cycle": 3, "sampling_rate": 1 / 3},
        {"sampler_name": "shuffled", "cycle": 3, "sampling_rate": 1 / 3},
    ],
    ids=["average", "banded", "fixed", "shuffled"],
)
def test_everything_a_step_depends_on_is_in_the_checkpoint(
    make_trainer, tools, killed, tmp_path, changes
):
    trainer, journal = killed(keep_keys=True, **changes)
    again = resume(make_trainer, tools, trainer, journal, tmp_path, **changes)
    tools.run(trainer)
    assert torch.equal(tools.weights(again.model), tools.weights(trainer.model))
    released = [tools.weights(t.released_model()) for t in (again, trainer)]
    assert torch.equal(*released)
    assert again.account.redone_steps == 0


@pytest.mark.parametrize("changes", [{}, BANDED], ids=["independent", "banded"])
def test_noise_drawn_on_the_device_goes_on_exactly(
    make_trainer, tools, killed, tmp_path, monkeypatch, changes
):
    """As for a long sum on a GPU, with CPU tensors."""
    with monkeypatch.context() as patch:
        patch.setattr(noise_room, "stays_on_device", lambda values: True)
        trainer, journal = killed(keep_keys=True, **changes)
        noted = journal.read_text()
        again = resume(make_trainer, tools, trainer, journal, tmp_path, **changes)
        tools.run(trainer)
    assert torch.equal(tools.weights(again.model), tools.weights(trainer.model))
    assert again.account.redone_steps == 0
    assert journal.read_text().startswith(noted)


def test_a_run_that_goes_on_elsewhere_charges_its_lost_steps_again(
    make_trainer, tools, killed, tmp_path, monkeypatch
):
    """The two places draw different noise: a step redone in the other one is a step of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(noise_room, "stays_on_device", lambda values: True)
        trainer, journal = killed(keep_keys=True)
    again = resume(make_trainer, tools, trainer, journal, tmp_path)
    assert again.account.redone_steps == 2
    assert again.randomness.noise.key != trainer.randomness.noise.key


@pytest.mark.parametrize(
    "changes",
    [
        BANDED,
        {"sampler_name": "cyclic-poisson", "cycle": 3},
        {"sampler_name": "fixed-batches", "cycle": 3},
        {"sampler_name": "shuffled", "cycle": 3},
    ],
    ids=["banded", "cyclic", "fixed", "shuffled"],
)
def test_where_units_have_turns_a_step_that_differs_ends_the_run(
    make_trainer, tools, killed, tmp_path, changes
):
    """Fresh keys would give a unit another turn than the one it had, at no charge."""
    trainer, journal = killed(keep_keys=True, **changes)
    lines = journal.read_bytes().splitlines()
    lines[2] = b"2 " + b"0" * 32
    journal.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(CheckFailed, match="comes out different"):
        resume(make_trainer, tools, trainer, journal, tmp_path, **changes)


def test_without_the_history_of_its_noise_a_banded_run_does_not_go_on(
    make_trainer, tools, killed, tmp_path
):
    trainer, journal = killed(keep_keys=True, **BANDED)
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    torch.save(state | {"noise_history": None}, path)
    with pytest.raises(CheckFailed, match="comes out different"):
        resume(make_trainer, tools, trainer, journal, tmp_path, **BANDED)


def test_without_keys_every_repeated_step_is_charged_and_accounted(
    make_trainer, tools, killed, tmp_path, make_data
):
    trainer, journal = killed(keep_keys=False)
    again = resume(make_trainer, tools, trainer, journal, tmp_path)
    assert again.account.redone_steps == 2  # steps 2 and 3; 4 and 5 had not been done
    record = again.account.ledger.run(again.account.run_id)
    assert (record.charged, record.redone) == (6, 2)
    (label, event), *_ = reversed(_events(again, make_data(), DECLARED))
    assert label == "train"
    assert isinstance(event, dp.SelfComposedDpEvent)
    assert event.count == 6 + 2


def test_without_keys_dying_again_is_charged_again(make_trainer, tools, killed, tmp_path):
    trainer, journal = killed(keep_keys=False)
    resume(make_trainer, tools, trainer, journal, tmp_path)
    third = resume(make_trainer, tools, trainer, journal, tmp_path)
    assert third.account.redone_steps == 2 + 4


def test_a_cap_without_room_stops_the_repeated_step(make_trainer, tools, killed, tmp_path):
    trainer, journal = killed(keep_keys=False)

    class Full(RunAccount):
        def confirm(self, step, fingerprint):
            if self._seen.get(step, fingerprint) != fingerprint:
                raise BudgetExceeded("full")

    checkpoint = load_checkpoint(tmp_path / "checkpoint.pt", CPU)
    again = make_trainer(
        account=Full(trainer.account.ledger, trainer.account.run_id, journal),
        randomness=Randomness.fresh(),
    )
    restore(again, checkpoint)
    before = tools.weights(again.model)
    with pytest.raises(BudgetExceeded):
        tools.run(again)
    assert torch.equal(tools.weights(again.model), before)


def test_the_optimisers_state_is_kept(make_trainer, killed, tmp_path, tools):
    fresh, checkpoint = successor(make_trainer, *killed(keep_keys=True), tmp_path)
    restore(fresh, checkpoint)
    buffers = [fresh.optimizer.state[p]["momentum_buffer"] for p in fresh.model.parameters()]
    assert all(b.abs().sum() > 0 for b in buffers)


def test_keys_are_in_the_file_only_if_asked_for(make_trainer, tmp_path):
    for keep in (True, False):
        trainer = make_trainer(randomness=Randomness.fresh(init_seed=3))
        path = tmp_path / f"{keep}.pt"
        save_checkpoint(path, trainer, keep_keys=keep)
        for stream in (trainer.randomness.noise, trainer.randomness.sampling):
            found = (
                stream.key.hex().encode() in path.read_bytes() or stream.key in path.read_bytes()
            )
            assert found is keep
        loaded = load_checkpoint(path, CPU).randomness
        if keep:
            assert loaded.noise.key == trainer.randomness.noise.key
            assert loaded.sampling.key == trainer.randomness.sampling.key
            assert (loaded.init_seed, loaded.secret) == (3, True)
        else:
            assert loaded is None


def test_the_history_of_the_noise_is_kept_with_the_keys(make_trainer, tools, tmp_path):
    trainer = make_trainer(randomness=Randomness.fresh(), **BANDED)
    tools.run(trainer, until=4)
    save_checkpoint(tmp_path / "c.pt", trainer, keep_keys=True)
    history = load_checkpoint(tmp_path / "c.pt", CPU).noise_history
    assert (history.next_step, len(history.draws)) == (4, 2)
    assert torch.equal(history.draws, trainer.noise_history.draws)


TURNS = {
    "banded": BANDED,
    "cyclic": {"sampler_name": "cyclic-poisson", "cycle": 3},
    "fixed": {"sampler_name": "fixed-batches", "cycle": 3, "sampling_rate": 1 / 3},
    "shuffled": {"sampler_name": "shuffled", "cycle": 3, "sampling_rate": 1 / 3},
}


@pytest.mark.parametrize("name", TURNS)
def test_where_units_have_turns_no_checkpoint_goes_without_keys(
    make_trainer, killed, tmp_path, name
):
    """Fresh keys would deal the units anew: some would have two turns where one is charged."""
    with pytest.raises(InputError, match="can only go on with its keys"):
        killed(keep_keys=False, **TURNS[name])
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize("name", TURNS)
def test_where_units_have_turns_none_is_restored_without_keys(
    make_trainer, tools, killed, tmp_path, name
):
    trainer, journal = killed(keep_keys=True, **TURNS[name])
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path, **TURNS[name])
    again.randomness = Randomness.fresh()
    for given in (checkpoint, replace(checkpoint, randomness=None)):
        before = tools.weights(again.model)
        with pytest.raises(InputError, match=r"other keys than the checkpoint|only go on with its"):
            restore(again, given)
        assert torch.equal(tools.weights(again.model), before)
    assert again.next_step == 0


@pytest.mark.parametrize(("name", "keep"), [*((n, True) for n in TURNS), ("", True), ("", False)])
def test_the_same_records_in_another_order_are_refused(make_trainer, killed, tmp_path, name, keep):
    """Groups, orders and coins name units by their place: a unit would take another's turn."""
    changes = TURNS.get(name, {})
    trainer, journal = killed(keep_keys=keep, **changes)
    swapped = np.array([1, 0, *range(2, 30)])
    for order in (np.arange(30)[::-1], swapped):
        again, checkpoint = successor(
            make_trainer, trainer, journal, tmp_path, order=order, **changes
        )
        with pytest.raises(
            InputError, match=r"made with other data.*same records in the same order"
        ):
            restore(again, checkpoint)
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path, **changes)
    restore(again, checkpoint)
    assert again.next_step == 2


def test_the_file_says_nothing_about_the_records_without_the_ledger(make_trainer, tmp_path):
    """An unkeyed digest would confirm a guess of the one record that somebody lacks."""
    trainer = make_trainer()
    save_checkpoint(tmp_path / "c.pt", trainer, keep_keys=False)
    content = (tmp_path / "c.pt").read_bytes()
    for part in (trainer.origin.train, trainer.origin.test):
        for piece in part.split("|"):
            assert piece[-64:].encode() not in content
    books = trainer.account
    key = books.ledger.digest_key
    said = load_checkpoint(tmp_path / "c.pt", CPU).origin
    assert said == trainer.origin.sealed(books.ledger, books.run_id)
    plain = json.dumps([trainer.origin.facts, trainer.origin.train, trainer.origin.test])
    digest = hashlib.blake2b(f"{books.run_id}|{plain}".encode(), key=key, digest_size=32)
    assert said == f"blake2b-keyed:{digest.hexdigest()}"


def test_a_checkpoint_of_another_run_is_refused(make_trainer, killed, tmp_path):
    _, journal = killed(keep_keys=True)
    checkpoint = load_checkpoint(tmp_path / "checkpoint.pt", CPU)
    stranger = make_trainer(randomness=checkpoint.randomness, journal=journal)
    with pytest.raises(InputError, match="in another run"):
        restore(stranger, checkpoint)


def test_a_trainer_that_has_begun_is_not_set_back(make_trainer, tools, killed, tmp_path):
    """Its keys were used: the steps would come again with the same samples."""
    trainer, journal = killed(keep_keys=False)
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path)
    restore(again, checkpoint)
    for begun in (again, trainer):
        with pytest.raises(InputError, match="begun already"):
            restore(begun, checkpoint)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("keep_keys", [True, False])
def test_without_its_journal_a_run_does_not_go_on(make_trainer, killed, tmp_path, kept, keep_keys):
    """Four steps were done; whether a lost one comes out the same could not be told.

    The fourth may be missing: a run that is killed between charge and use looks the same.
    """
    trainer, journal = killed(keep_keys=keep_keys)
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    journal.write_bytes(b"".join(lines[:kept]))
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path)
    if kept == 3:
        restore(again, checkpoint)
    else:
        with pytest.raises(InputError, match=f"journal lacks a step.*no step {kept} "):
            restore(again, checkpoint)


def test_with_turns_the_journal_is_counted_in_steps(make_trainer, killed, tmp_path):
    """Two turns are charged in four steps of a cycle of three: the first three must be noted."""
    changes = TURNS["fixed"]
    trainer, journal = killed(keep_keys=True, **changes)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]))
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path, **changes)
    with pytest.raises(InputError, match="no step 2 "):
        restore(again, checkpoint)
    journal.write_bytes(b"".join(lines[:3]))
    again, checkpoint = successor(make_trainer, trainer, journal, tmp_path, **changes)
    restore(again, checkpoint)


def test_known_noise_stays_known_after_resuming(make_trainer, tmp_path):
    save_checkpoint(tmp_path / "c.pt", make_trainer(seed=1), keep_keys=True)
    assert load_checkpoint(tmp_path / "c.pt", CPU).randomness.secret is False


def test_only_the_owner_can_read_the_file(make_trainer, tmp_path):
    path = tmp_path / "c.pt"
    path.write_bytes(b"old")
    path.chmod(0o644)
    save_checkpoint(path, make_trainer(), keep_keys=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


class Planted:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


@pytest.mark.parametrize("write", ["torch", "pickle"])
def test_planted_code_is_not_run(tmp_path, write):
    marker, path = tmp_path / "ran", tmp_path / "c.pt"
    state = {"step": 1, "model": {}, "optimizer": {}, "keys": Planted(marker)}
    if write == "torch":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps(state))
    with pytest.raises(InputError, match="corrupt checkpoint"):
        load_checkpoint(path, CPU)
    assert not marker.exists()


@pytest.mark.parametrize("damage", ["empty", "half", "text", "fields", "key"])
def test_a_broken_file_is_bad_input(make_trainer, tmp_path, damage):
    path = tmp_path / "c.pt"
    save_checkpoint(path, make_trainer(), keep_keys=True)
    content = path.read_bytes()
    if damage == "fields":
        torch.save({"step": 1}, path)
    elif damage == "key":
        keys = {"init_seed": 0, "sampling": "00", "noise": "00", "secret": True}
        torch.save({"step": 1, "model": {}, "optimizer": {}, "keys": keys}, path)
    else:
        path.write_bytes(
            {"empty": b"", "half": content[: len(content) // 2], "text": b"hello"}[damage]
        )
    with pytest.raises(InputError, match="corrupt checkpoint"):
        load_checkpoint(path, CPU)


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="killed before its first step"):
        load_checkpoint(tmp_path / "none.pt", CPU)
