"""Whose records are whose: users as the data has them, or clients dealt out by label.

`skewed` follows Hsu, Qi and Brown (2019): each client has a mix of labels of its own, drawn from
Dirichlet(alpha); with a small alpha a client has hardly more than one class. Clients may lack
classes altogether.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.federation.draws import Keys, Kind, drawn_from

KEY_BYTES: Final = 8
LONG: Final = 1 << 63  # so that all keys are of the same length

Rows = NDArray[np.int64]


def users_of(data: Dataset) -> list[Rows]:
    """The rows of each user, in the order of their numbers."""
    if data.train.units is None:
        raise InputError(
            f"'{data.name}' does not say whose its records are",
            fix="say how many clients its records are dealt out to: --clients N",
        )
    order = np.argsort(data.train.units, kind="stable")
    ends = np.cumsum(np.bincount(data.train.units))[:-1]
    return [rows.astype(np.int64) for rows in np.split(order, ends)]


def keys_of(data: Dataset) -> Keys:
    """A number of each user by which its public draws are made, from its own records alone.

    Its place among users would not do: where one goes, all behind it move up, and would draw what
    others drew. Users with the same records have the same key, and draw alike.
    """
    x, y = data.train.x, data.train.y
    own = [x[rows].tobytes() + y[rows].tobytes() for rows in users_of(data)]
    digests = [hashlib.blake2b(records, digest_size=KEY_BYTES).digest() for records in own]
    return np.array([int.from_bytes(d, "little") | LONG for d in digests], dtype=np.uint64)


def skewed(
    labels: NDArray[np.int64],
    *,
    clients: int,
    classes: int,
    alpha: float | None,
    lacking: int = 0,
    seed: int = 0,
) -> list[Rows]:
    """Every record to one client, about the same number to each.

    Args:
        labels: of all records.
        clients: how many.
        classes: of the data.
        alpha: of Dirichlet; None: records are dealt out at random.
        lacking: how many classes each client has no record of, where records allow it.
        seed: the same seed, the same clients.
    """
    if not 1 <= clients <= len(labels):
        raise InputError(
            "bad number of clients", got=clients, expected=f"1..{len(labels)}, one record each"
        )
    if alpha is not None and not 0 < alpha < float("inf"):
        raise InputError("bad skew", got=alpha, expected="alpha > 0", fix="try 0.3")
    if not 0 <= lacking < classes:
        raise InputError("bad number of lacking classes", got=lacking, expected=f"0..{classes - 1}")
    draw = drawn_from(seed, Kind.DEAL)
    if alpha is None and not lacking:
        return [np.sort(part) for part in np.array_split(draw.permutation(len(labels)), clients)]
    mixes = _mixes(draw, clients, classes, alpha, lacking)
    return _dealt(draw, labels, mixes)


def _mixes(
    draw: np.random.Generator, clients: int, classes: int, alpha: float | None, lacking: int
) -> NDArray[np.float64]:
    """The label mix of each client, one a row."""
    mixes = np.full((clients, classes), 1.0 / classes)
    if alpha is not None:
        mixes = draw.dirichlet(np.full(classes, alpha), clients) + 1e-12
    if lacking:
        gone = draw.random((clients, classes)).argsort(1)[:, :lacking]
        np.put_along_axis(mixes, gone, 0.0, axis=1)
    return np.asarray(mixes / mixes.sum(1, keepdims=True))


def _dealt(
    draw: np.random.Generator, labels: NDArray[np.int64], mixes: NDArray[np.float64]
) -> list[Rows]:
    """Clients take turns; each takes a record of a class by its mix, if there is one left.

    A client whose classes are all gone takes what there is: no record is lost.
    """
    clients, classes = mixes.shape
    stacks = [list(draw.permutation(np.flatnonzero(labels == c))) for c in range(classes)]
    hands: list[list[int]] = [[] for _ in range(clients)]
    for turn in range(len(labels)):
        client = turn % clients
        left = np.array([bool(stack) for stack in stacks])
        odds = mixes[client] * left
        odds = odds if odds.sum() > 0 else left.astype(float)
        label = int(draw.choice(classes, p=odds / odds.sum()))
        hands[client].append(int(stacks[label].pop()))
    return [np.sort(np.array(hand, dtype=np.int64)) for hand in hands]


def sizes(clients: Sequence[Rows]) -> NDArray[np.int64]:
    """How many records each client has."""
    return np.array([len(rows) for rows in clients], dtype=np.int64)
