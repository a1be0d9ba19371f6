"""Whole-number Laplace noise: its law by arithmetic, and what is drawn against it."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chisquare, laplace

from privet.errors import InputError
from privet.privacy.geometric import _ones, rounded_laplace, two_sided_geometric
from privet.privacy.randomness import Randomness


def stream(seed=0):
    return Randomness.seeded(seed).noise


@pytest.mark.parametrize("spread", [0.4, 3.0, 50.0])
def test_independent_digits_make_a_geometric_number(spread):
    """All numbers of seven digits, by the product of their digits' probabilities."""
    ones = expit(-(2.0 ** np.arange(7)) / spread)
    made = [
        math.prod(p if bit else 1.0 - p for p, bit in zip(ones, bits, strict=True))
        for bits in itertools.product((0, 1), repeat=7)
    ]
    numbers = [
        sum(bit << j for j, bit in enumerate(b)) for b in itertools.product((0, 1), repeat=7)
    ]
    law = np.exp(-np.arange(128) / spread)
    assert np.allclose(np.array(made)[np.argsort(numbers)], law / law.sum(), rtol=1e-12)


@pytest.mark.parametrize("probability", [0.75, 0.5, 3 / 32, 1 / 16, 0.0625 * 0.75])
def test_small_probabilities_are_exact(probability):
    """Every pair of two draws of four bits, each as likely as any other."""
    grid = np.arange(16) / 16
    first, second = (part.ravel() for part in np.meshgrid(grid, grid))
    found = _ones(probability, lambda part: (first, second)[part])
    assert found.mean() == probability


def test_a_probability_below_any_draw_is_not_taken_for_one():
    asked = []

    def draw(part):
        asked.append(part)
        return np.zeros(3)

    assert _ones(2.0**-120 * 0.75, draw).all()
    assert asked == [0, 1, 2, 3]  # for 0.75, 2^-53, 2^-53 and 2^-14


@pytest.mark.parametrize("spread", [0.7, 4.0, 30.0])
def test_what_is_drawn_has_the_law(spread):
    """100,000 draws, fixed seed: a right sampler fails with probability 1e-4."""
    z = two_sided_geometric(100_000, spread=spread, reach=40 * spread, stream=stream(), context=b"")
    edge = math.ceil(4 * spread)
    q = math.exp(-1 / spread)
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(-edge, edge + 1))
    tail = q ** (edge + 1) / (1 + q)
    counted = np.bincount(np.clip(z, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    assert chisquare(counted, 100_000 * np.array([tail, *inner, tail])).pvalue > 1e-4


@pytest.mark.parametrize("spread", [0.7, 4.0, 30.0])
def test_rounded_draws_have_the_law_of_rounding(spread):
    """Cells of the continuous law, by scipy; a right sampler fails with probability 1e-4."""
    z = rounded_laplace(100_000, spread=spread, reach=512 * spread, stream=stream(), context=b"")
    edge = math.ceil(4 * spread)
    ends = laplace.cdf(np.arange(-edge - 0.5, edge + 1), scale=spread)
    law = np.diff([0.0, *ends, 1.0])
    counted = np.bincount(np.clip(z, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    assert chisquare(counted, 100_000 * law).pvalue > 1e-4
    assert chisquare(counted, 100_000 * np.roll(law, 1)).pvalue < 1e-4


def test_noise_that_no_whole_number_holds_is_refused():
    with pytest.raises(InputError, match="too wide"):
        rounded_laplace(1, spread=2.0**60, reach=2.0**69, stream=stream(), context=b"")


def test_draws_are_bound_to_their_context_and_repeatable():
    def drawn(context):
        return two_sided_geometric(50, spread=9.0, reach=400, stream=stream(), context=context)

    assert (drawn(b"a") == drawn(b"a")).all()
    assert (drawn(b"a") != drawn(b"b")).any()
