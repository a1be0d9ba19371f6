"""Scores whose privacy is known: the exact Gaussian mechanism under the best attack there is."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from privet.privacy.tradeoff import Gaussian

Floats = NDArray[np.float64]


def mu_for(epsilon: float, delta: float) -> float:
    """mu-GDP has exactly this epsilon at delta."""
    found = brentq(lambda mu: Gaussian(mu).epsilon(delta) - epsilon, 1e-3, 10.0, xtol=1e-12)
    return float(found)


def worlds(seed: int, n: int, mu: float) -> tuple[Floats, Floats]:
    """Scores of runs without and with the record: N(0, 1) and N(mu, 1)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n), rng.standard_normal(n) + mu


def canaries(seed: int, m: int, mu: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores and coins of m canaries in one run."""
    rng = np.random.default_rng(seed)
    coins = rng.random(m) < 0.5
    return rng.standard_normal(m) + mu * coins, coins
