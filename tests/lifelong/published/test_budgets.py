"""Budgets and noise of L2DP-ML: the numbers of the thesis."""

from functools import cache

import pytest
import torch
from scipy.stats import kstest

from privet.errors import InputError
from privet.lifelong.published.budgets import Noise, budgets_of
from privet.lifelong.published.settings import CIFAR10, MNIST, SIGNALS
from privet.models import create
from privet.models.published_lifelong import LIFELONG
from privet.privacy.randomness import Randomness

KINDS = {
    "mnist": ((1, 28, 28), MNIST),
    "cifar10": ((3, 32, 32), CIFAR10),
    "signals": ((1, 3, 100), SIGNALS),
}


@cache
def network(shape):
    return create(LIFELONG, shape, 10)


def budgets(kind, epsilon, column_norm=1.0):
    shape, usual = KINDS[kind]
    return budgets_of(
        network(shape),
        epsilon=epsilon,
        epsilon_labels=usual.epsilon_labels(epsilon),
        batch=usual.batch,
        column_norm=column_norm,
    )


@pytest.mark.parametrize(
    ("kind", "inputs", "labels", "gamma_x"),
    [("mnist", 4_950, 1_024, 1.98), ("cifar10", 9_504, 512, 19.008), ("signals", 792, 256, 6.6)],
)
def test_the_sensitivities_of_the_thesis(kind, inputs, labels, gamma_x):
    found = budgets(kind, 4.0)
    assert found.reconstruction == inputs
    assert found.labels == labels
    assert found.gamma_x == pytest.approx(gamma_x)
    assert found.gamma == pytest.approx(2 * gamma_x)
    assert budgets(kind, 4.0, column_norm=0.5).gamma == pytest.approx(4 * gamma_x)


@pytest.mark.parametrize(
    ("kind", "epsilon", "epsilon1", "scale"),
    [
        ("mnist", 0.5, 0.228, 8.7),
        ("mnist", 1.0, 0.512, 3.9),
        ("mnist", 2.0, 1.081, 1.8),
        ("cifar10", 4.0, 2.16, 8.8),
        ("cifar10", 7.0, 4.02, 4.7),
        ("cifar10", 10.0, 5.87, 3.2),
        ("signals", 0.2, 0.081, 81),
        ("signals", 0.5, 0.326, 20),
        ("signals", 1.0, 0.733, 9.0),
    ],
)
def test_the_scales_that_follow(kind, epsilon, epsilon1, scale):
    found = budgets(kind, epsilon)
    assert found.epsilon1 == pytest.approx(epsilon1, abs=5e-3 if kind == "cifar10" else 5e-4)
    assert float(f"{found.input_scale:.2g}") == scale
    assert abs(found.total - epsilon) < 1e-9


def test_no_budget_is_left_for_the_inputs():
    with pytest.raises(InputError, match="no budget is left"):
        budgets("signals", 0.1)


def test_the_noise_has_its_law_and_shares():
    """Kolmogorov and Smirnov's test; fails on right code with probability below 1e-6."""
    found = budgets("mnist", 2.0)
    noise = Noise.drawn(found, network((1, 28, 28)), Randomness.seeded(3).noise).over(2500)
    scales = {
        "inputs": 4950 / found.epsilon1 / 2500,
        "hidden": 2 * 4950 / found.epsilon1 / 2500,
    }
    for name, scale in scales.items():
        drawn = getattr(noise, name).flatten().numpy()
        assert kstest(drawn, "laplace", (0.0, scale)).pvalue > 3e-7
    labels = noise.labels
    assert labels.shape == (10, 512)
    assert torch.equal(labels, labels[:1].expand(10, -1)), "one vector for all classes"
    assert kstest(labels[0].numpy(), "laplace", (0.0, 1024 / 0.1 / 2500)).pvalue > 3e-7
