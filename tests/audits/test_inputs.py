"""Canaries that are records: of the data's shape, with labels that nothing else teaches."""

import numpy as np
import pytest

import privet
from privet.audits.inputs import InputCanaries
from privet.errors import InputError


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


def drawn(kind, m, data, seed=0):
    return InputCanaries.drawn(kind, m, data, np.random.default_rng(seed))


@pytest.mark.parametrize(("kind", "m"), [("noise", 200), ("mislabelled", 200), ("blank", 1)])
def test_they_fit_the_data(digits, kind, m):
    canaries = drawn(kind, m, digits)
    assert canaries.x.shape == (m, *digits.shape)
    assert canaries.x.dtype == np.float32
    assert canaries.x.min() >= 0
    assert canaries.x.max() <= 1
    assert set(canaries.y) <= set(range(10))
    assert len(canaries) == len(canaries.included) == m


def test_half_of_them_take_part(digits):
    share = drawn("noise", 4000, digits).included.mean()
    assert abs(share - 0.5) < 4 * 0.5 / 4000**0.5  # chance below 1e-4


def test_mislabelled_ones_are_test_examples_under_another_label(digits):
    canaries = drawn("mislabelled", len(digits.test), digits)
    scaled = digits.bounds.clamp_and_scale(digits.test.x)
    own = {image.tobytes(): label for image, label in zip(scaled, digits.test.y, strict=True)}
    truth = np.array([own[image.tobytes()] for image in canaries.x])
    assert (truth != canaries.y).all()
    moved = np.bincount((canaries.y - truth) % 10, minlength=10)
    assert moved[0] == 0
    assert moved[1:].min() > 10  # every other class is drawn


def test_none_is_a_training_record(digits):
    train = {image.tobytes() for image in digits.bounds.clamp_and_scale(digits.train.x)}
    for kind, m in (("noise", 100), ("mislabelled", 360), ("blank", 1)):
        assert not any(image.tobytes() in train for image in drawn(kind, m, digits).x)


@pytest.mark.parametrize(
    ("kind", "m", "said"),
    [
        ("green", 1, "unknown canaries"),
        ("noise", 0, "bad number"),
        ("blank", 2, "all the same"),
        ("mislabelled", 361, "too many"),
    ],
)
def test_what_cannot_be_is_refused(digits, kind, m, said):
    with pytest.raises(InputError, match=said):
        drawn(kind, m, digits)


def test_private_test_records_are_not_used(digits):
    from dataclasses import replace

    with pytest.raises(InputError, match="private test records"):
        drawn("mislabelled", 1, replace(digits, test_is_public=False))
