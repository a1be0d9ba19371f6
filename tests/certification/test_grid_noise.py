"""Noise on a grid: the law of the draws, the radius, and the attack on float noise that it ends."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privet.certification import Gaussian, GridGaussian, certify
from privet.certification.grid_noise import _table_for
from privet.classifiers import Classifier
from privet.errors import InputError

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
CPU = torch.device("cpu")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def exact_variation(deviation):
    """Total variation between the sampler's law and the rounded Gaussian, in 60 digits."""
    thresholds = [0, *_table_for(deviation).thresholds.tolist(), 2**63]
    steps = (len(thresholds) - 2) // 2
    with mpmath.workdps(60):
        unit = mpmath.mpf(deviation)
        below = [mpmath.ncdf((k - mpmath.mpf(1) / 2) / unit) for k in range(-steps, steps + 2)]
        drawn = [mpmath.mpf(b - a) / 2**63 for a, b in itertools.pairwise(thresholds)]
        ideal = [b - a for a, b in itertools.pairwise(below)]
        inside = sum(abs(a - b) for a, b in zip(drawn, ideal, strict=True))
        return float((inside + below[0] + (1 - below[-1])) / 2)


@pytest.mark.parametrize("deviation", [0.05, 0.9, 0.25 * 255, 100 / 3])
def test_the_sampler_is_as_close_to_the_ideal_law_as_stated(deviation):
    """Every cell of the table against 60 digits; and the stated bound is not idle."""
    exact, stated = exact_variation(deviation), _table_for(deviation).error
    assert exact <= stated <= 1e-12
    assert exact >= 1e-19 or deviation < 0.1


def test_the_library_s_distribution_function_is_better_than_assumed():
    """Assumed: (x^2 + 4) 2^-51 relative. Half of it is not reached at 2,000 places to -9.5."""
    from scipy.special import ndtr

    with mpmath.workdps(40):
        for x in np.linspace(-9.5, 0, 2000):
            exact = mpmath.ncdf(mpmath.mpf(x))
            assert abs(ndtr(x) / exact - 1) < (x * x + 4.0) * 2.0**-52


def test_a_shifted_threshold_would_be_noticed():
    """The oracle above can fail: one threshold moved by 2^-30 is beyond the bound."""
    table = _table_for(12.5)
    good = exact_variation(12.5)
    table.thresholds[40] += 2**33
    try:
        assert good <= table.error < exact_variation(12.5)
    finally:
        table.thresholds[40] -= 2**33


def test_draws_have_the_rounded_law():
    """400,000 draws; chi-square over cells, fixed seed, p above 1e-4."""
    noise = GridGaussian(0.02, 255)
    steps = (noise.draw((400_000,), generator()) * 255).round().long().numpy()
    cells = np.arange(-16, 17)
    seen = np.array([(steps == k).sum() for k in cells])
    law = stats.norm(scale=0.02 * 255)
    ideal = law.cdf(cells + 0.5) - law.cdf(cells - 0.5)
    assert seen.sum() > 399_000
    assert stats.chisquare(seen, ideal / ideal.sum() * seen.sum()).pvalue > 1e-4
    assert abs(steps.mean()) < 5 * 0.02 * 255 / math.sqrt(400_000)


