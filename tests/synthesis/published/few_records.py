"""Records of a few short rows, on which a whole published run takes no time."""

import numpy as np
import torch

from privet.data.dataset import Dataset, Split
from privet.data.records.coding import CODE_BOUNDS, code_shape
from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Schema
from privet.data.records.schema_file import schema_to_json
from privet.synthesis.family import FAMILY
from privet.synthesis.fitting import METHODS

SIZES = {"gru": "gru-16-1-4", "transformer": "transformer-16-1-4"}
STEPS = 5


def few_schema(n=24):
    return Schema(
        name="few",
        temporal=(
            Numeric(name="x", low=0, high=1, bins=4),
            Categorical(name="c", values=("a", "b")),
        ),
        static=(
            Numeric(name="age", low=0, high=100, bins=10),
            Categorical(name="s", values=("u", "v", "w")),
        ),
        outcomes=(Categorical(name="o", values=("n", "y")),),
        max_steps=STEPS,
        max_gap=10.0,
        gap_bins=4,
        nominal_size=n,
    )


def few_records(n=24, seed=0):
    """Stays of two to five rows, some cells empty."""
    schema, rng = few_schema(n), np.random.default_rng(seed)
    codes = np.zeros((n, *code_shape(schema)), dtype=np.uint8)
    codes[:, 0] = rng.integers(1, (11, 4, 3), (n, 3))
    there = np.arange(STEPS) < rng.integers(2, STEPS + 1, (n, 1))
    codes[:, 1:, 0] = rng.integers(1, 5, (n, STEPS)) * there
    codes[:, 1:, 1] = rng.integers(0, 5, (n, STEPS)) * there
    codes[:, 1:, 2] = rng.integers(0, 3, (n, STEPS)) * there
    return Dataset(
        name=schema.name,
        train=Split(x=codes, y=np.zeros(n, dtype=np.int64)),
        test=Split(x=codes[:0], y=np.zeros(0, dtype=np.int64)),
        bounds=CODE_BOUNDS,
        classes=(),
        nominal_size=n,
        licence="none",
        source="made up",
        unit="patient",
        schema=schema_to_json(schema),
    )


def settings_of(name, analysis, **options):
    """Small ones; the noise is known."""
    own = {"model": SIZES[FAMILY[name].coder], "epochs": 2.0, "batch": 8}
    if analysis == "paper":
        own["noise_seed"] = 3
        own |= {} if "sigma" in options else {"epsilon": 1.5}
    return METHODS[name].analyses[analysis].settings(**own | options)


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])
