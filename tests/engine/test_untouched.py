"""Weights that something else than a private step has changed are not handed over."""

import gc

import pytest
import torch
from torch import nn

from privet.engine.untouched import mark_trained, require_fresh
from privet.errors import InputError


def one_step(trainer):
    trainer.step(next(trainer.batches()))
    return trainer


def plainly(trainer):
    """What an old loop does: a loss, backward, a step."""
    trainer.optimizer.zero_grad()
    trainer.model(torch.ones(4, 5)).sum().backward()
    trainer.optimizer.step()


def by_hand(trainer):
    with torch.no_grad():
        trainer.model[0].weight.add_(1.0)


def one_entry(trainer):
    with torch.no_grad():
        trainer.model[2].bias[0] = 3.0


def loaded(trainer):
    trainer.model.load_state_dict(trainer.model.state_dict())


CHANGES = [plainly, by_hand, one_entry, loaded]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_steps_is_refused_before_anything_is_charged(make_trainer, change):
    trainer = one_step(make_trainer())
    change(trainer)
    for _ in range(2):  # asking again does not help
        with pytest.raises(InputError, match=r"changed outside of trainer\.step"):
            one_step(trainer)
    (run,) = make_trainer.ledger.account("toy").runs
    assert run.charged == 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_last_step_is_refused(make_trainer, change):
    trainer = one_step(make_trainer())
    trainer.untouched.require()
    change(trainer)
    with pytest.raises(InputError, match=r"changed outside of trainer\.step"):
        trainer.untouched.require()


def test_private_steps_are_let_through(make_trainer, tools):
    trainer = make_trainer()
    for batch in trainer.batches():
        trainer.step(batch)
    trainer.untouched.require()


def test_a_step_that_broke_off_may_be_tried_again(make_trainer, monkeypatch):
    trainer = make_trainer()
    update = trainer.optimizer.step

    def broken():
        update()
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.optimizer, "step", broken)
    batch = next(trainer.batches())
    with pytest.raises(KeyboardInterrupt):
        trainer.step(batch)
    monkeypatch.undo()
    trainer.step(batch)


def test_a_layer_that_was_exchanged_is_noticed(make_trainer):
    trainer = one_step(make_trainer())
    trainer.model[1] = nn.ReLU()
    with pytest.raises(InputError, match="layer was exchanged"):
        one_step(trainer)


@pytest.mark.parametrize("trained", [True, False])
def test_what_is_trained_stays_the_same(make_trainer, trained):
    trainer = make_trainer()
    trainer.model[0].bias.requires_grad_(trained)
    if trained:
        one_step(trainer)
        return
    with pytest.raises(InputError, match=r"trained parameter was.*'0\.bias'"):
        one_step(trainer)


def test_weights_of_an_earlier_run_are_no_first_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    require_fresh(model)
    mark_trained(model)
    with pytest.raises(InputError, match=r"'1\.weight' was trained by an earlier run"):
        require_fresh(model)
    with pytest.raises(InputError, match="earlier run"):
        require_fresh(nn.Sequential(model[1], nn.Linear(1, 1)))
    require_fresh(nn.Sequential(model[0].requires_grad_(True)))  # was frozen: still public
    require_fresh(nn.Linear(2, 1))


def test_what_is_gone_is_forgotten():
    for _ in range(50):  # an address may be used again
        mark_trained(nn.Linear(3, 3))
        gc.collect()
        require_fresh(nn.Linear(3, 3))
