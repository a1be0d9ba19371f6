import numpy as np
import pytest

from privet.data.records.features import Categorical, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Order, Schema
from privet.synthesis.evaluation.measure import Comparison
from privet.synthesis.evaluation.side import Side


def public(**changes):
    facts = {
        "name": "made up",
        "stay": "stay_id",
        "temporal": (
            Numeric(name="pulse", low=0, high=200),
            Numeric(name="above", low=0, high=300),
            Numeric(name="below", low=0, high=200),
            Categorical(name="rhythm", values=("even", "odd", "none")),
        ),
        "static": (
            Numeric(name="age", low=0, high=100),
            Categorical(name="sex", values=("f", "m")),
        ),
        "outcomes": (Categorical(name="died", values=("no", "yes")),),
        "constraints": (Order(above="above", below="below"),),
        "max_steps": 12,
        "max_gap": 600.0,
        "nominal_size": 100,
    }
    return Schema(**(facts | changes))


def draw(n=300, seed=0, *, schema=None, letter="p"):
    """Correlated numbers with a level of each patient, gaps by chance, an outcome by level."""
    rng = np.random.default_rng(seed)
    schema = public() if schema is None else schema
    lengths = rng.integers(3, schema.max_steps + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    stay = np.repeat(np.arange(n), lengths)
    level = rng.normal(0, 1, n)[stay]
    pulse = 100 + 15 * level + rng.normal(0, 8, len(stay))
    below = 80 + 10 * level + rng.normal(0, 6, len(stay))
    above = below + rng.uniform(20, 60, len(stay))
    values = np.stack([pulse, above, below, rng.integers(0, 3, len(stay))], axis=1)
    values[rng.random(values.shape) < [0.1, 0.2, 0.2, 0.6]] = np.nan
    gaps = np.minimum(rng.lognormal(3, 0.7, len(stay)), 600)
    times = np.cumsum(gaps)
    times -= np.repeat(times[offsets[:-1]], lengths)
    died = rng.random(n) < 1 / (1 + np.exp(-2 * level[offsets[:-1]]))
    ids = np.array([f"{letter}{seed}-{k}" for k in range(n)])
    return PatientRecords(
        schema=schema,
        patients=ids,
        stays=ids,
        static=np.stack([rng.uniform(20, 90, n), rng.integers(0, 2, n)], axis=1).astype(float),
        outcomes=died[:, None].astype(float),
        offsets=offsets,
        times=times,
        values=values,
    )


@pytest.fixture(scope="session")
def make_schema():
    return public


@pytest.fixture(scope="session")
def make_records():
    return draw


@pytest.fixture(scope="session")
def beside():
    """A comparison of a candidate with test records; training records if they matter."""

    def compare(test, candidate, train=None, seed=0):
        sides = [Side(r) for r in (candidate, test, train if train is not None else test)]
        return Comparison(candidate=sides[0], test=sides[1], train=sides[2], seed=seed)

    return compare
