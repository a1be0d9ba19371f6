"""Public facts learned from private records, each with pure epsilon and a charge in the ledger.

Guarantee: `learn_size` and `learn_bounds` are epsilon-DP under add/remove neighbours (Laplace
mechanism on counts) for what they are given one row of each: records, or units if only one record
of each unit is given (`one_of_each`). Under replace-one they are 2 epsilon-DP.

Bounds follow the usual approach for unknown ranges: every row adds one to the bucket of its
value on a public scale of powers of two; a bucket counts as occupied where its noisy count passes
a threshold that empty buckets all stay below with probability 1 - FAILURE.
"""

import math
from collections.abc import Sequence
from typing import Final

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import LearnedFact, Split
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.noise import LaplaceNoise
from privet.privacy.randomness import SecretStream

FAILURE: Final = 1e-6
EXPONENTS: Final = range(-20, 41)
# Upper ends of the buckets: -2^40 ... -2^-20, 0, 2^-20 ... 2^40. Public, whatever the data.
EDGES: Final = np.array(
    [-(2.0**e) for e in reversed(EXPONENTS)] + [0.0] + [2.0**e for e in EXPONENTS]
)


def learn_size(n: int, epsilon: float, stream: SecretStream) -> int:
    """A noisy count of `n` units, at least 1."""
    noise = LaplaceNoise(scale=1.0 / _positive(epsilon), sensitivity=1.0)
    noisy = noise.add_to(np.array([float(n)]), step=0, stream=stream)
    return max(1, round(float(noisy[0])))


def one_of_each(records: Split, stream: SecretStream) -> NDArray[np.int64]:
    """The places of one record of each unit, chosen at random.

    Proof note: given all records of a unit, a count of values would move by as many as it has. A
    unit's choice is a function of its own records and of a draw of its own, so adding or removing
    a unit adds or removes one chosen record and leaves the law of the others as it was. For each
    outcome of the draws the counts are neighbours; hence so are their mixtures.
    """
    counts = np.bincount(records.unit_of_record)
    draws = stream.uniform(len(counts), purpose="one of each unit", step=0)
    order = np.argsort(records.unit_of_record, kind="stable")
    starts = np.cumsum(counts) - counts
    chosen: NDArray[np.int64] = order[starts + (draws * counts).astype(np.int64)]
    return chosen


def learn_bounds(
    columns: NDArray[np.float64], epsilon: float, stream: SecretStream
) -> list[tuple[float, float]]:
    """Bounds of each column, powers of two that cover (nearly) all occupied buckets.

    All columns share `epsilon`: a row adds one to one bucket of each, so the L1 sensitivity of
    all counts together is the number of columns.
    """
    n_columns = columns.shape[1]
    noise = LaplaceNoise(scale=1.0 / _positive(epsilon), sensitivity=float(n_columns))
    buckets = np.clip(np.searchsorted(EDGES, columns, side="left"), 0, len(EDGES) - 1)
    counts = np.stack(
        [np.bincount(buckets[:, j], minlength=len(EDGES)) for j in range(n_columns)]
    ).astype(np.float64)
    noisy = noise.add_to(counts, step=0, stream=stream)
    # P(Laplace(s) > t) = exp(-t/s)/2 for each of the counts.
    threshold = n_columns / epsilon * math.log(counts.size / (2.0 * FAILURE))
    return [_occupied_range(row > threshold, j) for j, row in enumerate(noisy)]


def charge(ledger: Ledger, dataset: str, facts: Sequence[LearnedFact]) -> None:
    """Enter what was learned, before anyone is told it."""
    for fact in facts:
        event = dp.LaplaceDpEvent(1.0 / fact.epsilon)
        run = ledger.reserve(dataset, label=f"learn {fact.name}", step_event=event, steps=1)
        ledger.charge(run, 0)
        ledger.settle(run)


def _occupied_range(occupied: NDArray[np.bool_], column: int) -> tuple[float, float]:
    found = np.flatnonzero(occupied)
    if len(found) == 0:
        raise InputError(
            f"too little data or epsilon to learn the bounds of column {column}",
            fix="declare the bounds, or allow a larger epsilon",
        )
    low = EDGES[found[0] - 1] if found[0] > 0 else 2.0 * EDGES[0]
    return float(low), float(EDGES[found[-1]])


def _positive(epsilon: float) -> float:
    if not 0 < epsilon < math.inf:
        raise InputError("bad epsilon", got=epsilon, expected="a positive, finite number")
    return epsilon
