"""What tasks do to images: a permutation, a rotation."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from privet.data import load
from privet.lifelong.transforms import permutation, permute, rotate

KNOWN = {0: [11, 3, 2, 1, 8, 6, 0, 7, 4, 10, 5, 9], 7: [11, 2, 10, 4, 7, 3, 5, 1, 8, 9, 0, 6]}


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3072), st.integers(0, 2**63), st.integers(0, 100))
def test_a_permutation_has_every_place_once(size, seed, task):
    assert sorted(permutation(size, seed=seed, task=task).tolist()) == list(range(size))


def test_permutations_differ_between_tasks_and_between_seeds():
    drawn = {tuple(permutation(64, seed=s, task=t)) for s in range(10) for t in range(10)}
    assert len(drawn) == 100
    assert tuple(range(64)) not in drawn, "the first task is permuted, too"


def test_a_permutation_is_the_same_on_every_machine():
    """Literals: a run of last year and one of today speak of the same tasks."""
    assert permutation(12, seed=0, task=0).tolist() == KNOWN[0]
    assert permutation(12, seed=7, task=3).tolist() == KNOWN[7]


def test_a_permutation_is_the_same_in_another_process():
    code = (
        "from privet.lifelong.transforms import permutation; "
        "print(permutation(784, seed=5, task=19).tolist())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(permutation(784, seed=5, task=19).tolist())


def test_places_of_pixels_are_uniform():
    """Chi-square over where pixel 0 goes in 4,000 tasks of 8 pixels; 1 in 10^6 by chance."""
    at = np.bincount([int(permutation(8, seed=0, task=t)[0]) for t in range(4000)], minlength=8)
    assert ((at - 500) ** 2 / 500).sum() < 41.0


def test_permuting_moves_values_across_channels_and_can_be_undone():
    x = np.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4).astype(np.uint8)
    order = permutation(48, seed=1, task=0)
    made = permute(x, order)
    assert made.shape == x.shape
    assert made.dtype == np.uint8
    assert made.reshape(2, -1)[1, 5] == x.reshape(2, -1)[1, order[5]]
    assert set(made[0, 0].ravel().tolist()) != set(x[0, 0].ravel().tolist())
    assert np.array_equal(permute(made, np.argsort(order)), x)


@pytest.mark.parametrize("degrees", [0.0, 10.0, 36.0, 90.0, 144.0, 171.5, 300.0])
def test_a_rotation_is_that_of_scipy(degrees):
    x = load("digits").test.x[:40]
    expected = ndimage.rotate(
        x.astype(float), degrees, axes=(-2, -1), reshape=False, order=1, mode="grid-constant"
    )
    made = rotate(x, degrees)
    assert made.dtype == np.uint8
    assert np.abs(made - expected).max() <= 0.5 + 1e-9, "rounded, and nothing else"


@pytest.mark.parametrize("quarters", range(4))
def test_quarter_turns_are_exact(quarters):
    x = load("digits").test.x[:40]
    assert np.array_equal(rotate(x, 90.0 * quarters), np.rot90(x, quarters, axes=(-2, -1)))


def test_colours_and_blocks_are_turned_alike():
    """More planes than a block holds, each as it is turned alone."""
    x = np.random.default_rng(0).integers(0, 256, (2800, 3, 5, 5)).astype(np.uint8)
    made = rotate(x, 30.0)
    for place in (0, 2730, 2731, 2799):
        assert np.array_equal(made[place], rotate(x[place : place + 1], 30.0)[0])
        assert np.array_equal(made[place, 2], rotate(x[place : place + 1, 2:], 30.0)[0, 0])


def test_a_rotation_stays_within_bounds():
    x = np.full((1, 1, 8, 8), 16, dtype=np.uint8)
    made = rotate(x, 45.0)
    assert made.max() == 16
    assert made[0, 0, 0, 0] == 0, "what comes in at the corners"
