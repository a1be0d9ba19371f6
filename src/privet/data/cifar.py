"""Readers of CIFAR-10 in three forms: lossless WebP sheets, binary batches, pickled batches.

All give uint8 images in the order (N, 3, 32, 32) and the labels 0..9.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Split
from privet.data.tables import read_npz
from privet.errors import FaultyEnvironment, InputError

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}


def read_split(folder: Path, part: str) -> Split:
    """Read `part`, "train" or "test", in whichever of the three forms `folder` holds."""
    for suffix, reader in _READERS.items():
        if _has_batches(folder, suffix):
            return reader(folder, part)
    raise InputError(
        "no CIFAR-10 batches", got=folder, expected="data_batch_1..5 and test_batch in one form"
    )


def has_files(folder: Path) -> bool:
    """Say whether all batches of one form lie in `folder`; reads none of them."""
    return any(_has_batches(folder, suffix) for suffix in _READERS)


def _has_batches(folder: Path, suffix: str) -> bool:
    names = [f"{name}{suffix}" for part in _BATCHES.values() for name in part]
    if suffix == ".webp":
        names.append("labels.npz")
    return all((folder / name).is_file() for name in names)


def _read_sheets(folder: Path, part: str) -> Split:
    paths = [folder / f"{name}.webp" for name in _BATCHES[part]]
    with ThreadPoolExecutor() as pool:  # decoding releases the interpreter's lock
        x = np.concatenate(list(pool.map(_read_sheet, paths)))
    (labels,) = read_npz(folder / "labels.npz", (part,))
    if labels.dtype.kind not in "ui" or labels.shape != (len(x),):
        raise InputError(
            f"{folder / 'labels.npz'} does not match the sheets",
            got=f"labels '{part}' of {labels.dtype}, shape {labels.shape}",
            expected=f"{len(x)} whole numbers",
        )
    return Split(x=x, y=labels.astype(np.int64))


def _read_sheet(path: Path) -> NDArray[np.uint8]:
    """Cut a sheet of 32 x 32 tiles, in row-major order, into images."""
    from PIL import Image, features

    if not features.check("webp"):
        raise FaultyEnvironment(
            "this Pillow cannot read WebP", fix="pip install --force-reinstall pillow"
        )
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    rows, columns = pixels.shape[0] // _SIDE, pixels.shape[1] // _SIDE
    if pixels.shape != (rows * _SIDE, columns * _SIDE, 3):
        raise InputError(f"{path} is no sheet of 32 x 32 tiles", got=pixels.shape[:2])
    tiles = pixels.reshape(rows, _SIDE, columns, _SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles).reshape(-1, 3, _SIDE, _SIDE)


def _read_binary(folder: Path, part: str) -> Split:
    batches = [_read_binary_batch(folder / f"{name}.bin") for name in _BATCHES[part]]
    return _join(batches)


def _read_binary_batch(path: Path) -> Split:
    """Read records of one label byte and 3,072 pixel bytes, red plane first."""
    raw = np.fromfile(path, dtype=np.uint8)
    if len(raw) == 0 or len(raw) % (1 + _PIXELS):
        raise InputError(
            f"{path} is truncated or corrupt",
            got=f"{len(raw)} bytes",
            expected=f"a positive multiple of {1 + _PIXELS}",
            fix="fetch the file again",
        )
    records = raw.reshape(-1, 1 + _PIXELS)
    return _batch(records[:, 1:], records[:, 0])


def _read_pickles(folder: Path, part: str) -> Split:
    return _join([_read_pickled_batch(folder / name) for name in _BATCHES[part]])


def _read_pickled_batch(path: Path) -> Split:
    try:
        with path.open("rb") as stream:
            content = _ArraysOnly(stream, encoding="bytes").load()
        # Keys are bytes where Python 2 wrote the file (the public one), text otherwise.
        fields = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
        labels = np.asarray(fields["labels"], dtype=np.int64)
        pixels = fields["data"].to_numpy().reshape(len(labels), _PIXELS)
    except Exception as error:  # a corrupt pickle may raise anything
        raise _unreadable(path, error) from error
    return _batch(pixels, labels)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can build byte arrays and nothing else.

    A pickle is a program: its opcodes call any importable function, so loading a stranger's
    file runs a stranger's code. Here the names that an array of bytes needs lead to stand-ins
    of ours, which call nothing, and every other name is refused before it is imported.
    """

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
            ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
            ("numpy", "ndarray"): None,  # only ever an argument of _reconstruct
            ("numpy", "dtype"): _PickledDtype,
            ("_codecs", "encode"): _encode_latin1,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for '{module}.{name}', which is refused")
        return allowed[module, name]


class _PickledArray:
    """Stands in for numpy's `_reconstruct` and keeps the state that follows it."""

    def __init__(self, *_prototype: object) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def to_numpy(self) -> NDArray[np.uint8]:
        """Build the array from its bytes."""
        _version, shape, _dtype, is_fortran, raw = self._state
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if is_fortran else "C")


class _PickledDtype:
    """Stands in for `numpy.dtype`: unsigned bytes, whose state says nothing more."""

    def __init__(self, code: str | bytes, *_flags: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it holds an array of {code!r}, not of bytes")

    def __setstate__(self, state: object) -> None: ...


def _encode_latin1(text: str, encoding: str) -> bytes:
    # How Python 3 writes bytes in old pickles; other codecs are code that we need not run.
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec '{encoding}', which is refused")
    return text.encode("latin1")


def _batch(pixels: NDArray[np.uint8], labels: NDArray[Any]) -> Split:
    x = pixels.reshape(-1, 3, _SIDE, _SIDE)
    return Split(x=x, y=labels.astype(np.int64))


def _join(batches: list[Split]) -> Split:
    return Split(
        x=np.concatenate([batch.x for batch in batches]),
        y=np.concatenate([batch.y for batch in batches]),
    )


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"{path} is corrupt: {reason}", fix="fetch the file again")


_READERS: dict[str, Callable[[Path, str], Split]] = {
    ".webp": _read_sheets,
    ".bin": _read_binary,
    "": _read_pickles,
}
