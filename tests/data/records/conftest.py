"""Records of every shape, for properties: `@given(records=st.from_type(PatientRecords))`."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privet.data.records.features import Categorical, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema

WORDS = ("yes", "no, never", 'said "so"', "Ünknown")


def ward(**changes):
    """A schema with every kind of column."""
    facts = {
        "name": "ward",
        "stay": "visit",
        "temporal": (
            Numeric(name="hr", low=0, high=250, decimals=0),
            Numeric(name="temp", low=30, high=45, decimals=1),
            Categorical(name="rhythm", values=WORDS),
            Numeric(name="lactate", low=0, high=30, scale="log"),
        ),
        "static": (
            Numeric(name="age", low=0, high=120, decimals=0),
            Categorical(name="sex", values=("F", "M")),
        ),
        "outcomes": (Categorical(name="died", values=("0", "1")),),
        "nominal_size": 100,
    }
    return Schema(**(facts | changes))


@st.composite
def record_sets(draw):
    """Stays without rows, columns never observed, equal times, several stays of a patient."""
    dated, several = draw(st.booleans()), draw(st.booleans())
    schema = ward(
        timestamps=dated, start="came" if dated else None, stay="visit" if several else None
    )
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    n, rows = len(lengths), sum(lengths)
    if dated:  # whole microseconds, which dates can tell
        ticks = draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 10**12)))
        gaps, unit = ticks, 60e6
    else:
        gaps = draw(hnp.arrays(np.float64, rows, elements=st.floats(0, 1e6)))
        unit = 1.0
    times = [np.cumsum(part) / unit for part in np.split(gaps, np.cumsum(lengths)[:-1])]
    seconds = st.integers(-(10**9), 7 * 10**9)
    starts = np.array([draw(seconds) for _ in range(n)], dtype="datetime64[s]")
    stays = np.array([f"s{k}" for k in range(n)])
    owners = np.array([f"p{draw(st.integers(0, 2))}" for _ in range(n)])
    return PatientRecords(
        schema=schema,
        patients=owners if several else stays,
        stays=stays,
        starts=starts.astype("datetime64[us]") if dated else None,
        static=columns(draw, schema.static, n),
        outcomes=columns(draw, schema.outcomes, n),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=np.concatenate(times),
        values=columns(draw, schema.temporal, rows),
    )


def columns(draw, features, n):
    found = [
        draw(hnp.arrays(np.float64, n, elements=cells(feature), fill=st.nothing()))
        for feature in features
    ]
    return np.stack(found, axis=1) if found else np.empty((n, 0))


def cells(feature):
    if isinstance(feature, Categorical):
        return st.sampled_from([np.nan, *map(float, range(feature.levels))])
    any_number = st.floats(allow_nan=False, allow_infinity=False)
    return st.one_of(st.just(np.nan), st.integers(0, 300).map(float), any_number)


st.register_type_strategy(PatientRecords, record_sets())


@pytest.fixture(name="ward", scope="session")
def _ward():
    return ward


@pytest.fixture(scope="session")
def assert_same():
    """Whether two sets of records are the same, exactly."""

    def check(one, other):
        assert one.schema == other.schema
        for name in ("patients", "stays", "offsets"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
        for name in ("static", "outcomes", "times", "values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        if one.starts is None or other.starts is None:
            assert one.starts is other.starts
        else:
            np.testing.assert_array_equal(one.starts, other.starts)

    return check
