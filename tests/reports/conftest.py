"""A whole trust card, the curves of a Gaussian mechanism, and a reader of the rendered page."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privet.reports import Curves

MU = 0.75  # the Gaussian trade-off function G_mu of the example curves

PROVED = {
    "epsilon": 2.98,
    "delta": 1e-05,
    "unit": "example",
    "adjacency": "add-remove",
    "basis": "proved",
    "accountant": "pld",
    "sampler": "poisson",
    "assumptions": ["noise and sampling keys stay secret"],
    "gaps": [],
}
CARD: dict[str, Any] = {
    "format": "privet-trust/1",
    "method": "dpsgd",
    "analysis": "sound",
    "data": {
        "name": "digits",
        "unit": "example",
        "nominal_size": 1437,
        "classes": [str(digit) for digit in range(10)],
        "bounds": {"low": [0.0], "high": [16.0]},
        "shape": [1, 8, 8],
        "licence": "CC BY 4.0",
        "test_is_public": True,
        "learned": [],
    },
    "privacy": [
        PROVED,
        PROVED | {"epsilon": 6.4, "adjacency": "replace-one", "accountant": "pld, group of 2"},
    ],
    "withheld": [],
    "mechanism": {
        "sampler": "poisson",
        "sampling_rate": 0.178,
        "steps": 120,
        "clip_norm": 1.0,
        "noise_multiplier": 2.1,
        "normaliser": 256.0,
        "redone_steps": 0,
    },
    "events": [
        {
            "label": "train",
            "event": {
                "type": "SelfComposed",
                "count": 120,
                "event": {
                    "type": "PoissonSampled",
                    "sampling_probability": 0.178,
                    "event": {"type": "Gaussian", "noise_multiplier": 2.1},
                },
            },
        }
    ],
    "robustness": [],
    "attacks": [],
    "audit": [],
    "utility": {"test_accuracy": 0.93, "test_examples": 360, "interval95": [0.90, 0.95]},
    "provenance": {
        "privet": "0.1.0",
        "data_digest": "blake2b-keyed:ab12cd34",
        "created": "2026-11-15T09:00:00Z",
        "config": {"model": "cnn", "epsilon": 3.0, "delta": 1e-5, "device": "cpu"},
    },
}


@pytest.fixture
def card() -> Callable[..., dict[str, Any]]:
    """A fresh card, with the given parts replaced."""
    return lambda **parts: copy.deepcopy(CARD) | parts


@pytest.fixture
def figure() -> Callable[..., dict[str, Any]]:
    """One privacy figure, with the given fields replaced."""
    return lambda **fields: copy.deepcopy(PROVED) | fields


@pytest.fixture(scope="session")
def curves() -> Curves:
    def delta(epsilon: float) -> float:
        low, high = norm.cdf(-epsilon / MU - MU / 2), norm.cdf(-epsilon / MU + MU / 2)
        return float(high - math.exp(epsilon) * low)

    alphas = [float(a) for a in np.linspace(0, 1, 101)]
    return Curves(
        epsilon_by_step=tuple((step, 2.98 * math.sqrt(step / 120)) for step in range(1, 121)),
        profile=tuple((float(e), delta(e)) for e in np.linspace(0, 4.5, 40)),
        tradeoff=tuple((a, float(norm.cdf(norm.ppf(1 - a) - MU))) for a in alphas),
    )
