"""Published rules against half-line classifiers, whose mean scores and distances are exact."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.certification.published import (
    Layers,
    dpal,
    dpal_counterexample,
    harmonic,
    l1_change,
    pixeldp_gaussian,
    pixeldp_laplace,
    psi_counterexample,
    stobatch,
)
from privet.errors import InputError
from privet.guarantee import Basis
from privet.privacy.tradeoff import gaussian_delta

FIXED = settings(derandomize=True, deadline=None, max_examples=100)
SIZES = st.floats(0.01, 8.0)


def holds(epsilon: float, delta: float, lower: float, upper: float) -> bool:
    """PixelDP's condition, as printed."""
    return lower > math.exp(2 * epsilon) * upper + (1 + math.exp(epsilon)) * delta


@FIXED
@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(-12, -0.1))
def test_the_size_is_the_largest_that_meets_the_printed_condition(lower, upper, power):
    """Brute force over epsilon on a grid, for Gaussian and Laplace noise."""
    delta = 10.0**power
    grid = np.linspace(1e-6, 1.0, 4001)
    good = [e for e in grid if holds(e, delta, lower, upper)]
    found = pixeldp_gaussian(lower, upper, sigma=2.0, change=3.0, delta=delta)
    expected = max(good, default=0.0)
    assert expected - 1e-9 <= found.epsilon <= expected + grid[1] - grid[0] + 1e-9
    unit = math.sqrt(2 * math.log(1.25 / delta)) * 3.0 / 2.0
    assert found.size == pytest.approx(found.epsilon / unit, rel=1e-9)
    pure = pixeldp_laplace(lower, upper, scale=2.0, change=3.0)
    if 0 < upper < lower:
        exact = (math.log(lower) - math.log(upper)) / 3.0
        assert pure.size == pytest.approx(exact, rel=1e-6, abs=1e-6)
    elif upper >= lower:
        assert pure.size == 0.0


@FIXED
@given(SIZES, st.floats(0.1, 5.0), st.sampled_from([1e-10, 1e-5, 1e-2, 0.2]))
def test_pixeldp_never_passes_the_distance_of_a_half_line(point, noise, delta):
    p = float(stats.norm.cdf(point / noise))
    assert pixeldp_gaussian(p, 1 - p, sigma=noise, delta=delta).size < point
    p, rest = 1 - 0.5 * math.exp(-point / noise), 0.5 * math.exp(-point / noise)
    assert pixeldp_laplace(p, rest, scale=noise).size <= point


def test_laplace_is_tight_where_both_classes_are_half_lines_far_out():
    """Right of 1 and left of -3, the middle shared by many classes: the order changes at -1."""
    scale = 0.7
    right, left = (0.5 * math.exp(-edge / scale) for edge in (1.0, 3.0))
    assert pixeldp_laplace(right, left, scale=scale).size == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2, 0.1, 0.5, 0.99])
def test_the_classic_calibration_holds_up_to_epsilon_one(delta):
    """Against the exact curve of Gaussian noise: why the Gaussian rule may be called proved."""
    c = math.sqrt(2 * math.log(1.25 / delta))
    assert all(gaussian_delta(e / c, e) <= delta for e in np.linspace(1e-3, 1.0, 200))


def test_the_classic_calibration_fails_above_so_the_size_stops():
    c = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert gaussian_delta(20.0 / c, 20.0) > 1e-5
    assert pixeldp_gaussian(1.0, 0.0, sigma=1.0).epsilon == 1.0


