"""What a measure is: a comparison of records, the figures it gives, and what they tell."""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from privet.synthesis.evaluation.side import Side

Figures = dict[str, Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A candidate beside real records.

    Attributes:
        candidate: synthetic records; or, as a yardstick, real ones in their place.
        test: real records that nobody learned from: what the candidate is compared with.
        train: real records that the generator learned from.
        seed: of everything drawn at random.
        device: where networks of measures are trained.
    """

    candidate: Side
    test: Side
    train: Side
    seed: int = 0
    device: str = "cpu"

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, whichever measures are asked for."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a measure found: numbers for the record, and what plots are drawn from."""

    figures: Figures
    drawn: Figures = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Headline:
    """A figure of a measure that stands in the summary.

    Attributes:
        figure: its key.
        says: what it is, in words.
        best: what it is for records that could not be better.
        unit: "" for a plain number, "%", "points", ...
    """

    figure: str
    says: str
    best: float | None
    unit: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure by name.

    Attributes:
        name: as it is asked for.
        says: what it tells, in one sentence.
        compare: from a comparison to figures.
        headlines: the figures that stand in the summary.
        private: whether it asks what the candidate tells about training records. Its yardstick is
            then one half of the test records in place of the candidate, and the other as `test`;
            of any other measure it is the training records in place of the candidate.
    """

    name: str
    says: str
    compare: Callable[[Comparison], Outcome]
    headlines: tuple[Headline, ...] = ()
    private: bool = False


def plain(value: Any) -> Any:
    """Numbers, words, lists and dictionaries as JSON has them; what is not a number is None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def mean_of(values: Any) -> float | None:
    """The mean of the numbers among these; None where there is none."""
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    return float(np.mean(numbers)) if numbers else None


def largest_of(values: Any) -> float | None:
    """The largest number among these; None where there is none."""
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    return float(max(numbers)) if numbers else None
