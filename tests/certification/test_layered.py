"""Two Gaussian noises against linear classifiers, whose probabilities and distances are exact."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from privet.certification.layered import LayeredGaussian
from privet.classifiers.classifier import Classifier
from privet.errors import InputError

FIXED = settings(derandomize=True, deadline=None, max_examples=60)
SEEDS, SIGMAS = st.integers(0, 10**6), st.floats(0.0, 2.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix_layer(w: np.ndarray) -> nn.Linear:
    layer = nn.Linear(w.shape[1], w.shape[0]).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w))
        layer.bias.zero_()
    return layer


def half_space(w, v, margin, sigma_x, sigma_h):
    """Probability and true distance of the class v.h > 0 at a point with v.(W x) = margin."""
    pulled = np.linalg.norm(w.T @ v)
    deviation = math.hypot(sigma_x * pulled, sigma_h * float(np.linalg.norm(v)))
    return float(stats.norm.cdf(margin / deviation)), margin / float(pulled)


@FIXED
@given(st.integers(1, 6), st.integers(1, 6), SEEDS, SIGMAS, SIGMAS, st.floats(0.01, 3.0))
def test_no_half_space_is_certified_beyond_its_distance(n, m, seed, sigma_x, sigma_h, margin):
    """In any direction, for wide, tall and square W; p is exact, so there is no slack."""
    if sigma_x + sigma_h < 1e-3:
        sigma_x = 0.5
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((m, n)), rng.standard_normal(m)
    p, distance = half_space(w, v, margin, sigma_x, sigma_h)
    if p >= 1 - 1e-9:  # the quantile of a rounded p is not exact
        return
    assert LayeredGaussian(matrix_layer(w), sigma_x, sigma_h, (n,)).radius(p) <= distance * (
        1 + 1e-6
    )


@FIXED
@given(st.integers(1, 6), st.integers(1, 6), SEEDS, st.floats(0.01, 2.0), SIGMAS)
def test_in_the_worst_direction_the_radius_is_the_distance(n, m, seed, sigma_x, sigma_h):
    """Catches the least singular value, a sum of deviations, or a product rule in its place."""
    w = np.random.default_rng(seed).standard_normal((m, n))
    v = np.linalg.svd(w)[0][:, 0]
    noise = LayeredGaussian(matrix_layer(w), sigma_x, sigma_h, (n,))
    margin = 1.3 * math.hypot(sigma_x * float(np.linalg.norm(w, 2)), sigma_h)
    p, distance = half_space(w, v, margin, sigma_x, sigma_h)
    assert noise.radius(p) == pytest.approx(distance, rel=1e-6)


@FIXED
@given(st.integers(1, 6), st.integers(1, 6), SEEDS, st.floats(0.01, 2.0), st.floats(0.01, 2.0))
def test_the_shift_of_any_step_is_at_most_the_stated_one(n, m, seed, sigma_x, sigma_h):
    """mu^2 = (W d)^T S^-1 (W d), solved as a linear system; the curve must cover it."""
    rng = np.random.default_rng(seed)
    w, step = rng.standard_normal((m, n)), rng.standard_normal(n)
    covariance = sigma_x**2 * w @ w.T + sigma_h**2 * np.eye(m)
    mu = math.sqrt(float((w @ step) @ np.linalg.solve(covariance, w @ step)))
    noise = LayeredGaussian(matrix_layer(w), sigma_x, sigma_h, (n,))
    assert mu <= noise.tradeoff(float(np.linalg.norm(step))).mu * (1 + 1e-9)


def test_input_noise_that_the_path_removes_neither_helps_nor_hurts():
    """W reads one of three inputs: the other two may be noised or not, and moved as one likes."""
    w = np.array([[2.0, 0.0, 0.0]])
    noise = LayeredGaussian(matrix_layer(w), 0.3, 0.8, (3,))
    alone = LayeredGaussian(matrix_layer(w[:, :1]), 0.3, 0.8, (1,))
    assert noise.effective_sigma == pytest.approx(alone.effective_sigma, rel=1e-12)
    assert noise.effective_sigma == pytest.approx(0.5, rel=1e-9)  # 0.09 + 0.64 / 4 = 0.25


def test_one_noise_alone():
    layer = matrix_layer(np.diag([4.0, 1.0]))
    assert LayeredGaussian(layer, 0.3, 0.0, (2,)).effective_sigma == pytest.approx(0.3, rel=1e-9)
    assert LayeredGaussian(layer, 0.0, 0.8, (2,)).effective_sigma == pytest.approx(0.2, rel=1e-9)


def test_radii_are_cohens_and_never_rounded_up():
    noise = LayeredGaussian(nn.Identity(), 0.25, 0.0, (5,))
    for p in (0.6, 0.9, 0.999):
        exact = 0.25 * float(stats.norm.ppf(p))
        assert exact * (1 - 1e-12) <= noise.radius(p) < exact
    assert noise.radius(0.5) == noise.radius(0.1) == 0.0


def small_path() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 2, stride=2), nn.Flatten()).double()


def test_the_noisy_layer_has_the_covariance_that_is_certified():
    """200,000 draws; each of 36 entries within 6 standard errors (fails by chance below 1e-7).

    Catches a missing noise, a deviation used as a variance, and noise shared between rows.
    """
    path, n, sigma_x, sigma_h = small_path(), 200_000, 0.7, 0.4
    noise = LayeredGaussian(path, sigma_x, sigma_h, (1, 4, 4))
    x = torch.full((n, 1, 4, 4), 0.5, dtype=torch.float64)
    draws = noise.scores(lambda h: h, generator=generator())(x).numpy()
    with torch.no_grad():
        offset = path(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
        w = (path(torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)) - offset).T.numpy()
        mean = path(x[:1]).numpy()[0]
    exact = sigma_x**2 * w @ w.T + sigma_h**2 * np.eye(8)
    spread = np.sqrt((np.outer(exact.diagonal(), exact.diagonal()) + exact**2) / n)
    assert np.all(np.abs(np.cov(draws.T) - exact) < 6 * spread)
    assert np.all(np.abs(draws.mean(0) - mean) < 6 * np.sqrt(exact.diagonal() / n))
    assert len(np.unique(draws[:, 0])) == n


def test_rows_and_calls_are_independent():
    """Correlation of neighbouring rows, and of two calls: within 6 / sqrt(n) of 0."""
    n = 20_000
    noise = LayeredGaussian(nn.Identity(), 1.0, 1.0, (2,))
    draw = noise.scores(lambda h: h, generator=generator(1))
    first, again = (draw(torch.zeros(n, 2)).numpy() for _ in range(2))
    for a, b in [
        (first[:-1, 0], first[1:, 0]),
        (first[:, 0], first[:, 1]),
        (first[:, 0], again[:, 0]),
    ]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / math.sqrt(n)


def test_a_smoothed_network_keeps_its_label_within_the_radius_and_loses_it_beyond():
    """Monte Carlo on the worst half-space: at 0.9 of the radius it stands, at 1.1 it has fallen.

    100,000 votes; p there is 0.55 and 0.45, more than 30 standard errors from one half.
    """
    path, n = small_path(), 100_000
    noise = LayeredGaussian(path, 0.5, 0.5, (1, 4, 4))
    with torch.no_grad():
        offset = path(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
        w = (path(torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)) - offset).T.numpy()
    left, s, right = np.linalg.svd(w)
    v, top = torch.from_numpy(left[:, 0].copy()), torch.from_numpy(right[0].copy())
    deviation = s[0] * noise.effective_sigma
    threshold = float(offset[0] @ v) - 1.2816 * deviation  # p = 0.9 at x = 0
    reach = noise.radius(0.9)

    def rest(h: torch.Tensor) -> torch.Tensor:
        return torch.stack([h @ v - threshold, threshold - h @ v], 1)

    model = Classifier(
        name="noisy",
        scores=noise.scores(rest, generator=generator(2)),
        shape=(1, 4, 4),
        classes=2,
        device=torch.device("cpu"),
        random=True,
    )
    shares = {}
    for part in (0.0, 0.9, 1.1):
        x = (-part * reach * top).reshape(1, 1, 4, 4).expand(n, -1, -1, -1)
        shares[part] = float((model.labels(x) == 0).double().mean())
    assert shares[0.0] == pytest.approx(0.9, abs=6 * math.sqrt(0.09 / n))
    assert shares[0.9] > 0.54
    assert shares[1.1] < 0.46


def test_gradients_reach_the_input():
    noise = LayeredGaussian(nn.Linear(3, 2), 0.1, 0.1, (3,))
    x = torch.zeros(4, 3, requires_grad=True)
    noise.scores(nn.Tanh(), generator=generator())(x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad != 0).any())


def test_weights_that_change_later_do_not_change_the_certified_path():
    layer = nn.Linear(3, 2)
    noise = LayeredGaussian(layer, 0.1, 0.1, (3,))
    score = noise.scores(lambda h: h, generator=generator(5))
    before = score(torch.ones(1, 3))
    with torch.no_grad():
        layer.weight.mul_(100.0)
    again = noise.scores(lambda h: h, generator=generator(5))
    torch.testing.assert_close(again(torch.ones(1, 3)), before)


@pytest.mark.parametrize("between", [nn.ReLU(), nn.Hardtanh(0, 1), nn.MaxPool2d(2)])
def test_what_is_not_linear_between_the_noises_is_refused_by_name(between):
    path = nn.Sequential(nn.Conv2d(1, 2, 3), between)
    with pytest.raises(InputError, match=f"{type(between).__name__} at '1'"):
        LayeredGaussian(path, 0.5, 0.5, (1, 8, 8))


@pytest.mark.parametrize("sigmas", [(0.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_bad_deviations_are_refused(sigmas):
    with pytest.raises(InputError, match="deviations"):
        LayeredGaussian(nn.Identity(), *sigmas, (3,))


def test_inputs_of_another_shape_are_refused():
    """The norm of a convolution depends on the size of its input."""
    noise = LayeredGaussian(nn.Conv2d(1, 1, 3), 0.5, 0.5, (1, 8, 8))
    with pytest.raises(InputError, match="another shape"):
        noise.scores(lambda h: h, generator=generator())(torch.zeros(1, 1, 9, 9))
    with pytest.raises(InputError, match="probability"):
        noise.radius(1.5)