@FIXED
@given(st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_harmonic_is_below_both_and_the_sum_at_least_four_times_it(kappa, phi):
    size = harmonic(kappa, phi)
    assert size <= min(kappa, phi) * (1 + 1e-15) <= max(kappa, phi) * (1 + 1e-15)
    assert kappa + phi >= 4 * size * (1 - 1e-12)
    assert harmonic(3.0, 6.0) == pytest.approx(2.0)
    assert harmonic(math.inf, math.inf) == math.inf


@FIXED
@given(SIZES, st.floats(0.1, 5.0), st.floats(0.1, 5.0), st.floats(0.1, 5.0))
def test_stobatch_is_sound_on_products_of_half_lines(point, b_x, b_h, change):
    """h = change * x: both passes flip at 0. DPAL's sum passes it; the harmonic size never does."""
    tails = [0.5 * math.exp(-point / b_x), 0.5 * math.exp(-change * point / b_h)]
    lower, upper = (1 - tails[0]) * (1 - tails[1]), tails[0] * tails[1]
    layers = Layers(input_scale=b_x, hidden_scale=b_h, hidden_change=change)
    sound, claim = stobatch(lower, upper, layers), dpal(lower, upper, layers)
    assert sound.size <= point
    assert claim.size > point
    assert (sound.basis, claim.basis) == (Basis.PROVED, Basis.CLAIMED)
    assert claim.gaps
    assert not sound.gaps


@FIXED
@given(SIZES, st.floats(0.1, 5.0), st.booleans())
def test_dpals_claim_is_refuted_at_every_point(point, scale, reads):
    found = dpal_counterexample(point=point, scale=scale, hidden_reads_input=reads)
    assert found.sound.size <= found.distance < found.claimed.size
    assert found.refutes


@pytest.mark.parametrize("reads", [False, True])
def test_dpals_counterexample_by_simulation(reads):
    """The network itself, 200,000 passes with fresh Laplace noise; standard error below 0.0012."""
    found = dpal_counterexample(hidden_reads_input=reads)
    rng, n = np.random.default_rng(0), 200_000

    def votes(x: float) -> tuple[float, float]:
        first = x + rng.laplace(0, 1.0, n) > 0
        second = x + rng.laplace(0, 2.0, n) > 0
        other = (second, ~second) if reads else (0.5, 0.5)
        return float(np.mean(first * other[0])), float(np.mean(~first * other[1]))

    for x in (found.point, found.point - 0.95 * found.claimed.size):
        np.testing.assert_allclose(votes(x), found.expected(x), atol=0.006)
    right, left = votes(found.point - 0.95 * found.claimed.size)
    assert left > right + 0.05


def test_a_counterexample_that_is_none_does_not_pass():
    """`refutes` can say no: the sound size in the claim's place."""
    found = dpal_counterexample()
    harmless = type(found)(
        expected=found.expected,
        point=found.point,
        distance=found.distance,
        claimed=found.sound,
        sound=found.sound,
    )
    assert not harmless.refutes


def test_smaller_noise_at_prediction_is_refuted():
    found = psi_counterexample()
    assert found.claimed.basis is Basis.CLAIMED
    assert "10 times smaller" in found.claimed.gaps[0]
    assert found.sound.size <= found.distance < found.claimed.size
    assert found.refutes
    assert not psi_counterexample(psi=1.0).refutes


def test_changes_are_counted_over_all_entries():
    """The worst attack of unit size, by brute force over corners for l-infinity."""
    assert l1_change(3, "linf") == max(
        abs(a) + abs(b) + abs(c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)
    )
    assert l1_change(4, "l2") == pytest.approx(np.abs(np.full(4, 0.5)).sum())
    assert l1_change(7, "l1") == 1.0
    with pytest.raises(InputError, match="norm"):
        l1_change(3, "l3")


def test_senseless_arguments_are_refused():
    with pytest.raises(InputError, match="mean scores"):
        pixeldp_laplace(1.2, 0.1, scale=1.0)
    with pytest.raises(InputError, match="sigma"):
        pixeldp_gaussian(0.9, 0.1, sigma=0.0)
    with pytest.raises(InputError, match="delta"):
        pixeldp_gaussian(0.9, 0.1, sigma=1.0, delta=0.0)
    with pytest.raises(InputError, match="hidden scale"):
        Layers(input_scale=1.0, hidden_scale=-1.0)
