"""Public draws: each kind of thing has a stream of its own, whatever its numbers are.

What a seed sequence is made of is padded with zeros, so (s, c) and (s, c, 0) are one stream. Here
the kind comes second and is never zero, and a kind always has as many numbers behind it.

What is drawn for one client is drawn by its key (`clients.keys_of`), never by its place among
others: a client that comes or goes leaves the draws of all others as they are.
"""

from enum import IntEnum
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

MOST_PLACES: Final = 2


@final
class Kind(IntEnum):
    """What is drawn, and what its numbers are."""

    LESSON = 1  # client, turn
    DELAY = 2  # client, round; by `share_of_each`
    COHORT = 3  # round
    DROPOUT = 4  # client, turn
    PHONE = 5  # client
    DEAL = 6  # of made-up clients
    VOLUNTEER = 7  # user
    POOL = 8
    TURN = 9  # client


def drawn_from(seed: int, kind: Kind, *places: int) -> np.random.Generator:
    """The stream of one thing."""
    assert len(places) <= MOST_PLACES
    return np.random.default_rng((seed, int(kind), *places))


def share_of_each(seed: int, kind: Kind, keys: Keys, *places: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each client, for a great many of them at once.

    By the finalizer of SplitMix64, so that it takes a few operations on vectors, not a generator
    for each. What one gets depends on its own key alone.
    """
    whole = np.random.SeedSequence((seed, int(kind), *places)).generate_state(1, np.uint64)[0]
    z = keys * np.uint64(0x9E3779B97F4A7C15) + whole
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.asarray((z >> np.uint64(11)) * 2.0**-53)
