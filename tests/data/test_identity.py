import numpy as np

from privet.data.dataset import Bounds, Split
from privet.data.identity import row_digests, set_digest

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def split(x, y=None):
    return Split(x=x, y=np.arange(len(x)) % 2 if y is None else y)


def images(make_data, x, high, **changes):
    return make_data(
        train=split(x), test=split(x), bounds=Bounds(low=(0.0,), high=(high,)), **changes
    )


def test_the_same_image_as_bytes_and_as_floats_is_recognised(make_data):
    x = np.random.default_rng(0).integers(0, 256, (10, 1, 4, 4)).astype(np.uint8)
    as_bytes = images(make_data, x, 255.0)
    as_floats = images(make_data, (x / 255.0).astype(np.float32), 1.0)
    assert set(row_digests(as_bytes, KEY)) & set(row_digests(as_floats, KEY))


def test_the_same_table_under_other_bounds_is_recognised(make_data):
    data = make_data()
    widened = make_data(bounds=Bounds(low=(-3.0,), high=(7.0,)))
    shared = set(row_digests(data, KEY)) & set(row_digests(widened, KEY))
    assert len(shared) == len(data.train)


def test_relabelled_records_are_still_the_same(make_data):
    data = make_data()
    flipped = make_data(train=split(data.train.x, 1 - data.train.y))
    assert row_digests(data, KEY) == row_digests(flipped, KEY)
    assert set_digest(data, KEY) != set_digest(flipped, KEY)


def test_other_records_have_other_digests(make_data):
    one, other = make_data(seed=0), make_data(seed=1)
    assert not set(row_digests(one, KEY)) & set(row_digests(other, KEY))


def test_digests_need_the_key(make_data):
    data = make_data()
    assert not set(row_digests(data, KEY)) & set(row_digests(data, OTHER_KEY))
    assert set_digest(data, KEY) != set_digest(data, OTHER_KEY)


def test_the_set_digest_does_not_depend_on_the_order_but_on_every_record(make_data):
    data = make_data()
    order = np.random.default_rng(0).permutation(len(data.train))
    shuffled = make_data(train=split(data.train.x[order], data.train.y[order]))
    fewer = make_data(train=split(data.train.x[1:], data.train.y[1:]))
    assert set_digest(data, KEY) == set_digest(shuffled, KEY)
    assert set_digest(data, KEY) != set_digest(fewer, KEY)
