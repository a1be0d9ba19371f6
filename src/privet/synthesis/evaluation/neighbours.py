"""The nearest of many vectors, by matrix products; exact distances of those found."""

from typing import Final

import numpy as np

from privet.synthesis.evaluation.flattened import Vectors
from privet.synthesis.evaluation.side import Floats, Places

AT_ONCE: Final = 2**24  # distances


def nearest(queries: Vectors, base: Vectors, k: int = 1) -> tuple[Places, Floats]:
    """(queries, k): places of the nearest in `base`, nearest first, and how far they are.

    Found by |q|^2 + |b|^2 - 2 qb in single precision, which blurs distances below about a
    thousandth of the vectors' lengths; those returned are then computed from the differences.
    """
    k = min(k, len(base))
    lengths = (base**2).sum(axis=1)
    chunk = max(1, AT_ONCE // max(len(base), 1))
    parts = []
    for at in range(0, len(queries), chunk):
        apart = lengths - 2 * (queries[at : at + chunk] @ base.T)
        parts.append(np.argpartition(apart, k - 1, axis=1)[:, :k])
    places = np.concatenate(parts).astype(np.int64)
    return _ordered(places, _distances(queries, base, places))


def _distances(queries: Vectors, base: Vectors, places: Places) -> Floats:
    columns = [
        np.linalg.norm((queries - base[column]).astype(np.float64), axis=1) for column in places.T
    ]
    return np.stack(columns, axis=1)


def _ordered(places: Places, distances: Floats) -> tuple[Places, Floats]:
    order = np.argsort(distances, axis=1)
    return np.take_along_axis(places, order, 1), np.take_along_axis(distances, order, 1)
