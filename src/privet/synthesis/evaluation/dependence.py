"""How columns hang together: with each other, and with themselves a measurement later.

Columns as numbers on [0, 1]; a categorical one as one indicator for each word. A correlation rests
on the rows (or stays) in which both are there. Those that rest on fewer than `ENOUGH` real ones are
not compared, and counted. Where only the candidate has too few, it counts as 0: a candidate that
never measures two columns together has not met their correlation.
"""

from typing import Final

import numpy as np

from privet.data.records.features import Numeric
from privet.synthesis.evaluation.correlations import correlations, off_diagonal, pearson
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    largest_of,
    mean_of,
)
from privet.synthesis.evaluation.side import Floats, Side, numbers_of
from privet.synthesis.evaluation.summaries import stay_means

ENOUGH: Final = 100


def compare(comparison: Comparison) -> Outcome:
    """Correlations over rows (temporal columns) and over stays (all columns), autocorrelation."""
    real, other = comparison.test, comparison.candidate
    rows = _differences(row_correlations(real), row_correlations(other))
    stays = _differences(stay_correlations(real), stay_correlations(other))
    persistence = _persistence(real, other)
    figures: Figures = {
        "rows_mean": mean_of(rows["errors"]),
        "rows_largest": largest_of(rows["errors"]),
        "rows_left_out": rows["left_out"],
        "stays_mean": mean_of(stays["errors"]),
        "stays_largest": largest_of(stays["errors"]),
        "stays_left_out": stays["left_out"],
        "lag_mean": mean_of(column["error"] for column in persistence.values()),
        "lag": persistence,
    }
    drawn = {"rows": rows["drawn"], "stays": stays["drawn"]}
    return Outcome(figures=figures, drawn=drawn)


Matrix = tuple[list[str], Floats, Floats]


def row_correlations(side: Side) -> Matrix:
    """Names, correlations and numbers of rows, of temporal columns measured in the same row."""
    features, values = side.schema.temporal, side.records.values

    def rows(chosen: slice) -> Floats:
        parts = [numbers_of(f, values[chosen, place]) for place, f in enumerate(features)]
        return np.stack([column for part in parts for _, column in part], axis=1)

    none = np.zeros(0)
    names = [name for feature in features for name, _ in numbers_of(feature, none)]
    return (names, *correlations(rows, len(values)))


def stay_correlations(side: Side) -> Matrix:
    """The same of static columns, means of temporal columns, and outcomes, over stays."""
    names, table = stay_means(side)
    return (names, *correlations(lambda rows: table[rows], len(table)))


def _differences(real: Matrix, other: Matrix) -> Figures:
    enough = real[2] >= ENOUGH
    theirs = np.where(other[2] >= ENOUGH, other[1], 0.0)
    apart = np.where(enough, theirs - real[1], np.nan)
    return {
        "errors": np.abs(off_diagonal(apart)),
        "left_out": int((np.triu(~enough, 1)).sum()),
        "drawn": {"names": real[0], "real": real[1], "difference": apart},
    }


def persistence(side: Side, place: int) -> float | None:
    """How a value goes with the column's next one in the same stay, however much later.

    Of numbers the correlation; of words the share that is the same again.
    """
    there = np.flatnonzero(~side.missing[:, place])
    same_stay = np.diff(side.stay_of_row[there]) == 0
    if same_stay.sum() < ENOUGH:
        return None
    feature = side.schema.temporal[place]
    values = side.temporal(place)[there]
    now, after = values[:-1][same_stay], values[1:][same_stay]
    if not isinstance(feature, Numeric):
        return float((now == after).mean())
    return pearson(*((v - feature.low) / (feature.high - feature.low) for v in (now, after)))


def _persistence(real: Side, other: Side) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for place, feature in enumerate(real.schema.temporal):
        a, b = persistence(real, place), persistence(other, place)
        apart = None if a is None else abs(a - (b or 0.0))
        found[feature.name] = {"real": a, "other": b, "error": apart}
    return found


MEASURE: Final = Measure(
    name="dependence",
    says="Whether columns go with each other, and with their own past, as they should.",
    compare=compare,
    headlines=(
        Headline(figure="rows_mean", says="correlations within rows, mean error", best=0.0),
        Headline(figure="stays_mean", says="correlations over stays, mean error", best=0.0),
        Headline(figure="lag_mean", says="correlation with the next value, mean error", best=0.0),
    ),
)
