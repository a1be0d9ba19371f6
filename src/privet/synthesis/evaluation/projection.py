"""The principal plane of real records, and where the others lie in it.

Fitted on held-out real records alone, so that no candidate can bend it towards itself.
"""

from typing import Final

import numpy as np
from sklearn.decomposition import PCA

from privet.synthesis.evaluation.distances import earth_moved
from privet.synthesis.evaluation.flattened import flattened
from privet.synthesis.evaluation.measure import Comparison, Headline, Measure, Outcome

MOST: Final = 2_000  # stays of either side, drawn at random
SHOWN: Final = 1_000


def compare(comparison: Comparison) -> Outcome:
    """How far the clouds are apart along each axis, in standard deviations of the real one."""
    rng = comparison.rng("projection")
    real, other = (
        flattened(side.at_most(MOST, rng)) for side in (comparison.test, comparison.candidate)
    )
    model = PCA(n_components=2, svd_solver="randomized", random_state=comparison.seed).fit(real)
    points = [model.transform(part) for part in (real, other)]
    spread = np.maximum(points[0].std(axis=0), 1e-12)
    apart = [earth_moved(*(p[:, k] for p in points)) / spread[k] for k in (0, 1)]
    figures = {
        "first_axis": apart[0],
        "second_axis": apart[1],
        "variance_explained": model.explained_variance_ratio_,
        "stays": [len(real), len(other)],
    }
    return Outcome(figures=figures, drawn={"points": [p[:SHOWN] for p in points]})


MEASURE: Final = Measure(
    name="projection",
    says="Whether whole records lie where real ones lie, in the plane in which those differ most.",
    compare=compare,
    headlines=(
        Headline(figure="first_axis", says="first principal axis, W1", best=0.0, unit="sd"),
        Headline(figure="second_axis", says="second principal axis, W1", best=0.0, unit="sd"),
    ),
)
