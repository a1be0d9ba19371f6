"""Centres of clusters, as in the IGAMT paper: Minkowski distance and cosine of paired centres.

The paper does not say which clusters, how many, which order or how they are paired. Here: k-means,
k = 3, order 2, pairs by the Hungarian method (least sum of distances), over 5 seeds. Real and other
records are clustered separately.
"""

import warnings
from typing import Final

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privet.synthesis.evaluation.flattened import Vectors, flattened
from privet.synthesis.evaluation.measure import (
    Comparison,
    Figures,
    Headline,
    Measure,
    Outcome,
)
from privet.synthesis.evaluation.side import Floats

MOST: Final = 2_000  # stays of either side, drawn at random
CLUSTERS: Final = 3
SEEDS: Final = 5

Centres = tuple[Floats, ...]
"""(clusters, numbers) of each seed."""


def compare(comparison: Comparison) -> Outcome:
    """Over whole records."""
    rng = comparison.rng("clusters")
    real, other = (s.at_most(MOST, rng) for s in (comparison.test, comparison.candidate))
    return Outcome(figures=cluster_similarity(flattened(real), flattened(other), comparison.seed))


def cluster_similarity(real: Vectors, other: Vectors, seed: int = 0) -> Figures:
    """Sum of distances and mean of cosines of paired centres; means and deviations over seeds."""
    found = similarity(*(centres_by_seed(vectors, seed) for vectors in (real, other)))
    return found | {"stays": [len(real), len(other)]}


def centres_by_seed(vectors: Vectors, seed: int) -> Centres:
    """The centres of the clusters that each seed finds."""
    return tuple(_centres(vectors, s) for s in range(seed, seed + SEEDS))


def similarity(real: Centres, other: Centres) -> Figures:
    """The same of centres that are found already, seed by seed."""
    found = [_paired(a, b) for a, b in zip(real, other, strict=True)]
    distances, cosines = np.array(found).T
    return {
        "minkowski_sum": distances.mean(),
        "minkowski_sd": distances.std(ddof=1),
        "cosine_mean": cosines.mean(),
        "cosine_sd": cosines.std(ddof=1),
    }


def _centres(vectors: Vectors, seed: int) -> Floats:
    k = min(CLUSTERS, len(vectors))
    with warnings.catch_warnings():  # records that are all alike have fewer kinds: no trouble
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(n_clusters=k, n_init=3, random_state=seed).fit(vectors)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def _paired(real: Floats, other: Floats) -> tuple[float, float]:
    distances = np.linalg.norm(real[:, None] - other[None], axis=2)
    rows, columns = linear_sum_assignment(distances)
    a, b = real[rows], other[columns]
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.maximum(lengths, 1e-12)
    return float(distances[rows, columns].sum()), float(cosines.mean())


MEASURE: Final = Measure(
    name="clusters",
    says="Whether the kinds of records are the same kinds.",
    compare=compare,
    headlines=(
        Headline(figure="minkowski_sum", says="cluster centres, sum of distances", best=0.0),
        Headline(figure="cosine_mean", says="cluster centres, mean cosine", best=1.0),
    ),
)
