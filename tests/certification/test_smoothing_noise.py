"""Radii against closed forms in high precision, and never beyond the truth."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privet.certification.smoothing_noise import (
    Gaussian,
    Laplace,
    Uniform,
    make_noise,
)
from privet.errors import InputError
from privet.privacy import tradeoff

FIXED = settings(derandomize=True, deadline=None, max_examples=80)
SCALES = st.floats(0.01, 10.0)
PROBABILITIES = st.floats(1e-3, 1.0 - 1e-12)


def normal_quantile(p):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


def laplace_quantile(p):
    p = mpmath.mpf(p)
    return mpmath.log(2 * p) if p < 0.5 else -mpmath.log(2 * (1 - p))


EXACT = {  # the radius at scale 1, in 40 digits
    "gaussian": lambda a, b: (normal_quantile(a) - normal_quantile(b)) / 2,
    "laplace": lambda a, b: (laplace_quantile(a) - laplace_quantile(b)) / 2,
    "uniform": lambda a, b: mpmath.mpf(a) - mpmath.mpf(b),
}


@pytest.mark.parametrize("name", EXACT)
@given(scale=SCALES, p=PROBABILITIES, other=st.floats(0.0, 1.0), binary=st.booleans())
@FIXED
def test_radius_is_the_closed_form_rounded_down(name, scale, p, other, binary):
    """A radius through the trade-off function: at most the exact one, and nearly it."""
    noise = make_noise(name, scale)
    with mpmath.workdps(40):
        upper = 1 - mpmath.mpf(p) if binary else mpmath.mpf(min(other, 1 - p) * (1 - 1e-9))
        assume(upper > 1e-6 or binary)
        exact = EXACT[name](p, upper) * mpmath.mpf(scale)
        got = noise.radius(p) if binary else noise.radius(p, float(upper))
        assert got <= max(exact, 0)
        assert got >= float(exact) * (1 - 1e-6) - 1e-9 * scale


@given(p=st.floats(0.01, 0.999), part=st.floats(0.001, 0.999))
@FIXED
def test_laplace_is_never_below_the_published_form_and_equal_where_that_is_tight(p, part):
    other = part * min(p, 1 - p)
    published = max(0.5 * math.log(p / other), -math.log(1 - p + other))
    ours = Laplace(1.0).radius(p, other)
    assert ours >= published * (1 - 1e-8) - 1e-10
    if p <= 0.5:
        assert ours == pytest.approx(published, rel=1e-6, abs=1e-9)


def test_known_radii():
    assert Gaussian(0.25).radius(float(stats.norm.cdf(2.0))) == pytest.approx(0.5, rel=1e-6)
    assert Gaussian(0.5).radius(0.9, 0.05) == pytest.approx(0.25 * (1.2815516 + 1.6448536))
    assert Laplace(2.0).radius(0.9) == pytest.approx(-2 * math.log(0.2))
    assert Uniform(0.5).radius(0.9) == pytest.approx(0.4)
    assert Uniform(0.5).radius(1.0) == pytest.approx(0.5)
    assert Gaussian(1.0).radius(1.0) == math.inf


@pytest.mark.parametrize("name", EXACT)
def test_no_lead_no_radius(name):
    noise = make_noise(name, 1.0)
    assert noise.radius(0.5) == 0.0
    assert noise.radius(0.3) == 0.0
    assert noise.radius(0.4, 0.4) == 0.0


@pytest.mark.parametrize("name", EXACT)
@given(scale=SCALES, shift=st.floats(1e-3, 4.0))
@FIXED
def test_threshold_is_where_the_radius_is_reached(name, scale, shift):
    noise = make_noise(name, scale)
    radius = shift * scale if name != "uniform" else shift / 4.1 * scale
    p0 = noise.threshold(radius)
    assert noise.radius(p0) >= radius
    assert noise.radius(p0 * (1 - 1e-6)) < radius


@pytest.mark.parametrize("name", ["gaussian", "laplace", "uniform"])
@given(edge=st.floats(0.01, 3.0), scale=st.floats(0.1, 3.0), understated=st.floats(0.0, 0.2))
@FIXED
def test_a_half_line_is_never_certified_past_its_edge(name, edge, scale, understated):
    """f(x) = A for x < edge, at x = 0: the smoothed class changes exactly at the edge."""
    noise = make_noise(name, scale)
    law = {
        "gaussian": stats.norm(scale=scale),
        "laplace": stats.laplace(scale=scale),
        "uniform": stats.uniform(-scale, 2 * scale),
    }[name]
    p = float(law.cdf(edge))
    assume(p < 1.0 - 1e-5)  # beyond, the rounding of p itself shows
    radius = noise.radius(p)
    assert radius <= edge
    assert radius >= edge * (1 - 1e-6) - 1e-9  # and the half-line is the worst case
    assert noise.radius(max(0.0, p - understated)) <= radius


@given(
    moves=st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=2),
    normal=st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=2),
    offset=st.floats(-2.0, 2.0),
)
@FIXED
def test_no_half_plane_loses_more_than_the_laplace_bound(moves, normal, offset):
    """Two dimensions, by quadrature: the one-dimensional trade-off function is the worst."""
    a, b = normal
    assume(abs(a) > 0.05 and abs(b) > 0.05)
    r = abs(moves[0]) + abs(moves[1])
    assume(r > 1e-3)

    def kept(c):  # P(a Z1 + b Z2 < c)
        def inner(z):
            return stats.laplace.pdf(z) * stats.laplace.cdf((c - a * z) / b * np.sign(b))

        z = np.linspace(-30, 30, 60_001)
        return float(integrate.trapezoid(inner(z), z))

    before, after = kept(offset), kept(offset - a * moves[0] - b * moves[1])
    assert after >= Laplace(1.0).tradeoff(r).shifted(before) - 1e-6


@given(moves=st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=4), p=st.floats(0.0, 1.0))
@FIXED
def test_the_cube_loses_at_most_what_it_leaves(moves, p):
    left = float(np.prod([1 - abs(m) / 2 for m in moves]))  # overlap of cubes of side 2
    r = sum(map(abs, moves))
    assume(r > 1e-9)
    assert Uniform(1.0).tradeoff(r).shifted(p) <= max(0.0, p - (1 - left)) + 1e-12


class TestUniformTradeOff:
    """Its own closed form, against brute force and dp-accounting."""

    @pytest.mark.parametrize("shift", [0.1, 0.5, 0.99, 1.5])
    def test_against_likelihood_ratio_tests_on_a_grid(self, shift):
        f = tradeoff.Uniform(shift)
        cells = np.linspace(0, 1 + shift, 20_001)
        middle = (cells[1:] + cells[:-1]) / 2
        width = cells[1] - cells[0]
        here, there = (middle < 1) * width, (middle > shift) * width
        for alpha in (0.0, 0.05, 0.3, 0.8):
            order = np.argsort(-there / np.maximum(here, 1e-300), kind="stable")
            used = np.cumsum(here[order]) <= alpha + 1e-12
            assert f.beta(alpha) == pytest.approx(1 - there[order][used].sum(), abs=2e-4)

    def test_it_is_zero_shift_privacy(self):
        f = tradeoff.Uniform(0.3)
        assert f.delta(0.0) == f.delta(2.0) == 0.3
        assert f.epsilon(0.3) == 0.0
        assert f.epsilon(0.29) == math.inf
        assert tradeoff.Uniform(2.0).delta(1.0) == 1.0
        assert f.pld().get_delta_for_epsilon(0.5) == pytest.approx(0.3)

    @given(alpha=st.floats(0, 1), shift=st.floats(0.01, 2.0))
    @FIXED
    def test_it_is_symmetric(self, alpha, shift):
        f = tradeoff.Uniform(shift)
        beta = f.beta(alpha)
        assert f.beta(beta) == pytest.approx(alpha) if beta > 0 else f.beta(beta) <= alpha


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (Gaussian(0.3), stats.norm(scale=0.3)),
        (Laplace(0.3), stats.laplace(scale=0.3)),
        (Uniform(0.3), stats.uniform(-0.3, 0.6)),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_draws_follow_the_law(noise, law):
    """Kolmogorov-Smirnov at 1e-4, one seed; a scale wrong by 4 % fails with 200,000 draws."""
    draws = noise.draw((200, 1000), torch.Generator().manual_seed(5))
    assert draws.shape == (200, 1000)
    assert draws.dtype == torch.float32
    assert stats.kstest(draws.numpy().ravel(), law.cdf).pvalue > 1e-4
    assert stats.kstest(draws.numpy().ravel() * 1.04, law.cdf).pvalue < 1e-4
    # Coordinates are independent: neighbours are uncorrelated (4.5 standard errors).
    z = draws.numpy() / law.std()
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < 4.5 / math.sqrt(z.size)


def test_other_norms_are_inner_balls():
    assert Gaussian(1.0).in_norm("linf", 1.0, 784) == pytest.approx(1 / 28)
    assert Gaussian(1.0).in_norm("l1", 1.0, 784) == pytest.approx(1.0)
    assert Laplace(1.0).in_norm("linf", 1.0, 784) == pytest.approx(1 / 784)
    assert Laplace(1.0).in_norm("l2", 1.0, 784) == pytest.approx(1 / 28)
    assert Laplace(1.0).in_norm("l1", 0.7, 784) == 0.7
    rng = np.random.default_rng(0)
    for noise, order in ((Gaussian(1.0), 2), (Uniform(1.0), 1)):
        for norm, other in (("l1", 1), ("l2", 2), ("linf", np.inf)):
            r = noise.in_norm(norm, 1.0, 10)
            moves = rng.normal(size=(500, 10)) ** 3
            moves = np.concatenate([moves, np.ones((1, 10)), np.eye(10)])
            moves *= r / np.linalg.norm(moves, other, axis=1, keepdims=True)
            assert np.linalg.norm(moves, order, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: Gaussian(0.0),
        lambda: Laplace(math.inf),
        lambda: Uniform(math.nan),
        lambda: make_noise("cauchy", 1.0),
        lambda: Gaussian(1.0).radius(1.2),
        lambda: Gaussian(1.0).radius(math.nan),
        lambda: Gaussian(1.0).threshold(-1.0),
        lambda: Gaussian(1.0).in_norm("l3", 1.0, 4),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(InputError):
        call()
