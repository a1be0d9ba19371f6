import numpy as np
import pytest
from scipy.stats import norm

from privet.reports import Curves
from privet.reports.curves import detection_bound_from_epsilon


def gaussian(mu: float, alphas: np.ndarray) -> Curves:
    return Curves(tradeoff=tuple((float(a), float(norm.cdf(norm.ppf(1 - a) - mu))) for a in alphas))


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_the_bound_of_a_gaussian_is_its_power_on_the_grid(mu: float, alpha: float) -> None:
    bound = gaussian(mu, np.linspace(0, 1, 101)).detection_bound(alpha)
    assert bound == pytest.approx(norm.cdf(norm.ppf(alpha) + mu), abs=1e-12)


def test_between_grid_points_the_bound_is_never_below_the_true_power() -> None:
    coarse = gaussian(1.0, np.linspace(0, 1, 8))
    for alpha in np.linspace(0.001, 0.999, 97):
        assert coarse.detection_bound(alpha) >= norm.cdf(norm.ppf(alpha) + 1.0) - 1e-12


def test_without_a_curve_nothing_is_bounded() -> None:
    assert Curves().detection_bound(0.01) == 1.0


def test_a_grid_point_one_rounding_error_below_counts_as_the_rate_itself() -> None:
    curve = Curves(tradeoff=((np.nextafter(0.01, 0), 0.9), (1.0, 0.0)))
    assert curve.detection_bound(0.01) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"),
    [
        (0.0, 0.0, 0.01),  # perfect privacy: guessing
        (np.log(10), 0.001, 0.101),  # e^epsilon alpha + delta
        (np.log(200), 0.0, 1 - 0.99 / 200),  # there the other side of the definition is tighter
        (1000.0, 0.0, 1.0),
    ],
)
def test_the_bound_from_epsilon_by_hand(epsilon: float, delta: float, expected: float) -> None:
    assert detection_bound_from_epsilon(epsilon, delta, 0.01) == pytest.approx(expected)


def test_the_bound_from_epsilon_covers_every_gaussian_that_meets_it() -> None:
    mu, epsilon = 1.0, 1.7
    delta = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    for alpha in np.linspace(0.001, 0.999, 97):
        power = norm.cdf(norm.ppf(alpha) + mu)
        assert detection_bound_from_epsilon(epsilon, delta, alpha) >= power - 1e-12
