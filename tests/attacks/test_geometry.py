"""Projections and maxima over ball and box, against brute force and SciPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog, minimize

from privet.attacks.geometry import (
    NORMS,
    furthest,
    norms,
    project,
    random_point,
    reaching,
    steepest,
)
from privet.errors import InputError

ORDER = {"linf": np.inf, "l2": 2, "l1": 1}
cases = st.tuples(
    st.integers(1, 9), st.floats(1e-3, 4.0), st.floats(0.01, 30.0), st.integers(0, 10**6)
)


def drawn(dimension, scale, seed, n=3):
    """Inputs, some of them at the ends of the box, and perturbations, some of them zero."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.uniform(-0.3, 1.3, (n, dimension)), 0, 1)
    d = scale * rng.normal(size=(n, dimension)) * (rng.random((n, dimension)) < 0.9)
    return torch.tensor(x), torch.tensor(d), rng


def allowed(x, size, norm, rng, count=200):
    """Allowed perturbations of one input: random points of the box, shrunk until inside."""
    d = np.clip(rng.normal(scale=size, size=(count, len(x))), -x, 1 - x)
    length = np.linalg.norm(d, ORDER[norm], axis=1)
    return d * np.minimum(1, size / np.maximum(length, 1e-12))[:, None]


@pytest.mark.parametrize("norm", NORMS)
@given(case=cases)
@settings(max_examples=60, deadline=None)
def test_a_projection_is_allowed_and_no_allowed_point_is_nearer(norm, case):
    dimension, size, scale, seed = case
    x, p, rng = drawn(dimension, scale, seed)
    q = project(p, x, size, norm)
    assert (norms(q, norm) <= size * (1 + 1e-9)).all()
    assert ((x + q >= -1e-12) & (x + q <= 1 + 1e-12)).all()
    for row in range(len(x)):
        z = allowed(x[row].numpy(), size, norm, rng)
        # The variational inequality characterises the projection onto a convex set.
        inner = (z - q[row].numpy()) @ (p[row] - q[row]).numpy()
        assert inner.max() <= 1e-7 * max(1.0, scale) ** 2


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("seed", range(4))
def test_projections_agree_with_scipy(norm, seed):
    x, p, _ = drawn(5, 1.0, seed, n=1)
    q = project(p, x, 0.6, norm)[0].numpy()
    x, p = x[0].numpy(), p[0].numpy()
    # d = up - down makes both norms smooth.
    found = minimize(
        lambda v: ((v[:5] - v[5:] - p) ** 2).sum(),
        np.full(10, 0.01),
        bounds=[*[(0, b) for b in 1 - x], *[(0, b) for b in x]],
        constraints={
            "type": "ineq",
            "fun": lambda v: 0.6 - v.sum() if norm == "l1" else 0.36 - ((v[:5] - v[5:]) ** 2).sum(),
        },
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(q, found.x[:5] - found.x[5:], atol=2e-4)


def test_without_the_box_l1_is_duchis_projection():
    x = torch.full((1, 3), 0.5)
    q = project(torch.tensor([[0.3, -0.2, 0.05]]), x, 0.3, "l1")
    torch.testing.assert_close(q, torch.tensor([[0.2, -0.1, 0.0]]))


def test_to_clip_after_projecting_would_be_wrong():
    """The first coordinate has no room, so the whole ball is left to the second."""
    x = torch.tensor([[1.0, 0.5]])
    for norm in ("l2", "l1"):
        q = project(torch.tensor([[1.0, 1.0]]), x, 0.3, norm)
        torch.testing.assert_close(q, torch.tensor([[0.0, 0.3]]))


@pytest.mark.parametrize("norm", ["linf", "l1"])
@given(case=cases)
@settings(max_examples=40, deadline=None)
def test_the_furthest_point_solves_the_linear_program(norm, case):
    dimension, size, scale, seed = case
    x, g, _ = drawn(dimension, scale, seed, n=1)
    d = furthest(g, x, size, norm)
    assert (norms(d, norm) <= size * (1 + 1e-9)).all()
    a, b = g[0].numpy(), x[0].numpy()
    ends = [*[(0, u) for u in 1 - b], *[(0, u) for u in b]]
    if norm == "linf":
        ends = [(low, min(high, size)) for low, high in ends]
    budget = {} if norm == "linf" else {"A_ub": np.ones((1, 2 * dimension)), "b_ub": [size]}
    best = linprog(-np.concatenate([a, -a]), bounds=ends, **budget)
    assert float((d * g).sum()) == pytest.approx(-best.fun, rel=1e-6, abs=1e-9)


@given(case=cases)
@settings(max_examples=60, deadline=None)
def test_the_furthest_point_in_l2_beats_every_allowed_one(case):
    dimension, size, scale, seed = case
    x, g, rng = drawn(dimension, scale, seed, n=1)
    d = furthest(g, x, size, "l2")[0].numpy()
    assert np.linalg.norm(d) <= size * (1 + 1e-9)
    assert ((x[0].numpy() + d >= -1e-12) & (x[0].numpy() + d <= 1 + 1e-12)).all()
    a = g[0].numpy()
    assert (allowed(x[0].numpy(), size, "l2", rng) @ a).max() <= a @ d + 1e-9
    # and points just beside it, made allowed again
    beside = np.clip(d + 0.01 * rng.normal(size=(200, dimension)), -x.numpy(), 1 - x.numpy())
    beside *= np.minimum(1, size / np.maximum(np.linalg.norm(beside, axis=1), 1e-12))[:, None]
    assert (beside @ a).max() <= a @ d + 1e-9


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_are_uniform_in_the_ball(norm):
    """In D dimensions (r / size)^D is uniform. 4000 draws: 5 standard errors, one in 10^6."""
    x = torch.full((4000, 1, 2, 2), 0.5)
    d = random_point(x, 0.1, norm, torch.Generator().manual_seed(3))
    u = (norms(d, norm) / 0.1) ** 4
    assert abs(float(u.mean()) - 0.5) < 5 * (1 / 12 / 4000) ** 0.5
    assert abs(float((u < 0.1).float().mean()) - 0.1) < 5 * (0.09 / 4000) ** 0.5
    assert (d.mean(0).abs() < 5 * d.std(0) / 4000**0.5).all()  # no side is preferred


@pytest.mark.parametrize("norm", NORMS)
def test_directions_survive_tiny_and_zero_gradients(norm):
    g = torch.tensor([[3e-30, -4e-30], [0.0, 0.0]])
    d = steepest(g, norm)
    expected = [1.0, -1.0] if norm == "linf" else [0.6, -0.8]
    torch.testing.assert_close(d, torch.tensor([expected, [0.0, 0.0]]))


def test_an_unknown_norm_is_refused():
    from privet.attacks.geometry import require_norm

    with pytest.raises(InputError, match="unknown norm: got l3, expected one of linf, l2, l1"):
        require_norm("l3")


@pytest.mark.parametrize("norm", ["linf", "l2"])
@given(case=cases, share=st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_the_shortest_way_to_a_gain_is_found(norm, case, share):
    """Against SciPy: the one number of the KKT conditions by its root finder."""
    dimension, _, scale, seed = case
    x, slope, _ = drawn(dimension, scale, seed)
    room = np.where(slope > 0, 1 - x, x)
    gain = share * (slope.abs().numpy() * room).sum(1)
    found = reaching(slope, x, torch.tensor(gain), norm)
    assert ((x + found >= -1e-12) & (x + found <= 1 + 1e-12)).all()
    np.testing.assert_allclose((slope * found).sum(1), gain, rtol=1e-7, atol=1e-9)
    for a, space, aim, d in zip(slope.abs().numpy(), room, gain, found, strict=True):
        if aim > 1e-6:
            rate = np.sign(a) if norm == "linf" else a / a.max()

            def short(t, a=a, rate=rate, space=space, aim=aim):
                return float(a @ np.minimum(t * rate, space)) - float(aim)

            t = brentq(short, 0, 1e9, xtol=1e-13, maxiter=1000)
            length = np.linalg.norm(np.minimum(t * rate, space), ORDER[norm])
            assert float(norms(d[None], norm)) == pytest.approx(length, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_all_room_is_taken_where_the_gain_is_out_of_reach(norm):
    x, slope, _ = drawn(6, 1.0, 0)
    room = torch.where(slope > 0, 1 - x, -x)
    found = reaching(slope, x, torch.full((3,), 1e6, dtype=x.dtype), norm)
    torch.testing.assert_close(found, torch.where(slope == 0, 0.0, room))
    assert torch.equal(reaching(0 * slope, x, torch.ones(3, dtype=x.dtype), norm), 0 * x)
