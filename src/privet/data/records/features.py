"""What is public about one column: bounds or vocabulary, and how its values become codes.

A code is a whole number: 0 is missing, 1 .. levels are bins of a numeric column or categories.
Bounds and vocabularies are declared or learned privately, never read off the records.
"""

import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError

SCALES: Final = ("linear", "log")
MISSING: Final = 0
MOST_LEVELS: Final = 254  # a code fits in a byte
BINS: Final = 20
# On the logarithmic scale: below this share of the width values are spread out evenly.
PIVOT_SHARE: Final = 1 / 256

Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]


@final
@dataclass(frozen=True, kw_only=True)
class Numeric:
    """Numbers within public bounds; those outside count as the nearest bound.

    Attributes:
        name: of the column.
        low, high: public bounds.
        bins: how many codes at most.
        scale: "linear", or "log" for what is skewed: bins are narrow near `low`.
        decimals: of the numbers as they are written; None for as many as there are. Columns with
            no more numbers than `bins` between their bounds have a code for each.
    """

    name: str
    low: float
    high: float
    bins: int = BINS
    scale: str = "linear"
    decimals: int | None = None

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InputError(
                f"column '{self.name}': bad bounds",
                got=f"[{self.low:g}, {self.high:g}]",
                expected="finite numbers, low < high",
            )
        if not 2 <= self.bins <= MOST_LEVELS:
            raise InputError(
                f"column '{self.name}': bad bins", got=self.bins, expected=f"2 to {MOST_LEVELS}"
            )
        if self.scale not in SCALES:
            raise InputError(
                f"column '{self.name}': unknown scale",
                got=f"'{self.scale}'",
                expected=" or ".join(SCALES),
            )
        if self.decimals is not None and not 0 <= self.decimals <= 12:
            raise InputError(
                f"column '{self.name}': bad decimals", got=self.decimals, expected="0 to 12"
            )

    @property
    def exact(self) -> bool:
        """Whether every number that can be written has a code of its own."""
        return self._numbers is not None and self._numbers <= self.bins

    @property
    def levels(self) -> int:
        """How many codes there are besides "missing"."""
        return self._numbers if self.exact and self._numbers is not None else self.bins

    @property
    def _numbers(self) -> int | None:
        if self.decimals is None:
            return None
        return round((self.high - self.low) * 10.0**self.decimals) + 1

    def encode(self, values: Floats) -> Codes:
        """Codes of numbers; NaN is missing."""
        missing = np.isnan(values)
        inside = np.clip(np.where(missing, self.low, values), self.low, self.high)
        if self.exact:
            place = np.rint((inside - self.low) * 10.0 ** (self.decimals or 0))
        else:
            place = np.floor(self.share(inside) * self.bins)
        codes = 1 + np.minimum(place, self.levels - 1).astype(np.uint8)
        return np.where(missing, np.uint8(MISSING), codes)

    def decode(self, codes: Codes, rng: np.random.Generator) -> Floats:
        """Numbers of codes, drawn evenly (on the column's scale) within their bins."""
        place = codes.astype(np.float64) - 1
        if self.exact:
            values = self.low + place / 10.0 ** (self.decimals or 0)
        else:
            values = self.value_at((place + rng.random(codes.shape)) / self.bins)
        if self.decimals is not None:
            values = np.round(values, self.decimals)
        return np.where(codes == MISSING, np.nan, np.clip(values, self.low, self.high))

    def share(self, values: Floats) -> Floats:
        """Where numbers within the bounds lie on the column's scale, from 0 to 1."""
        share = (values - self.low) / (self.high - self.low)
        return share if self.scale == "linear" else np.log1p(share / PIVOT_SHARE) / _WIDTH

    def value_at(self, share: Floats) -> Floats:
        """The opposite of `share`."""
        if self.scale == "log":
            share = np.expm1(share * _WIDTH) * PIVOT_SHARE
        return self.low + share * (self.high - self.low)


_WIDTH: Final = math.log1p(1 / PIVOT_SHARE)


@final
@dataclass(frozen=True, kw_only=True)
class Categorical:
    """One of a public list of words; as a value, its place in the list.

    Attributes:
        name: of the column.
        values: the words, as they stand in the file.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) != len(self.values) or not 2 <= len(self.values) <= MOST_LEVELS:
            raise InputError(
                f"column '{self.name}': bad vocabulary",
                got=f"{len(self.values)} words",
                expected=f"2 to {MOST_LEVELS} different ones",
            )

    @property
    def levels(self) -> int:
        """How many codes there are besides "missing"."""
        return len(self.values)

    def encode(self, values: Floats) -> Codes:
        """Codes of places in the list; NaN is missing."""
        missing = np.isnan(values)
        codes = 1 + np.where(missing, 0, values).astype(np.uint8)
        return np.where(missing, np.uint8(MISSING), codes)

    def decode(self, codes: Codes, rng: np.random.Generator) -> Floats:
        """Places in the list."""
        return np.where(codes == MISSING, np.nan, codes.astype(np.float64) - 1)


Feature = Numeric | Categorical
