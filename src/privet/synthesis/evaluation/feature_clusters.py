"""The clusters of one column at a time, as in the thesis behind the IGAMT paper.

A stay is what it has of one column: a number for each of `max_steps` rows, scaled to [0, 1], 0
where not measured and where there is no row; the time between rows is a column, too. Clusters,
pairs, distance and cosine as in `clusters`. The thesis shows three columns; here all numeric ones:
the first word of a vocabulary would look like a cell that is not there.
"""

from typing import Final

import numpy as np

from privet.data.records.features import Numeric
from privet.synthesis.evaluation.clusters import Centres, centres_by_seed, similarity
from privet.synthesis.evaluation.flattened import sequences
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
    mean_of,
)
from privet.synthesis.evaluation.side import Side

MOST: Final = 2_000  # stays of either side, drawn at random
ELAPSED: Final = "time between rows"


def compare(comparison: Comparison) -> Outcome:
    """Figures of each column, and their means."""
    real, other = (
        side.once(centres_by_column, comparison.seed)
        for side in (comparison.test, comparison.candidate)
    )
    features = {name: similarity(real[name], other[name]) for name in real}
    figures: Figures = {
        figure: mean_of(found[figure] for found in features.values())
        for figure in ("minkowski_sum", "cosine_mean")
    }
    return Outcome(figures=figures | {"features": features})


def centres_by_column(side: Side, seed: int) -> dict[str, Centres]:
    """Of the time between rows and of every numeric temporal column."""
    cells = sequences(side.at_most(MOST, np.random.default_rng(seed)))
    columns = enumerate(side.schema.temporal, start=1)
    places = {ELAPSED: 0} | {f.name: place for place, f in columns if isinstance(f, Numeric)}
    return {
        name: centres_by_seed(np.ascontiguousarray(cells[:, :, place]), seed)
        for name, place in places.items()
    }


MEASURE: Final = Measure(
    name="feature-clusters",
    says="Whether the courses of each column by itself are of the same kinds.",
    compare=compare,
    headlines=(
        Headline(figure="minkowski_sum", says="centres by column, sum of distances", best=0.0),
        Headline(figure="cosine_mean", says="centres by column, mean cosine", best=1.0),
    ),
)
