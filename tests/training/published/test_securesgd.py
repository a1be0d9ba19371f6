"""SecureSGD as published: its claim and the gaps of it, its loop, and what the records decide."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.audits.papers.securesgd import claimed_steps
from privet.errors import InputError
from privet.guarantee import Basis
from privet.ledger import Ledger
from privet.models.hidden_noise import noise_of
from privet.privacy import moments
from privet.training.published.securesgd import (
    GAPS,
    MOMENTS,
    PUBLISHED,
    PublishedSecureSGD,
    least_multiplier,
    resume,
    run,
)
from privet.training.unprotected import ONLY_CLAIMED
from privet.verification import verify

QUICK = PublishedSecureSGD(
    epsilon=2.0, model="mlp", epochs=2, batch=16, warmup_epochs=1, noise_seed=3, checkpoint_every=2
)
WARMUP, STEPS = 5, 15  # of 80 records


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def built(data, **changes):
    return PUBLISHED.build(data, replace(QUICK, **changes).filled_for(data))


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# --- the claim ---------------------------------------------------------------------------------


def test_sigma_is_the_least_of_the_moments_accountant():
    sigma = least_multiplier(2.0, 1e-5, rate=0.2, steps=10)
    terms = {"rate": 0.2, "steps": 10, "delta": 1e-5, "moments": MOMENTS}
    assert moments.epsilon(noise_multiplier=sigma, **terms) <= 2.0
    assert moments.epsilon(noise_multiplier=0.999 * sigma, **terms) > 2.0
    # The public program: a sigma of 4 lasts for 102,878 steps at epsilon 1.
    program = least_multiplier(1.0, 1e-5, rate=125 / 50_000, steps=claimed_steps())
    assert program == pytest.approx(4.0, abs=1e-3)
    with pytest.raises(InputError, match="moments accountant cannot"):
        least_multiplier(0.01, 1e-5, rate=0.2, steps=10)


def test_the_card_claims_and_lists_the_gaps(make_data, ledger, tmp_path):
    settings = replace(QUICK, noise_seed=None)
    release = run(make_data(), settings, ledger=ledger, out=tmp_path / "run")
    (claim,) = release.guarantees
    assert (claim.epsilon, claim.basis, claim.accountant) == (2.0, Basis.CLAIMED, "moments")
    assert claim.gaps == GAPS
    assert release.privacy is None
    assert release.trust["withheld"] == [ONLY_CLAIMED]
    mechanism = release.trust["mechanism"]
    assert (mechanism["uncharged_steps"], mechanism["steps"]) == (WARMUP, STEPS)
    assert mechanism["hidden_scale"] == pytest.approx(0.257016, abs=1e-6)
    assert verify(tmp_path / "run", ledger=ledger).ok
    (known,) = run(make_data(), QUICK, ledger=ledger).guarantees
    assert len(known.gaps) == len(GAPS) + 1, "known noise is one more"


def test_what_the_paper_does_not_know_is_refused():
    for changes in ({"ema": 0.9}, {"adversarial": "madry"}, {"precision": "bf16"}):
        with pytest.raises(InputError, match="does not know"):
            replace(QUICK, **changes)


# --- the loop ----------------------------------------------------------------------------------


def test_no_noise_in_the_network_before_the_redistribution(make_data):
    trainer = built(make_data())
    first, drawing = weights(trainer.model), []
    while trainer.next_step < STEPS:
        if trainer.next_step == WARMUP:
            before = trainer.layer.scale.clone()
            assert not torch.equal(weights(trainer.model), first)
        trainer.step()
        drawing.append(trainer.layer.training)
    assert drawing == [False] * WARMUP + [True] * (STEPS - WARMUP)
    assert before.shape == (), "one scale for all until then"
    assert trainer.layer.scale.shape == (64,)
    assert float(trainer.layer.scale.min()) == pytest.approx(0.257016, abs=1e-5)


def test_the_run_begins_again_with_the_first_weights(make_data):
    """With so small a rate that its own first step does not show."""
    trainer = built(make_data())
    first = weights(trainer.model)
    for _ in range(WARMUP):
        trainer.step()
    assert (weights(trainer.model) - first).abs().max() > 1e-3
    trainer.optimizer.param_groups[0]["lr"] = 1e-12
    trainer.step()
    assert torch.allclose(weights(trainer.model), first, atol=1e-7)


def test_momentum_of_the_warm_up_does_not_reach_the_run(make_data):
    """From the first weights, its first step is by its own gradient alone."""
    trainer = built(make_data(), momentum=0.5)
    first = weights(trainer.model)
    for _ in range(WARMUP):
        trainer.step()
    assert all("momentum_buffer" in state for state in trainer.optimizer.state.values())
    trainer.step()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    moved = weights(trainer.model) - first
    # The projection of the first map comes after; leave its weights out.
    expected = -QUICK.learning_rate * gradient[4 * 64 :]
    assert torch.allclose(moved[4 * 64 :], expected, atol=1e-6)


def test_one_record_moves_the_shape_of_the_noise(make_data):
    """The gap: another label of one record, and the noise of the network has another shape."""
    labels = np.arange(80) % 3
    changed = np.where(np.arange(80) == 0, 1, labels)
    scales = []
    for y in (labels, changed):
        data = make_data(classes=("one", "two", "three"))
        trainer = built(replace(data, train=replace(data.train, y=y)))
        while trainer.next_step <= WARMUP:
            trainer.step()
        scales.append(trainer.layer.scale)
    assert ((scales[0] - scales[1]).abs() > 1e-3 * scales[0]).any()


@pytest.mark.parametrize("cut_at", [3, WARMUP, 9])
def test_a_resumed_run_ends_as_if_nothing_had_happened(make_data, ledger, tmp_path, cut_at):
    data = make_data()

    def stop(trainer):
        if trainer.next_step == cut_at:
            raise KeyboardInterrupt

    settings = replace(QUICK, momentum=0.5)
    with pytest.raises(KeyboardInterrupt):
        run(data, settings, ledger=ledger, out=tmp_path / "cut", watch=stop)
    cut = resume(tmp_path / "cut", data, ledger=ledger)
    whole = run(data, settings, ledger=ledger)
    assert torch.equal(weights(cut.model), weights(whole.model))
    assert torch.equal(noise_of(cut.model).scale, noise_of(whole.model).scale)
    assert verify(tmp_path / "cut", ledger=ledger).ok


def test_gradients_are_clipped_record_by_record(make_data):
    """Without noise, a step moves by at most rate * C * lot / batch."""
    data = make_data()
    trainer = built(data, clip_norm=1e-3, learning_rate=1.0, batch=80)
    object.__setattr__(trainer.noise, "multiplier", 1e-9)
    before = weights(trainer.model)
    trainer.step()
    # The projection of the first map comes after; leave its weights out.
    moved = (weights(trainer.model) - before)[4 * 64 :].norm()
    assert 0 < moved <= 1e-3 * (1 + 1e-4)
