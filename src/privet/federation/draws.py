"""Public draws: each kind of thing has a stream of its own, whatever its numbers are.

What a seed sequence is made of is padded with zeros, so (s, c) and (s, c, 0) are one stream. Here
the kind comes second and is never zero, and a kind always has as many numbers behind it.
"""

from enum import IntEnum
from typing import Final, final

import numpy as np

MOST_PLACES: Final = 2


@final
class Kind(IntEnum):
    """What is drawn, and what its numbers are."""

    LESSON = 1  # client, turn
    DELAY = 2  # round
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
