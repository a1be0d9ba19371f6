"""How far two samples of one column are apart.

| symbol | here                                                                                |
|--------|-------------------------------------------------------------------------------------|
| p, q   | shares of the bins, 1e-6 added to each, then divided by their sum                   |
| KL     | sum of p log(p / q), natural logarithm; it says nothing of how far apart bins are   |
| W1     | area between the distribution functions: how far values must be moved, on average   |

Bins: `BINS` of equal width between the column's public bounds, on its own scale; of a categorical
column, its words. W1 of a categorical column takes any two words to be 1 apart, which makes it the
total variation distance.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from privet.data.records.features import Feature, Numeric
from privet.synthesis.evaluation.side import on_unit_scale

Floats = NDArray[np.float64]

BINS: Final = 50
ADDED: Final = 1e-6


def shares_by_bin(feature: Feature, values: Floats, bins: int = BINS) -> Floats:
    """The share of the values (without gaps) in each bin; zeros where there are no values."""
    if isinstance(feature, Numeric):
        place = np.floor(on_unit_scale(feature, values) * bins)
        place = np.minimum(place, bins - 1).astype(np.int64)
    else:
        place, bins = values.astype(np.int64), feature.levels
    counts = np.bincount(place, minlength=bins)
    return np.asarray(counts / max(len(values), 1))


def kl(p: Floats, q: Floats) -> float:
    """The Kullback-Leibler divergence of shares p from shares q, in nats."""
    p, q = ((shares + ADDED) / (shares + ADDED).sum() for shares in (p, q))
    return max(0.0, float(np.sum(p * np.log(p / q))))  # rounding may leave a hair below 0


def wasserstein(feature: Feature, a: Floats, b: Floats) -> float:
    """W1 of two samples (without gaps), in widths of the public range."""
    if isinstance(feature, Numeric):
        return earth_moved(a, b) / (feature.high - feature.low)
    return float(np.abs(shares_by_bin(feature, a) - shares_by_bin(feature, b)).sum() / 2)


def earth_moved(a: Floats, b: Floats) -> float:
    """W1 of two samples in their own unit."""
    return float(wasserstein_distance(a, b))
