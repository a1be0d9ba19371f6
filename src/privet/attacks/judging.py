"""Whether a random classifier hits more often than not: draws until it is decided.

| here | meaning |
|---|---|
| p | chance that a draw hits: that it names the true class, or the target |
| hits | in the draws so far |

A fixed number of draws decides like a coin where p is near a half, and the coin flatters. So draws
go on, image by image, until p > 1/2 or p < 1/2 is established (`confidence.exceeds`). What is open
after `MOST` draws stays open: the caller counts it against the classifier.

Guarantee. For every image, P(ABOVE) <= ALPHA if p <= 1/2, and P(BELOW) <= ALPHA if p >= 1/2.

Proof note. `exceeds` may be asked after every draw, at level ALPHA in all; misses are hits of
chance 1 - p. Draws of one image must be independent; those of two images need not be.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

import torch
from torch import Tensor

from privet.privacy.confidence import exceeds

ALPHA: Final = 1e-3
MOST: Final = 1000

ABOVE: Final = 1
BELOW: Final = -1
OPEN: Final = 0


def decided(draw: Callable[[Tensor], Tensor], count: int) -> Tensor:
    """ABOVE, BELOW or OPEN for each of `count` images.

    Args:
        draw: from the numbers of images to whether a fresh draw hits, for each of them.
        count: images.
    """
    verdicts, rows = torch.full((count,), OPEN), torch.arange(count)
    hits, asked = torch.zeros(count, dtype=torch.int64), 0
    while len(rows) and asked < MOST:
        hits[rows] += draw(rows).cpu().long()
        asked += 1
        above = hits[rows] >= _enough()[asked]
        below = asked - hits[rows] >= _enough()[asked]
        verdicts[rows[above]], verdicts[rows[below]] = ABOVE, BELOW
        rows = rows[~(above | below)]
    return verdicts


@cache
def _enough() -> list[int]:
    """The least hits that establish p > 1/2, after each number of draws.

    Evidence rises with hits and falls with misses, so the numbers never fall.
    """
    needed = [1]
    for asked in range(1, MOST + 1):
        least = needed[-1]
        while least <= asked and not exceeds(least, asked, 0.5, ALPHA):
            least += 1
        needed.append(least)
    return needed
