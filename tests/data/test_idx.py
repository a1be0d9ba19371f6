"""IDX files: round trips, the real MNIST, and every way in which a file can be broken."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privet.data import idx, locate
from privet.errors import InputError


def idx_bytes(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


@given(
    array=hnp.arrays(np.uint8, hnp.array_shapes(max_dims=3, min_side=0, max_side=5)),
    packed=st.booleans(),
)
def test_what_is_written_is_read(tmp_path_factory, array, packed):
    path = tmp_path_factory.mktemp("idx") / "file"
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
    assert np.array_equal(idx.read_idx(path), array)


@pytest.mark.parametrize(("separator", "suffix"), [("-", ""), ("-", ".gz"), (".", "")])
def test_a_split_is_read_from_its_folder(tmp_path, separator, suffix):
    images = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
    labels = np.array([7, 3], dtype=np.uint8)
    assert not idx.has_files(tmp_path)
    for stem in ("train", "t10k"):
        for kind, array in ((f"images{separator}idx3", images), (f"labels{separator}idx1", labels)):
            raw = idx_bytes(array)
            path = tmp_path / f"{stem}-{kind}-ubyte{suffix}"
            path.write_bytes(gzip.compress(raw, mtime=0) if suffix else raw)
    assert idx.has_files(tmp_path)
    split = idx.read_split(tmp_path, "test")
    assert np.array_equal(split.x, images[:, np.newaxis])
    assert split.y.tolist() == [7, 3]
    assert split.y.dtype == np.int64


GOOD = idx_bytes(np.zeros((2, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an IDX file"),
        (b"hello, world", "not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\0", "not an IDX file"),  # an IDX file of floats
        (b"\0\0\x08\0", "not an IDX file"),  # without dimensions
        (GOOD[:9], "ends inside its header"),
        (GOOD[:-1], "got 5 bytes of values, expected 6"),
        (GOOD + b"\0", "truncated or corrupt"),
        (gzip.compress(GOOD, mtime=0)[:-4], "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:-8] + b"\0" * 8, "cannot be read"),
        (b"\x1f\x8bnonsense", "cannot be read"),
        (b"\0\0\x08\x02" + b"\xff" * 8, "truncated or corrupt"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path, raw, message):
    path = tmp_path / "file.gz"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message) as caught:
        idx.read_idx(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        idx.read_idx(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no images of the train part"):
        idx.read_split(tmp_path, "train")


def test_labels_cannot_pass_for_images(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(idx_bytes(np.zeros(3, dtype=np.uint8)))
    with pytest.raises(InputError, match="does not hold images"):
        idx.read_split(tmp_path, "train")


MNIST_COUNTS = {
    "train": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "test": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


def test_the_real_mnist_has_its_published_counts_and_mean():
    folder = locate.find_folder("mnist", idx.has_files)
    if folder is None:
        pytest.skip("MNIST is no part of the project and was not found on this machine")
    for part, counts in MNIST_COUNTS.items():
        split = idx.read_split(folder, part)
        assert np.bincount(split.y).tolist() == counts
        assert split.x.shape == (sum(counts), 1, 28, 28)
        if part == "train":
            assert split.x.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
