"""A record randomised by itself, once: whatever is learned afterwards is post-processing.

| symbol | here         | meaning                                                                 |
|--------|--------------|-------------------------------------------------------------------------|
| N      | `places`     | the declared size: how many randomised records there are, always        |
| d'     | `dimensions` | numbers of a record                                                     |
| c      | `norm`       | bound on the L1 norm of a record, enforced by shortening it             |
| H      | `LEVELS`     | of a number: 0..256, where 256 stands for 4 c / d' and all above        |
| M      | `longest`    | c in levels: 64 d'                                                      |
| b, t   | `scale`      | of the noise, as the record is measured, and in levels: t = M b / c     |
| K      | `classes`    |                                                                         |
| p      | `redrawn`    | probability that a label is drawn anew, uniformly from all K            |
| null   | zeros        | what fills the places that no record takes; it has no label             |

    put the records and null records into N places, in a secret random order
    v  = x shortened to c, rounded towards 0 to whole levels, at most H each: |v|_1 <= M
    x~ = v + Z, cut off at 0 and H; P(Z = z) ~ exp(-|z| / t), fresh for each number (`geometric`)
    y~ = y, or with probability p (of a null record always) uniform in 0..K-1

Guarantee: pure epsilon-DP of all N pairs (x~, y~) together, among data of at most N records.

    add/remove    M/t   + max(ln(K (1-p) + p), -ln p)            M/t = c/b
    replace-one   2 M/t + ln(1 + K (1-p)/p)

Proof. In a uniformly random order, the law of the places depends on which records there are, not on
how they stood; so to remove a record is to put a null record into its place. Given the order, one
place changes and all others have the same law, whatever is in them. In that place the probability
of v + Z changes by a factor of at most e^(|v - v'|_1 / t), where |v - 0|_1 <= M and |v - v'|_1 <=
2 M; cutting off is post-processing. A label is its own with probability 1 - p + p/K and any other
one with p/K; a null record's is each with 1/K. The ratios are K (1-p) + p and p against a null
record, and (1 - p + p/K) / (p/K) between two labels. The two draws are independent: factors
multiply. Averaging over the order keeps them.

There is no gap in floating point: numbers are whole, and probabilities right up to a factor that
moves epsilon by less than 1e-11 for each number and label (`geometric`, for spreads from 4 to 2^30
levels). The noise that is drawn is larger than stated by as much (`DRAWN_TO`).

More than N records have no place. They are refused, not thinned out: N records fill all places, so
one more could only come in for another (replace-one), and among N + 1 records it would have to be
any of them. The data sets among which the guarantee holds are those of at most N records; that the
data in question are such is an assumption, and stated as one.
"""

import math
import struct
from dataclasses import dataclass
from typing import Final, Self, final

import dp_accounting as dp
import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.privacy.accounting import DiscreteLaplace, DpEvent, pure_epsilon
from privet.privacy.geometric import two_sided_geometric
from privet.privacy.noise import check_scale, fingerprint
from privet.privacy.randomness import SecretStream

LOCAL: Final = "local"  # in the place of a sampler's name: every record, once
LEVELS: Final = 256
FULL: Final = 4  # mean numbers of a record of norm c that make the highest level
MARGIN: Final = 1e-9  # far above what rounding adds to an L1 norm in double precision
ROUNDED_UP: Final = 1 + 1e-9
# Less noise protects nobody and helps nobody: four levels, and a label in 2^30 redrawn.
LEAST_SPREAD: Final = 4.0
LEAST_REDRAWN: Final = 2.0**-30
DRAWN_TO: Final = 1e-11
TAIL: Final = 40.0  # spreads beyond which exp(-TAIL) of the noise is nothing to a double
NOBODY: Final = -1  # the label of a null record


