"""The right trainer does what its accounting says; the oracle is one run, by autograd."""

from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant

from privet.audits.mutant_settings import trainer
from privet.audits.trainers import FAR, RUNS_AT_ONCE, Records, Trainer
from privet.errors import InputError
from privet.guarantee import Adjacency

OTHERS = Records.of([((1.0, 2.0), 0.5), ((-1.0, 0.3), 4.0), ((0.2, 0.1), 0.1)], 2)
TARGET = Records.of([((3.0, -2.0), 7.0)], 2)


def small(**changes):
    facts = {
        "others": OTHERS,
        "target": TARGET,
        "noise_multiplier": 1e-9,
        "normaliser": 2.0,
        "rate": 1.0,
        "steps": 3,
        "clip_norm": 1.5,
    }
    return Trainer(**(facts | changes))


def by_autograd(run, rows):
    """The weights after each step, one run, one record at a time, no noise, all records."""
    theta = torch.zeros(3, dtype=torch.float64)
    path = []
    for _ in range(run.steps):
        total = torch.zeros(3, dtype=torch.float64)
        for x, y in rows:
            w = theta.clone().requires_grad_()
            x, y = torch.tensor(x, dtype=torch.float64), float(y)
            loss = half_square(w, x, y)
            if run.partner_size:
                x_free = x.clone().requires_grad_()
                (slope,) = torch.autograd.grad(half_square(w.detach(), x_free, y), x_free)
                loss = (loss + half_square(w, x + run.partner_size * slope.sign(), y)) / 2
            (g,) = torch.autograd.grad(loss, w)
            total += g * min(1.0, run.clip_norm / float(g.norm()))
        theta = theta - run.learning_rate * total / run.normaliser
        path.append(theta.numpy())
    return np.stack(path)


def half_square(w, x, y):
    return (w[:-1] @ x + w[-1] - y) ** 2 / 2


@pytest.mark.parametrize("partner_size", [0.0, 0.3])
@pytest.mark.parametrize("included", [False, True])
def test_steps_agree_with_autograd(partner_size, included):
    run = small(partner_size=partner_size)
    records = OTHERS + TARGET if included else OTHERS
    path = by_autograd(run, list(zip(records.x, records.y, strict=True)))
    updates = run(included, 2, 0).reshape(2, 3, 3)
    found = -run.learning_rate * updates.cumsum(axis=1)
    np.testing.assert_allclose(found, np.stack([path, path]), atol=1e-7)
    last = replace(run, releases="weights")(included, 2, 0)
    np.testing.assert_allclose(last, found[:, -1], atol=1e-12)


def test_each_record_joins_each_step_by_a_coin_of_its_own():
    run = small(rate=0.3, steps=4)
    samples = run.samples(20_000, 5, np.random.default_rng(0)).reshape(20_000, 20)
    assert np.abs(samples.mean(axis=0) - 0.3).max() < 0.015  # 4.6 standard errors
    assert np.abs(np.corrcoef(samples.T) - np.eye(20)).max() < 0.035  # 5 standard errors


def test_noise_is_fresh_and_as_large_as_stated():
    run = small(noise_multiplier=2.0)
    noise = run.noise(50_000, 3, np.random.default_rng(0)).reshape(50_000, 9)
    assert np.abs(noise.std(axis=0) / (2.0 * 1.5) - 1).max() < 0.016  # 5 standard errors
    assert np.abs(np.corrcoef(noise.T) - np.eye(9)).max() < 0.023


def test_no_record_moves_a_sum_by_more_than_the_clip_norm():
    run = small(partner_size=0.2)
    records = Records.of([((0.1, 0.0), 0.1), ((1e3, 1.0), FAR)], 2)
    gradients = run.gradients(np.ones((1, 3)), records, np.ones((1, 2)))
    norms = np.linalg.norm(run.contributions(gradients), axis=-1)
    assert norms.max() <= 1.5 * (1 + 1e-12)
    assert norms[0, 0] < 1.4  # a short gradient stays as it is
    assert norms[0, 1] == pytest.approx(1.5)


def test_a_null_record_gives_nothing():
    absent = small()(False, 10, 3)
    null = small(adjacency=Adjacency.ZERO_OUT)(False, 10, 3)
    np.testing.assert_array_equal(absent, null)
    assert np.abs(null - small(adjacency=Adjacency.ZERO_OUT)(True, 10, 3)).max() > 0.1


def test_validation_records_are_never_read():
    run = small(held_out=OTHERS, target_held_out=True)
    np.testing.assert_array_equal(run(False, 10, 3), run(True, 10, 3))
    np.testing.assert_array_equal(run(True, 10, 3), small()(False, 10, 3))


def test_runs_are_independent_and_repeatable():
    run = small(noise_multiplier=1.0)
    rows = run(True, RUNS_AT_ONCE + 10, 1)
    assert len(np.unique(rows[:, 0])) == len(rows)  # no block repeats another
    np.testing.assert_array_equal(rows, run(True, RUNS_AT_ONCE + 10, 1))


def test_replace_one_is_refused():
    with pytest.raises(InputError, match="adjacency"):
        small(adjacency=Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_noise_is_what_epsilon_one_needs(steps):
    run = trainer(steps=steps)
    accountant = PLDAccountant()
    step = dp.PoissonSampledDpEvent(run.rate, dp.GaussianDpEvent(run.noise_multiplier))
    accountant.compose(step, steps)
    assert 0.995 <= accountant.get_epsilon(1e-5) <= 1.0001
