"""The projection of A-GEM."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from privet.lifelong.combining import projected


def vectors(seed, size=6):
    drawn = np.random.default_rng(seed).normal(size=(2, size))
    return torch.from_numpy(drawn)


@pytest.mark.parametrize("seed", range(8))
def test_it_solves_the_quadratic_programme(seed):
    """The nearest vector to g that does not point against g_ref."""
    g, g_ref = vectors(seed)
    solved = minimize(
        lambda v: 0.5 * ((v - g.numpy()) ** 2).sum(),
        np.zeros(6),
        jac=lambda v: v - g.numpy(),
        constraints={"type": "ineq", "fun": lambda v: v @ g_ref.numpy()},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert np.allclose(projected(g, g_ref).numpy(), solved.x, atol=1e-6)


def test_both_signs_are_among_the_seeds():
    signs = {bool(g @ g_ref < 0) for g, g_ref in map(vectors, range(8))}
    assert signs == {True, False}


@pytest.mark.parametrize("seed", range(8))
def test_always_leaves_nothing_along_the_memory(seed):
    g, g_ref = vectors(seed)
    found = projected(g, g_ref, always=True)
    assert abs(float(found @ g_ref)) < 1e-12
    along = (g - found) @ g_ref / (g_ref @ g_ref) * g_ref
    assert torch.allclose(g - found, along)


@pytest.mark.parametrize("always", [True, False])
def test_a_memory_without_direction_changes_nothing(always):
    g, g_ref = vectors(0)
    for tiny in (0.0, 1e-8):
        assert torch.equal(projected(g, -tiny * g_ref, always=always), g)


@pytest.mark.parametrize("always", [True, False])
def test_the_length_of_the_memory_does_not_matter(always):
    g, g_ref = vectors(3)
    one, other = (projected(g, c * g_ref, always=always) for c in (1.0, 250.0))
    assert torch.allclose(one, other)