@final
@dataclass(frozen=True, kw_only=True)
class RecordRandomiser:
    """The mechanism, by its public numbers."""

    norm: float
    scale: float
    redrawn: float
    dimensions: int
    classes: int

    def __post_init__(self) -> None:
        check_scale("record norm", self.norm)
        check_scale("noise scale", self.scale)
        if self._drawn_epsilon <= 0:
            raise InputError("noise too large to be drawn", got=self.scale, fix="a larger epsilon")
        if not 0 < self.redrawn <= 1:
            raise InputError("bad label noise", got=self.redrawn, expected="0 < p <= 1")
        if not (self.dimensions >= 1 and self.classes >= 2):
            raise InputError(
                "nothing to randomise", got=f"{self.dimensions} numbers, {self.classes} classes"
            )

    @classmethod
    def calibrate(
        cls, *, epsilon: float, label_share: float, norm: float, dimensions: int, classes: int
    ) -> Self:
        """The least noise for `epsilon` under add/remove, of which labels have `label_share`.

        What labels cannot use is left to the records.
        """
        p = least_redrawn(label_share * epsilon, classes)
        left = epsilon - pure_epsilon(dp.RandomizedResponseDpEvent(p, classes))
        least = LEAST_SPREAD * norm / _longest(dimensions)
        return cls(
            norm=norm,
            scale=max(norm / left * ROUNDED_UP, least),
            redrawn=p,
            dimensions=dimensions,
            classes=classes,
        )

    @property
    def longest(self) -> int:
        """M."""
        return _longest(self.dimensions)

    @property
    def spread(self) -> float:
        """T."""
        return self.longest * self.scale / self.norm

    @property
    def event(self) -> DpEvent:
        """What it does to the data."""
        return dp.ComposedDpEvent(
            [
                DiscreteLaplace(1.0 / self.spread, self.longest),
                dp.RandomizedResponseDpEvent(self.redrawn, self.classes),
            ]
        )

    @property
    def keep_probability(self) -> float:
        """That a label is what it was."""
        return 1.0 - self.redrawn + self.redrawn / self.classes

    def randomised(
        self,
        x: NDArray[np.float64],
        y: NDArray[np.int64],
        *,
        places: int,
        stream: SecretStream,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All N pairs (x~ in levels, y~), for records `x` (n, d') and labels `y`, n at most N."""
        if x.shape != (len(y), self.dimensions):
            raise InputError(
                "records of the wrong form",
                got=f"{x.shape} for {len(y)} labels",
                expected=f"{self.dimensions} numbers each",
            )
        require_places(len(y), places)
        order = _secret_order(places, stream)
        placed = np.zeros((places, self.dimensions), dtype=np.int64)
        labels = np.full(places, NOBODY)
        placed[: len(y)], labels[: len(y)] = self.in_levels(x), y
        return self._noised(placed[order], stream), self._response(labels[order], stream)

    def in_levels(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Each row as whole levels, its L1 norm at most M, whatever the row is."""
        with np.errstate(over="ignore"):  # a norm beyond all numbers shortens the record to nothing
            norms = np.abs(x).sum(1, keepdims=True)
        usable = np.isfinite(norms)
        known, norms = np.where(usable, x, 0.0), np.where(usable, norms, 0.0)
        bound = self.norm * (1.0 - MARGIN)
        shortened = known * (bound / np.maximum(norms, bound))
        levels = np.clip(np.trunc(shortened * (self.longest / self.norm)), -LEVELS, LEVELS)
        short = np.abs(levels).sum(1, keepdims=True) <= self.longest
        return np.asarray(np.where(short, levels, 0.0).astype(np.int64))

    def _noised(self, v: NDArray[np.int64], stream: SecretStream) -> NDArray[np.int64]:
        """The draws are bound to the records and to the scale, as any noise to its sum."""
        spread = self.longest / self._drawn_epsilon
        context = fingerprint(v) + struct.pack("<d", spread)
        z = two_sided_geometric(
            v.size,
            spread=spread,
            reach=3 * LEVELS + TAIL * spread,  # what is cut off changes nothing at 0 and H
            stream=stream,
            context=context,
        )
        return np.asarray(np.clip(v + z.reshape(v.shape), 0, LEVELS))

    @property
    def _drawn_epsilon(self) -> float:
        """Of the records, less what the law of the draws may be off."""
        return self.norm / self.scale - DRAWN_TO * (self.dimensions + 1)

    def _response(self, y: NDArray[np.int64], stream: SecretStream) -> NDArray[np.int64]:
        """K-ary randomised response; the draws are bound to the labels."""
        n, context = len(y), fingerprint(y)
        # Multiples of 2^-53 below p: the probability is p rounded up, at most by 2^-23 of it.
        redrawn = stream.uniform(n, purpose="redrawn", step=0, context=context) < self.redrawn
        drawn = stream.uniform(n, purpose="labels", step=0, context=context) * self.classes
        return np.asarray(np.where(redrawn | (y == NOBODY), np.floor(drawn).astype(np.int64), y))


def least_redrawn(epsilon: float, classes: int) -> float:
    """The least p for this epsilon under add/remove, rounded up, at least `LEAST_REDRAWN`."""
    against_nobody = (classes - math.exp(min(epsilon, 50.0))) / (classes - 1)
    least = max(math.exp(-epsilon), against_nobody, LEAST_REDRAWN)
    return min(1.0, least * ROUNDED_UP)


def require_places(records: int, places: int) -> None:
    """Refuse more records than are declared: the proof has no place for them."""
    if records > places:
        raise InputError(
            "more records than are declared",
            got=f"more than the nominal size {places}",
            expected="at most as many: each record takes a place, the rest are filled up",
            fix="declare a nominal size that the data cannot exceed",
        )


def _secret_order(n: int, stream: SecretStream) -> NDArray[np.intp]:
    """All orders alike: by 106 bits each, no two of which are equal but with n^2 2^-107."""
    first, second = (stream.uniform(n, purpose="places", step=step) for step in range(2))
    return np.lexsort((second, first))


def _longest(dimensions: int) -> int:
    return dimensions * LEVELS // FULL
