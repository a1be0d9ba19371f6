"""CIFAR-10 in its three forms, the real test batch, and pickles that mean harm."""

import hashlib
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privet.data import cifar, locate
from privet.errors import InputError

NAMES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 4, 3, 32, 32), dtype=np.uint8)  # 6 batches of 4 images
LABELS = RNG.integers(0, 10, (6, 4))


def write_sheets(folder):
    for name, images in zip(NAMES, PIXELS, strict=True):
        tiles = images.transpose(0, 2, 3, 1)
        sheet = np.vstack([np.hstack(tiles[:2]), np.hstack(tiles[2:])])
        Image.fromarray(sheet).save(folder / f"{name}.webp", lossless=True)
    np.savez(folder / "labels.npz", train=LABELS[:5].ravel(), test=LABELS[5])


def write_binary(folder):
    for name, images, labels in zip(NAMES, PIXELS, LABELS, strict=True):
        records = [bytes([y]) + x.tobytes() for x, y in zip(images, labels, strict=True)]
        (folder / f"{name}.bin").write_bytes(b"".join(records))


def write_pickles(folder):
    for name, images, labels in zip(NAMES, PIXELS, LABELS, strict=True):
        content = {"data": images.reshape(4, -1), "labels": labels.tolist(), "batch_label": name}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def python2_pickle(images, labels):
    """Write the opcodes of the public files: byte strings, and numpy's old module names."""
    out = io.BytesIO()

    def put(raw, op=b"T"):
        out.write(op + len(raw).to_bytes(4, "little") + raw)

    out.write(b"\x80\x02}(")
    put(b"data")
    out.write(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01")
    out.write(b"K\x04M" + (3072).to_bytes(2, "little") + b"\x86")
    out.write(b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNK\x00K\x00K\x00tb\x89")
    put(images.tobytes())
    out.write(b"tb")
    put(b"labels")
    out.write(b"(" + b"".join(b"K" + bytes([y]) for y in labels) + b"lu.")
    return out.getvalue()


def write_python2_pickles(folder):
    for name, images, labels in zip(NAMES, PIXELS, LABELS, strict=True):
        (folder / name).write_bytes(python2_pickle(images, labels.tolist()))


WRITERS = [write_sheets, write_binary, write_pickles, write_python2_pickles]


@pytest.mark.parametrize("write", WRITERS)
def test_every_form_gives_the_same_images(tmp_path, write):
    assert not cifar.has_files(tmp_path)
    write(tmp_path)
    assert cifar.has_files(tmp_path)
    train, test = (cifar.read_split(tmp_path, part) for part in ("train", "test"))
    assert train.x.dtype == np.uint8
    assert np.array_equal(train.x, PIXELS[:5].reshape(-1, 3, 32, 32))
    assert np.array_equal(train.y, LABELS[:5].ravel())
    assert np.array_equal(test.x, PIXELS[5])
    assert test.y.tolist() == LABELS[5].tolist()


def test_an_array_in_fortran_order_is_read(tmp_path):
    write_pickles(tmp_path)
    flat = np.asfortranarray(PIXELS[5].reshape(4, -1))
    content = {"data": flat, "labels": LABELS[5].tolist()}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    assert np.array_equal(cifar.read_split(tmp_path, "test").x, PIXELS[5])


class Harm:
    """Writes a file when unpickled, as a stranger's pickle may."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "harm")


def test_the_planted_pickle_would_do_harm(tmp_path):
    pickle.loads(pickle.dumps(Harm(tmp_path / "harm")))
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path, protocol):
    write_pickles(tmp_path)
    content = {"data": Harm(tmp_path / "harm"), "labels": [0]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(InputError, match="which is refused"):
        cifar.read_split(tmp_path, "test")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "corrupt"),
        (b"not a pickle", "corrupt"),
        (b"cbuiltins\neval\n(U\x031+1tR.", "'builtins.eval', which is refused"),
        (b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.", "'numpy.load', which is refused"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.", "codec 'rot13'"),
        (b"\x80\x02cnumpy\ndtype\n(U\x02f8tR.", "not of bytes"),
        (pickle.dumps([1, 2]), "corrupt"),
        (pickle.dumps({"labels": [1]}), "corrupt"),
        (pickle.dumps({"data": [[0] * 3072], "labels": [1]}), "corrupt"),
        (pickle.dumps({"data": np.zeros((2, 9), "u1"), "labels": [1, 2]}, 2), "corrupt"),
    ],
)
def test_a_broken_pickle_is_refused_in_one_line(tmp_path, raw, message):
    write_pickles(tmp_path)
    (tmp_path / "test_batch").write_bytes(raw)
    with pytest.raises(InputError, match=message) as caught:
        cifar.read_split(tmp_path, "test")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"\0" * 3072, b"\0" * 3074])
def test_a_binary_batch_of_the_wrong_length_is_refused(tmp_path, raw):
    write_binary(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(raw)
    with pytest.raises(InputError, match="truncated or corrupt"):
        cifar.read_split(tmp_path, "test")


def test_broken_sheets_are_refused(tmp_path):
    write_sheets(tmp_path)
    sheet = tmp_path / "test_batch.webp"
    sheet.write_bytes(sheet.read_bytes()[:100])
    with pytest.raises(InputError, match="corrupt"):
        cifar.read_split(tmp_path, "test")
    Image.new("RGB", (33, 64)).save(sheet, lossless=True)
    with pytest.raises(InputError, match="no sheet of 32 x 32 tiles"):
        cifar.read_split(tmp_path, "test")
    Image.new("RGB", (32, 64)).save(sheet, lossless=True)
    with pytest.raises(InputError, match="does not match the sheets"):
        cifar.read_split(tmp_path, "test")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no CIFAR-10 batches"):
        cifar.read_split(tmp_path, "train")


def test_the_real_test_batch_is_bit_identical_to_the_published_one():
    folder = locate.find_folder("cifar10", cifar.has_files)
    if folder is None:
        pytest.skip("CIFAR-10 is no part of the project and was not found on this machine")
    split = cifar.read_split(folder, "test")
    pixels = np.ascontiguousarray(split.x.transpose(0, 2, 3, 1)).tobytes()
    known = "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
    assert hashlib.sha256(pixels).hexdigest() == known
    assert split.y[:8].tolist() == [3, 8, 8, 0, 6, 6, 1, 6]
    assert np.bincount(split.y).tolist() == [1000] * 10
