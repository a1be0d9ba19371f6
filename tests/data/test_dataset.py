"""Dataset and Bounds: what is refused, and that scaling stays in [0, 1]."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privet.data import Bounds, Dataset, Split
from privet.errors import InputError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def make(x=None, y=None, **facts):
    x = np.zeros((4, 2)) if x is None else x
    y = np.array([0, 1, 0, 1]) if y is None else y
    split = Split(x=x, y=y)
    given_facts = {
        "name": "toy",
        "train": split,
        "test": Split(x=np.zeros((2, 2)), y=np.array([0, 1])),
        "bounds": Bounds(low=(0.0,), high=(1.0,)),
        "classes": ("a", "b"),
        "nominal_size": 4,
        "licence": "none",
        "source": "made here",
    }
    return Dataset(**(given_facts | facts))


def test_a_dataset_tells_the_shape_of_one_example():
    assert make().shape == (2,)
    assert len(make().train) == 4
    assert not make().test_is_public


@given(
    x=hnp.arrays(np.float64, (5, 3), elements=FINITE),
    pair=st.tuples(FINITE, FINITE).filter(lambda p: p[0] < p[1] and np.isfinite(p[1] - p[0])),
)
def test_scaled_values_stay_between_zero_and_one(x, pair):
    low, high = pair
    scaled = Bounds(low=(low,), high=(high,)).clamp_and_scale(x)
    assert scaled.dtype == np.float32
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert (scaled[x <= low] == 0).all()
    assert (scaled[x >= high] == 1).all()


def test_each_column_is_scaled_by_its_own_bounds():
    bounds = Bounds(low=(0.0, 10.0), high=(100.0, 20.0))
    x = np.array([[50.0, 15.0], [-1.0, 30.0]])
    assert bounds.clamp_and_scale(x).tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_narrow_bounds_around_large_values_keep_their_width():
    bounds = Bounds(low=(1e9,), high=(1e9 + 1,))
    assert bounds.clamp_and_scale(np.array([[1e9 + 0.25]])).tolist() == [[0.25]]


def test_bytes_are_scaled_across_blocks():
    x = np.tile(np.array([[0], [51], [255]], dtype=np.uint8), (3000, 1))
    scaled = Bounds(low=(0.0,), high=(255.0,)).clamp_and_scale(x)
    assert np.array_equal(scaled[-3:].ravel(), np.float32([0.0, 0.2, 1.0]))
    assert len(np.unique(scaled)) == 3


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((), ()),
        ((0.0,), (1.0, 2.0)),
        ((1.0,), (1.0,)),
        ((2.0,), (1.0,)),
        ((0.0,), (float("inf"),)),
        ((float("nan"),), (1.0,)),
        ((-1.7e308,), (1.7e308,)),
    ],
)
def test_bad_bounds_are_refused(low, high):
    with pytest.raises(InputError):
        Bounds(low=low, high=high)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"classes": ("a",)}, "too few classes"),
        ({"nominal_size": 0}, "bad nominal size"),
        ({"x": np.zeros((3, 2))}, "differ in number"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, np.int64)}, "zero examples"),
        ({"x": np.full((4, 2), "a")}, "not numbers"),
        ({"x": np.array([[0, 0], [0, 0], [0, np.nan], [0, 0]])}, "in example 2"),
        ({"y": np.array([0, 1, 2, 0])}, "label out of range in example 2"),
        ({"y": np.array([1, 1, 1, 1])}, "the same class"),
        ({"x": np.zeros((4, 3))}, "differ in shape"),
        ({"bounds": Bounds(low=(0.0,) * 3, high=(1.0,) * 3)}, "do not fit the examples"),
    ],
)
def test_bad_data_are_refused_in_one_line(facts, message):
    with pytest.raises(InputError, match=message) as caught:
        make(**facts)
    assert "\n" not in str(caught.value)


def owned(units, **facts):
    x, y = np.arange(4.0)[:, None] + np.zeros((1, 2)), np.array([0, 1, 0, 1])
    return make(train=Split(x=x, y=y, units=np.asarray(units)), **({"unit": "user"} | facts))


def test_units_are_counted_and_a_part_numbers_them_anew():
    train = owned([2, 0, 1, 0]).train
    assert (len(train), train.n_units) == (4, 3)
    assert train.unit_of_record.tolist() == [2, 0, 1, 0]
    part = train.part(np.array([True, True, False, True]))
    assert part.x[:, 0].tolist() == [0, 1, 3]
    assert part.units.tolist() == [1, 0, 0]
    alone = make().train
    assert (alone.n_units, alone.unit_of_record.tolist()) == (4, [0, 1, 2, 3])
    assert alone.part(np.array([True, False, False, False])).units is None


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ([0, 1, 1], "records and their units differ in number"),
        ([[0], [0], [1], [1]], "records and their units differ in number"),
        ([0, 1, 3, 3], "bad unit numbers"),
        ([1, 1, 2, 2], "bad unit numbers"),
        ([0, -1, 1, 1], "bad unit numbers"),
        ([0, 1, 1, 10**15], "bad unit numbers"),
        ([0.0, 0.0, 1.0, 1.0], "bad unit numbers"),
        (["a", "a", "b", "b"], "bad unit numbers"),
    ],
)
def test_bad_units_are_refused(units, message):
    with pytest.raises(InputError, match=message) as caught:
        owned(units)
    assert "\n" not in str(caught.value)


def test_units_of_several_records_need_a_name_of_their_own():
    """Or the card would promise for an example what holds for a user, and the ledger mix them."""
    with pytest.raises(InputError, match=r"no name for them.*unit='user'"):
        owned([0, 0, 1, 1], unit="example")


def test_a_part_that_trains_is_not_checked_again(make_data):
    data = make_data()
    nobody = data.train.part(np.zeros(len(data.train), dtype=bool))
    part = data.training_on(nobody, nominal_size=60)
    assert (len(part.train), part.nominal_size) == (0, 60)
    assert (len(data.train), data.nominal_size) == (80, 80)
    assert part.test is data.test
    assert part.shape == data.shape
