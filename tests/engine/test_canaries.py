"""Canaries are units like others, and what they show tells nothing about real ones."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from privet.engine.canaries import DiracCanaries, log_likelihood_ratio
from privet.engine.checkpoint import load_checkpoint, restore, save_checkpoint
from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError

PLAN = {
    "steps": 6,
    "sampling_rate": 0.3,
    "clip_norm": 0.5,
    "noise_multiplier": 1.1,
    "normaliser": 9.0,
    "delta": 1e-5,
}
PARAMETERS = 5 * 8 + 8 + 8 * 3 + 3
QUIET = 1e-7  # a noise multiplier


def plan(**changes):
    return Plan(**(PLAN | changes))


def drawn(m, seed=0, size=PARAMETERS, **changes):
    return DiracCanaries.drawn(plan(**changes), m, size, torch.Generator().manual_seed(seed))


def shown_by(trainer):
    """What each step shows of the canaries, in clip norms."""
    shown, observe = [], trainer.canaries.observe
    trainer.canaries.observe = lambda noisy: shown.append(observe(noisy))
    for batch in trainer.batches():
        trainer.step(batch)
    return torch.stack(shown)


def test_every_canary_has_a_coordinate_and_a_coin_of_its_own():
    canaries = drawn(60)
    assert len(set(canaries.coordinates.tolist())) == 60
    assert 0 <= int(canaries.coordinates.min()) <= int(canaries.coordinates.max()) < PARAMETERS
    coins = torch.stack([drawn(PARAMETERS, seed).included for seed in range(200)]).double()
    # 75 means of 200 fair coins: each within 5 standard deviations, but for a chance below 1e-4.
    assert (coins.mean(0) - 0.5).abs().max() < 5 * 0.5 / 200**0.5
    assert abs(coins.mean() - 0.5) < 4 * 0.5 / coins.numel() ** 0.5


def test_without_noise_a_step_shows_who_was_sampled_and_nothing_else(make_trainer):
    """The part of the real records is gone: there are 30 of them, with gradients of their own."""
    quiet = {"noise_multiplier": QUIET, "steps": 200}
    canaries = drawn(40, **quiet)
    shown = shown_by(make_trainer(canaries=canaries, **quiet))
    assert shown.shape == (200, 40)
    sampled = shown.round()
    assert (shown - sampled).abs().max() < 1e-4
    assert set(sampled.flatten().tolist()) == {0.0, 1.0}
    assert not sampled[:, ~canaries.included].any()
    rate = sampled[:, canaries.included].mean()
    trials = 200 * canaries.present
    assert abs(rate - 0.3) < 4 * (0.3 * 0.7 / trials) ** 0.5  # chance below 1e-4


def test_what_is_shown_does_not_depend_on_the_records(make_trainer):
    def shown(order):
        canaries = drawn(40, noise_multiplier=QUIET)
        return shown_by(make_trainer(canaries=canaries, order=order, noise_multiplier=QUIET))

    backwards = list(range(30))[::-1]  # other records in every sample
    assert (shown(None) - shown(backwards)).abs().max() < 1e-4


def test_a_canary_moves_a_sum_by_the_clip_norm():
    canaries = drawn(10)
    total = torch.randn(PARAMETERS)
    present = canaries.present
    for place in range(present):
        moved = canaries.added_to(total, torch.tensor([place])) - canaries.added_to(
            total, torch.tensor([], dtype=torch.int64)
        )
        assert moved.norm() == pytest.approx(0.5, rel=1e-5)
        assert moved.abs().argmax() == canaries.coordinates[canaries.included][place]


def test_they_are_sampled_behind_the_real_units(make_trainer):
    canaries = drawn(40)
    trainer = make_trainer(canaries=canaries, sampling_rate=1.0)
    batch = next(trainer.batches())
    assert batch.indices.tolist() == list(range(30 + canaries.present))


@pytest.mark.parametrize("m", [0, 1, PARAMETERS + 1])
def test_as_many_as_there_are_parameters_at_most(m):
    with pytest.raises(InputError, match="bad number of canaries"):
        drawn(m)


def test_several_processes_take_none(make_trainer):
    class Two(PrivateTrainer):
        def __init__(self, **given):
            super().__init__(**given, ranks=Ranks(size=2))

    with pytest.raises(InputError, match="one process"):
        make_trainer(canaries=drawn(3), kind=Two)


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.001, 0.2, 1.0])
def test_a_step_s_score_is_the_ratio_of_the_two_densities(q):
    seen = torch.linspace(-4, 6, 21, dtype=torch.float64)
    x = seen.numpy()
    outside = norm.pdf(x, 0, 1.1)
    inside = (1 - q) * outside + q * norm.pdf(x, 1, 1.1)
    found = log_likelihood_ratio(seen, plan(sampling_rate=q)).numpy()
    assert found == pytest.approx(np.log(inside / outside))


def test_little_noise_overflows_nothing():
    seen = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = log_likelihood_ratio(seen, plan(noise_multiplier=1e-3)).tolist()
    assert found == pytest.approx([np.log(0.7), np.log(0.3) + 5e5])


def test_where_steps_hang_together_the_plain_figure_counts():
    seen = torch.tensor([0.3, -1.0])
    turns = plan(sampler_name="cyclic-poisson", cycle=4, sampling_rate=0.2)
    assert log_likelihood_ratio(seen, turns) is seen


def test_scores_add_up_and_tell_who_took_part(make_trainer):
    canaries = drawn(PARAMETERS, steps=300)
    shown = shown_by(make_trainer(canaries=canaries, steps=300))
    each = torch.stack([log_likelihood_ratio(row, plan()) for row in shown])
    assert torch.allclose(canaries.scores, each.sum(0))
    inside, outside = canaries.scores[canaries.included], canaries.scores[~canaries.included]
    assert inside.min() > outside.max()  # 300 steps at this rate give everybody away


def test_a_killed_run_goes_on_with_its_canaries(make_trainer, tmp_path):
    """Coins and scores are in the checkpoint: the end is that of a run that was not killed."""
    path, kept = tmp_path / "checkpoint.pt", {}
    whole = make_trainer(canaries=drawn(50, seed=3))
    for batch in whole.batches():
        whole.step(batch)
        if whole.next_step == 3:
            save_checkpoint(path, whole, keep_keys=True)
            kept = whole.canaries.scores.clone()
    checkpoint = load_checkpoint(path, torch.device("cpu"))
    again = make_trainer(
        canaries=drawn(50, seed=4), account=whole.account, randomness=checkpoint.randomness
    )
    restore(again, checkpoint)
    assert torch.equal(again.canaries.scores, kept)
    for batch in again.batches():
        again.step(batch)
    assert torch.equal(again.canaries.included, whole.canaries.included)
    assert torch.allclose(again.canaries.scores, whole.canaries.scores)
