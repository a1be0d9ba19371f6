"""Synthetic records under audit: whether a generator gives a training record away.

    def generate(records, seed):    # records: (n, d) numbers
        ...
        return made                 # (m, d) synthetic records

| audit        | what it says                                                                  |
|--------------|-------------------------------------------------------------------------------|
| `targeted`   | scores of generators with and without one record: an estimator of `two_worlds`, |
|              | `gaussian` bounds epsilon with them                                           |
| `nearest`    | how near synthetic records are to training and to other records: describes    |

The score of a target is how near the synthetic records come to it: minus the distance to the k-th
nearest. A generator that copies comes near; so does one for which the target is typical, in both
worlds alike. So the target should be an outlier, such as no other record teaches.

Distances bound nothing. A generator may keep all distances large and still leak, and a sound one
may come near by chance: what `nearest` finds is a description, kept in `internal/`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from privet.errors import InputError

Floats = NDArray[np.float64]


class Generate(Protocol):
    """Learns from records and makes others."""

    def __call__(self, records: Floats, seed: int) -> ArrayLike:
        """Synthetic records, with as many columns."""


def targeted(
    generate: Generate,
    records: ArrayLike,
    target: ArrayLike,
    *,
    runs: int,
    k: int = 1,
    seed: int = 0,
    watch: Callable[[int, int], object] = lambda *_: None,
) -> tuple[Floats, Floats]:
    """Scores of one record under generators that learned without it and with it, `runs` of each.

    Args:
        generate: the generator; the seed is all that it may draw from.
        records: the others.
        target: the record in question.
        runs: in each world.
        k: which of the nearest synthetic records counts.
        seed: of the seeds that the generator is given.
        watch: told how many of how many are done.
    """
    others, one = _table(records), np.asarray(target, dtype=float)
    if one.shape != others.shape[1:]:
        raise InputError(
            "the target is no such record", got=f"shape {one.shape}", expected=f"{others.shape[1:]}"
        )
    worlds = others, np.vstack([others, one])
    seeds = np.random.default_rng(seed).integers(0, 2**31, (runs, 2))
    scores = np.empty((2, runs))
    for run in range(runs):
        for included, known in enumerate(worlds):
            made = _table(generate(known, int(seeds[run, included])))
            scores[included, run] = -_kth_nearest(made, one[None], k)[0]
            watch(2 * run + included + 1, 2 * runs)
    return scores[0], scores[1]


@final
@dataclass(frozen=True, kw_only=True)
class Nearness:
    """How near synthetic records are to those learned from, and to others.

    Attributes:
        to_training, to_others: median distances of a synthetic record to the nearest one.
        nearer_to_training: the share that is nearer to training; near a half if both are alike
            and of one number.
        copies: the share at distance 0 of a training record.
    """

    to_training: float
    to_others: float
    nearer_to_training: float
    copies: float

    def to_json(self) -> dict[str, Any]:
        """With the word that this is a description."""
        return vars(self) | {"private": "a description from training records: not for release"}


def nearest(synthetic: ArrayLike, training: ArrayLike, others: ArrayLike) -> Nearness:
    """Describe nearness; `others` are as many records from the same source, not learned from."""
    made = _table(synthetic)
    near, far = (_kth_nearest(_table(known), made, 1) for known in (training, others))
    return Nearness(
        to_training=float(np.median(near)),
        to_others=float(np.median(far)),
        nearer_to_training=float(np.mean(near < far) + np.mean(near == far) / 2),
        copies=float(np.mean(near == 0)),
    )


def _kth_nearest(known: Floats, asked: Floats, k: int) -> Floats:
    if not 1 <= k <= len(known):
        raise InputError("too few records", got=f"{len(known)}", expected=f"at least k = {k}")
    distances, _ = cKDTree(known).query(asked, k=[k])
    found: Floats = np.asarray(distances)[:, 0]
    return found


def _table(records: ArrayLike) -> Floats:
    table = np.asarray(records, dtype=float)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise InputError(
            "no table of numbers", got=f"shape {table.shape}", expected="(records, columns), finite"
        )
    return table
