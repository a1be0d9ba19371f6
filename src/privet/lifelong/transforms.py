"""What a task does to all of its images: a permutation of the values, or a rotation.

Both are public and the same for every image, so they cost nothing. Nothing here looks at values.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def permutation(size: int, *, seed: int, task: int) -> NDArray[np.int64]:
    """The order of the values in task number `task`, from 0: a matter of seed and task alone.

    By sorting raw draws of PCG64, whose stream numpy keeps from version to version; it does not
    promise so of its shuffling.
    """
    draws = np.random.PCG64(np.random.SeedSequence([seed, task])).random_raw(size)
    return np.argsort(draws, kind="stable").astype(np.int64)


def permute(x: NDArray[np.generic], order: NDArray[np.int64]) -> NDArray[np.generic]:
    """Value `order[i]` of each example at place i, all axes of an example taken as one."""
    return x.reshape(len(x), len(order))[:, order].reshape(x.shape)


def rotate(x: NDArray[np.generic], degrees: float) -> NDArray[np.generic]:
    """Images (N, C, H, W) turned about their centre, against the clock, by bilinear interpolation.

    What comes in at the corners is 0. Whole numbers stay whole: rounded, of the same type.
    """
    height, width = x.shape[-2:]
    turn = _rotation(height, width, degrees)
    flat = x.reshape(-1, height * width)
    turned = np.empty(flat.shape, dtype=x.dtype)
    for start in range(0, len(flat), 8192):  # in blocks: floats take eight times the room of bytes
        block = (turn @ flat[start : start + 8192].T.astype(np.float64)).T
        turned[start : start + 8192] = np.rint(block) if x.dtype.kind in "ui" else block
    return turned.reshape(x.shape)


@lru_cache(maxsize=32)
def _rotation(height: int, width: int, degrees: float) -> Any:
    """The sparse matrix that takes a flat image to the turned one: four weights for each pixel."""
    from scipy.sparse import csr_array

    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rows, columns = np.divmod(np.arange(height * width), width)
    down, right = rows - (height - 1) / 2, columns - (width - 1) / 2
    from_row = cos * down + sin * right + (height - 1) / 2
    from_column = -sin * down + cos * right + (width - 1) / 2
    row, column = np.floor(from_row).astype(int), np.floor(from_column).astype(int)
    parts = []
    for lower in (0, 1):
        for righter in (0, 1):
            weight = np.abs(1 - lower - (from_row - row)) * np.abs(
                1 - righter - (from_column - column)
            )
            r, c = row + lower, column + righter
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            parts.append(((r * width + c)[inside], np.flatnonzero(inside), weight[inside]))
    sources, targets, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return csr_array((weights, (targets, sources)), shape=(height * width, height * width))
