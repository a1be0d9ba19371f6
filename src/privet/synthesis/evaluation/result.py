"""What an evaluation found, for the owner's eyes: it was computed from real records, uncharged."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from privet.synthesis.evaluation.measure import Figures, Headline, plain


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the summary: a headline of a measure, on synthetic and on real records."""

    measure: str
    headline: Headline
    synthetic: float | None
    real: float | None


@final
@dataclass(frozen=True, kw_only=True)
class FidelityResult:
    """Figures of all measures, each with its yardstick; nothing in it may be released.

    Attributes:
        data: name of the records, as the schema has it.
        stays: how many of `train`, `test`, `synthetic`; `compared`: of synthetic and training ones
            those that were drawn to be compared with the test records, the same number of both.
        seed: of what was drawn.
        measures: by name: `synthetic` and `real` (the yardstick), each a dictionary of figures.
        rows: the summary.
        figures: what the plots of the report are drawn from, by measure.
        cautions: what speaks against the figures.
        seconds: how long each measure took.
    """

    data: str
    stays: Mapping[str, int]
    seed: int
    measures: Mapping[str, Figures]
    rows: tuple[Row, ...]
    figures: Mapping[str, Figures]
    cautions: tuple[str, ...] = ()
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and words, None for what is not a number; without the plots."""
        found: dict[str, Any] = plain(
            {
                "data": self.data,
                "stays": self.stays,
                "seed": self.seed,
                "basis": "computed from real records without charge: not for release",
                "cautions": list(self.cautions),
                "summary": [
                    {
                        "measure": row.measure,
                        "figure": row.headline.figure,
                        "says": row.headline.says,
                        "unit": row.headline.unit,
                        "best": row.headline.best,
                        "synthetic": row.synthetic,
                        "real": row.real,
                    }
                    for row in self.rows
                ],
                "measures": self.measures,
                "seconds": self.seconds,
            }
        )
        return found