def test_a_draw_at_a_threshold_has_passed_it(monkeypatch):
    """P(u < t) = t / 2^63 needs the end of each cell to belong to the next one."""
    noise = GridGaussian(0.02, 255)
    ends = _table_for(0.02 * 255).thresholds
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, generator: self.copy_(ends))
    steps = noise._steps((len(ends),), generator())
    assert steps.tolist() == list(range(1 - len(ends) // 2, 1 + len(ends) // 2))


def test_noisy_inputs_are_exact_sums_on_the_grid():
    """The same noise at two centres differs by exactly the difference of the integers."""
    noise = GridGaussian(0.25, 255)
    x = torch.arange(256).float().div(255).view(1, -1)
    shown = noise.noisy(x, generator(3))
    integers = shown.double() * 255
    assert (integers - integers.round()).abs().max() < 1e-4
    steps = (noise.draw((1, 256), generator(3)).double() * 255).round()
    assert torch.equal(integers.round() - torch.arange(256), steps)
    assert torch.equal(shown, integers.round().float() / 255)  # a function of the integer


@given(p=st.floats(0.51, 0.9999), sigma=st.floats(0.05, 2.0), d=st.integers(1, 3000))
@FIXED
def test_the_radius_is_cohens_less_what_the_grid_costs(p, sigma, d):
    """Against the formula in the docstring, in 40 digits; never above it."""
    noise = GridGaussian(sigma, 255, dimension=d, offset=0.001)
    t = d * _table_for(sigma * 255).error
    with mpmath.workdps(40):
        quantile = lambda q: mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(q) - 1)  # noqa: E731
        ideal = mpmath.mpf(sigma) * (quantile(mpmath.mpf(p) - t) - quantile(0.5 + mpmath.mpf(t)))
        exact = float(ideal - mpmath.mpf("0.001") - mpmath.sqrt(d) / 510)
    assert noise.radius(p) <= max(0.0, exact)
    assert noise.radius(p) >= exact - 1e-6 * sigma
    assert noise.radius(p) < Gaussian(sigma).radius(p)


@given(radius=st.floats(0.0, 2.0), sigma=st.floats(0.05, 1.0), d=st.integers(1, 3000))
@FIXED
def test_threshold_is_where_the_radius_is_reached(radius, sigma, d):
    noise = GridGaussian(sigma, 4080, dimension=d)
    p0 = noise.threshold(radius)
    if p0 < 1 - 1e-9:
        assert noise.radius(p0) >= radius
        assert noise.radius(p0 - 1e-4 * (1 - p0)) <= radius


def test_the_sampler_s_error_costs_on_both_sides():
    """A probability within 2 t of one half gives nothing."""
    noise = GridGaussian(0.25, 255, dimension=784)
    assert noise.total_variation == pytest.approx(784 * _table_for(0.25 * 255).error)
    assert (
        noise._lead(0.0, 0.5 + 1.9 * noise.total_variation, 0.5 - 1.9 * noise.total_variation) < 0
    )
    assert noise.radius(0.5 + 1e-15) == 0.0


def test_rounding_is_measured_on_the_inputs():
    classifier = Classifier(name="t", scores=lambda x: x, shape=(4,), classes=4, device=CPU)
    noise = GridGaussian(0.25, 10)
    on = noise.fitted(classifier, torch.tensor([[0.0, 0.1, 0.5, 1.0]]))
    off = noise.fitted(classifier, torch.tensor([[0.0, 0.1, 0.5, 1.0], [0.03, 0.06, 0.5, 1.0]]))
    assert on.dimension == off.dimension == 4
    assert on.rounding == pytest.approx(2 / 20, abs=1e-6)
    assert off.rounding == pytest.approx(2 / 20 + 0.05, abs=1e-6)


@given(place=st.floats(0.0, 1.0), sigma=st.floats(0.05, 0.5), cut=st.floats(0.0, 1.0))
@FIXED
def test_no_half_line_is_certified_past_a_real_input_that_flips(place, sigma, cut):
    """One coordinate, f = [v >= cut], exact probabilities: the flip is on the grid of 10 levels."""
    x = torch.tensor([[place]], dtype=torch.float64)
    stub = Classifier(name="t", scores=lambda v: v, shape=(1,), classes=1, device=CPU)
    noise = GridGaussian(sigma, 10).fitted(stub, x)

    def above(value):
        centre = round(value * 10)
        steps = np.arange(-200, 201)
        law = stats.norm(scale=sigma * 10)
        mass = law.cdf(steps + 0.5) - law.cdf(steps - 0.5)
        return float(mass[(centre + steps) / 10 >= cut].sum())

    p = above(place)
    radius = noise.radius(min(1.0, max(p, 1 - p) - 1e-12))
    if radius in (0.0, math.inf):
        return
    for moved in np.linspace(place - radius, place + radius, 41)[1:-1]:
        assert (above(moved) > 0.5) == (p > 0.5)


def from_zero(v, sigma=0.15):
    """Whether every entry is a float32 that 0 + fl(sigma z) can be: a look at the last bits."""
    z = v / sigma
    near = [torch.nextafter(z, z.new_tensor(-9e9)), z, torch.nextafter(z, z.new_tensor(9e9))]
    possible = torch.stack([q * sigma == v for q in near]).any(0)
    return torch.stack([possible.all(1).float(), (~possible.all(1)).float()], dim=1)


BITS = Classifier(name="bits", scores=from_zero, shape=(256,), classes=2, device=CPU)
ASKED = {"n": 2000, "n0": 100, "seed": 5, "batch": 500, "reference": True}


def share_of(noise, x):
    """How often class 0 is chosen at x."""
    noise = noise.fitted(BITS, x)
    seen = noise.scores(BITS, x.expand(1000, -1), generator(9)).argmax(1)
    return float((seen == 0).float().mean())


def test_float_noise_is_certified_wrongly_by_a_look_at_the_bits():
    """Jin et al. (2022). At 0 the class is certain; at distance 0.016 it is the other one."""
    zero, moved = torch.zeros(1, 256), torch.full((1, 256), 0.001)
    found = certify(BITS, zero, torch.zeros(1, dtype=torch.int64), noise=Gaussian(0.15), **ASKED)
    assert found.prediction[0] == 0
    assert found.radius[0] > 0.3 > float(moved.norm())
    assert share_of(Gaussian(0.15), zero) == 1.0
    assert share_of(Gaussian(0.15), moved) < 0.01  # the certificate is wrong


@pytest.mark.parametrize("step", [0.001, 1 / 255, 1 / 4080])
def test_the_grid_gives_the_same_classifier_nothing_to_see(step):
    """Same classifier: whatever is certified at 0 is so at the moved input, on the grid or off."""
    zero, moved = torch.zeros(1, 256), torch.full((1, 256), step)
    noise = GridGaussian(0.15)
    found = certify(BITS, zero, torch.zeros(1, dtype=torch.int64), noise=noise, **ASKED)
    assert float(moved.norm()) < 0.15
    if found.radius[0] > float(moved.norm()):
        assert (share_of(noise, moved) > 0.5) == (found.prediction[0] == 0)
    at_zero, there = share_of(noise, zero), share_of(noise, moved)
    shift = stats.norm.ppf(np.clip([at_zero, there], 1e-3, 1 - 1e-3))
    assert abs(shift[0] - shift[1]) < float(moved.norm()) / 0.15 + 0.2  # 1,000 draws each


def test_a_run_states_what_the_grid_cost():
    found = certify(
        BITS,
        torch.zeros(1, 256),
        torch.ones(1, dtype=torch.int64),
        noise=GridGaussian(0.15),
        **ASKED,
    )
    record = found.summary([0.0])
    assert record["levels"] == 4080
    assert record["rounding"] == pytest.approx(16 / 8160)
    assert 0 < record["total_variation"] < 1e-9


@pytest.mark.parametrize(
    ("sigma", "levels"), [(0.0, 255), (math.nan, 255), (0.25, 0), (1.0, 10**7)]
)
def test_nonsense_is_refused(sigma, levels):
    with pytest.raises(InputError):
        GridGaussian(sigma, levels)


def test_a_radius_needs_the_dimension():
    with pytest.raises(InputError, match="dimension"):
        GridGaussian(0.25).radius(0.9)
