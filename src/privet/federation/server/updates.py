"""How an update travels: safetensors with one F32 tensor `change`, and nothing else.

Read without copying and without any code of the sender's. Whatever is not exactly that is refused,
whoever sent it: the form says nothing about the records behind it.
"""

import json
import math
from typing import Any, Final

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from privet.errors import InputError

CHANGE: Final = "change"
TOTAL: Final = "total"
MOST_HEADER: Final = 1024
Vector = NDArray[np.float32]


class Malformed(InputError):  # noqa: N818 - names the fact
    """Bytes that are no update of this model."""


def packed(change: Vector) -> bytes:
    """The bytes that a phone sends."""
    return safetensors.numpy.save({CHANGE: np.ascontiguousarray(change, dtype=np.float32)})


def most_bytes(size: int) -> int:
    """How long an update of a model of `size` numbers may be."""
    return 8 + MOST_HEADER + 4 * size


def unpacked(content: bytes | memoryview, size: int) -> Vector:
    """The change, a view of the bytes; they may hold NaN and infinity."""
    return _only(content, CHANGE, "F32", np.dtype("<f4"), size)


def packed_sum(total: NDArray[np.float64]) -> bytes:
    """A sum of many updates, in double precision."""
    return safetensors.numpy.save({TOTAL: np.ascontiguousarray(total, dtype=np.float64)})


def unpacked_sum(content: bytes | memoryview, size: int) -> NDArray[np.float64]:
    """The sum, a view of the bytes."""
    return _only(content, TOTAL, "F64", np.dtype("<f8"), size)


def is_finite(change: NDArray[Any]) -> bool:
    """Whether all numbers are; the square sum is quick, and may overflow by itself."""
    with np.errstate(over="ignore", invalid="ignore"):
        quick = math.isfinite(float(np.dot(change, change)))
    return quick or bool(np.isfinite(change).all())


def norm_of(change: Vector) -> float:
    """The L2 norm, in double precision."""
    return float(np.linalg.norm(change.astype(np.float64)))


def _only(
    content: bytes | memoryview, name: str, kind: str, dtype: np.dtype[Any], size: int
) -> NDArray[Any]:
    view = memoryview(content)
    begin = 8 + int.from_bytes(view[:8], "little")
    if not 8 < begin <= 8 + MOST_HEADER or len(view) != begin + dtype.itemsize * size:
        raise Malformed(
            "an update of another length", got=f"{len(view)} bytes", expected=f"{size} numbers"
        )
    wanted = {"dtype": kind, "shape": [size], "data_offsets": [0, dtype.itemsize * size]}
    try:
        header = json.loads(bytes(view[8:begin]))
    except (ValueError, RecursionError):
        header = None
    if header != {name: wanted}:
        raise Malformed(
            "an update of another form", expected=f"one tensor '{name}': {kind}[{size}]"
        )
    return np.frombuffer(view, dtype=dtype, count=size, offset=begin)
