"""Reader of IDX files, plain or gzipped: the format of MNIST and Fashion-MNIST."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Split
from privet.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08  # the only element type of the sets we read
_STEMS = {"train": "train", "test": "t10k"}
_KINDS = {"images": 3, "labels": 1}  # and their number of dimensions


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes; its header must account for every byte."""
    raw = _read_bytes(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE or raw[3] == 0:
        raise InputError(
            f"{path} is not an IDX file of unsigned bytes",
            got=f"header {raw[:4].hex() or 'nothing'}",
            expected="0000 08 and the number of dimensions",
        )
    n_dims = raw[3]
    start = 4 + 4 * n_dims
    if len(raw) < start:
        raise InputError(f"{path} ends inside its header", got=f"{len(raw)} bytes")
    dims = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4))
    if len(raw) - start != math.prod(dims):
        raise InputError(
            f"{path} is truncated or corrupt",
            got=f"{len(raw) - start} bytes of values",
            expected=f"{math.prod(dims)} for the dimensions {dims} of its header",
            fix="fetch the file again",
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(dims)


def read_split(folder: Path, part: str) -> Split:
    """Read the images (N, 1, H, W) and labels of `part`, "train" or "test", in `folder`."""
    images, labels = (_read_part(folder, part, kind) for kind in _KINDS)
    return Split(x=images[:, np.newaxis].copy(), y=labels.astype(np.int64))


def has_files(folder: Path) -> bool:
    """Say whether all four files lie in `folder`; reads none of them."""
    return all(_find(folder, part, kind) for part in _STEMS for kind in _KINDS)


def _read_part(folder: Path, part: str, kind: str) -> NDArray[np.uint8]:
    path = _find(folder, part, kind)
    if path is None:
        raise InputError(f"no {kind} of the {part} part", got=folder, expected="an IDX file")
    array = read_idx(path)
    if array.ndim != _KINDS[kind]:
        raise InputError(
            f"{path} does not hold {kind}",
            got=f"{array.ndim} dimensions",
            expected=str(_KINDS[kind]),
        )
    return array


def _find(folder: Path, part: str, kind: str) -> Path | None:
    # Some mirrors write a dot for the second hyphen.
    stems = [f"{_STEMS[part]}-{kind}{sep}idx{_KINDS[kind]}-ubyte" for sep in "-."]
    paths = [folder / f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None)


def _read_bytes(path: Path) -> bytes:
    # What the file holds decides, not its name: mirrors unpack without renaming.
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw
    except FileNotFoundError:
        raise InputError("file not found", got=path) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}", fix="fetch the file again") from error
