"""Examples: scaled as a release scales its inputs; made-up batches know nothing of the data."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data.dataset import Bounds, Split
from privet.engine.examples import Examples, made_up_batch

CPU = torch.device("cpu")
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=100)


def examples(x, bounds, y=None):
    y = np.arange(len(x)) % 2 if y is None else y
    return Examples.of(Split(x=x, y=y.astype(np.int64)), bounds, CPU)


@REPEATABLE
@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    places=st.lists(st.floats(-1.0, 2.0), min_size=2, max_size=6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_values_are_scaled_and_clamped_by_the_public_bounds(low, width, places, dtype):
    bounds = Bounds(low=(low,), high=(low + width,))
    x = np.array([[low + p * width] for p in places], dtype=dtype)
    scaled, _ = examples(x, bounds)[torch.arange(len(x))]
    exact = np.clip((x.astype(np.float64) - low) / ((low + width) - low), 0, 1)
    assert np.allclose(scaled.numpy(), exact, atol=1e-6)


def test_narrow_bounds_around_a_large_value_survive_single_precision():
    bounds = Bounds(low=(1e9,), high=(1e9 + 1,))
    x = np.array([[1e9], [1e9 + 0.25], [1e9 + 1], [2e9]])
    scaled, _ = examples(x, bounds)[torch.arange(4)]
    assert scaled.flatten().tolist() == [0.0, 0.25, 1.0, 1.0]


def test_huge_values_are_clamped_without_overflow():
    scaled, _ = examples(np.array([[-1e300], [1e300]]), Bounds(low=(0.0,), high=(1.0,)))[
        torch.arange(2)
    ]
    assert scaled.flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_training_sees_what_a_release_will_see(dtype):
    bounds = Bounds(low=(0.0,), high=(255.0,))
    x = np.random.default_rng(0).integers(0, 256, (5, 1, 4, 4)).astype(dtype)
    scaled, _ = examples(x, bounds)[torch.arange(5)]
    assert np.allclose(scaled.numpy(), bounds.clamp_and_scale(x), atol=1e-7)
    assert scaled.dtype == torch.float32


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_each_column_has_its_own_bounds(dtype):
    bounds = Bounds(low=(0.0, 100.0), high=(10.0, 200.0))
    x = np.array([[5, 150], [20, 50]], dtype=dtype)
    scaled, _ = examples(x, bounds)[torch.arange(2)]
    assert scaled.tolist() == [[0.5, 0.5], [1.0, 0.0]]


def test_the_chosen_records_come_with_their_labels_in_order():
    x = np.array([[0.1], [0.2], [0.3]], dtype=np.float32)
    found, y = examples(x, Bounds(low=(0.0,), high=(1.0,)), np.array([0, 1, 2]))[
        torch.tensor([2, 0])
    ]
    assert torch.allclose(found, torch.tensor([[0.3], [0.1]]))
    assert y.tolist() == [2, 0]


def test_no_indices_give_an_empty_batch_of_the_right_shape():
    x, y = examples(np.zeros((3, 2, 4)), Bounds(low=(0.0,), high=(1.0,)))[torch.arange(0)]
    assert x.shape == (0, 2, 4)
    assert y.shape == (0,)


def test_a_batch_can_be_changed_in_place_without_changing_the_records():
    kept = examples(np.full((2, 1), 0.5, np.float32), Bounds(low=(0.0,), high=(1.0,)))
    kept[torch.arange(2)][0].mul_(0)
    assert kept[torch.arange(2)][0].tolist() == [[0.5], [0.5]]


def test_made_up_batches_do_not_depend_on_the_records(make_data):
    one, other = (made_up_batch(make_data(n=n, seed=n), CPU) for n in (20, 80))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert one[0].shape == (4, 4)
    assert one[0].min() >= 0
    assert one[0].max() <= 1
