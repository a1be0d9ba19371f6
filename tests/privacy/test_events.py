"""Events as JSON: what is written is read back, and nothing else is read."""

import json
import math

import dp_accounting as dp
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, RepeatAndSelectDpEvent, ZCDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.privacy.events import from_json, to_json

scales = st.floats(1e-6, 1e6)
leaves = st.one_of(
    st.builds(dp.GaussianDpEvent, scales),
    st.builds(dp.LaplaceDpEvent, scales),
    st.builds(ZCDpEvent, scales),
    st.builds(DiscreteLaplaceDpEvent, scales, st.integers(1, 10**6)),
    st.builds(dp.RandomizedResponseDpEvent, st.floats(1e-9, 1.0), st.integers(2, 1000)),
    st.just(dp.NonPrivateDpEvent()),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(dp.PoissonSampledDpEvent, st.floats(1e-9, 1.0), inner),
        st.builds(dp.SelfComposedDpEvent, inner, st.integers(1, 10**9)),
        st.builds(dp.ComposedDpEvent, st.lists(inner, max_size=4)),
        st.builds(RepeatAndSelectDpEvent, inner, st.floats(1.0, 1e4), st.floats(-0.9, 10.0)),
    ),
    max_leaves=8,
)
GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 1.0}


def nested(depth: int) -> dict:
    record = GAUSSIAN
    for _ in range(depth):
        record = {"type": "SelfComposed", "count": 1, "event": record}
    return record


@given(trees)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_text_keeps_every_event_exactly(event):
    assert from_json(json.loads(json.dumps(to_json(event), allow_nan=False))) == event


def test_the_record_of_training_is_stable():
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.25, dp.GaussianDpEvent(1.5)), 40)
    assert to_json(event) == {
        "type": "SelfComposed",
        "count": 40,
        "event": {
            "type": "PoissonSampled",
            "sampling_probability": 0.25,
            "event": {"type": "Gaussian", "noise_multiplier": 1.5},
        },
    }


@pytest.mark.parametrize(
    "event",
    [
        dp.NoOpDpEvent(),
        dp.UnsupportedDpEvent(),
        dp.SampledWithoutReplacementDpEvent(10, 2, dp.GaussianDpEvent(1.0)),
        dp.SelfComposedDpEvent(dp.NoOpDpEvent(), 2),
    ],
    ids=str,
)
def test_what_cannot_be_recorded_is_refused(event):
    with pytest.raises(InputError, match="cannot be recorded"):
        to_json(event)


MALFORMED = {
    "levels that are no number": {
        "type": "DiscreteLaplace",
        "noise_parameter": 1.0,
        "sensitivity": 1.5,
    },
    "no noise on levels": {"type": "DiscreteLaplace", "noise_parameter": 0.0, "sensitivity": 1},
    "one answer": {"type": "RandomizedResponse", "noise_parameter": 0.5, "num_buckets": 1},
    "answers redrawn never": {
        "type": "RandomizedResponse",
        "noise_parameter": 0.0,
        "num_buckets": 2,
    },
    "answers redrawn more than always": {
        "type": "RandomizedResponse",
        "noise_parameter": 1.5,
        "num_buckets": 2,
    },
    "nothing": None,
    "a number": 3,
    "a text": "Gaussian",
    "a list": [GAUSSIAN],
    "empty": {},
    "no type": {"noise_multiplier": 1.0},
    "unknown type": {"type": "Cauchy", "noise_multiplier": 1.0},
    "type of another case": {"type": "gaussian", "noise_multiplier": 1.0},
    "type that is a list": {"type": ["Gaussian"]},
    "no multiplier": {"type": "Gaussian"},
    "zero multiplier": {"type": "Gaussian", "noise_multiplier": 0},
    "negative multiplier": {"type": "Laplace", "noise_multiplier": -1.0},
    "infinite multiplier": {"type": "Gaussian", "noise_multiplier": math.inf},
    "multiplier that is no number": {"type": "Gaussian", "noise_multiplier": math.nan},
    "multiplier of words": {"type": "Gaussian", "noise_multiplier": "much"},
    "missing multiplier": {"type": "Gaussian", "noise_multiplier": None},
    "multiplier beyond doubles": {"type": "Gaussian", "noise_multiplier": 10**400},
    "rate zero": {"type": "PoissonSampled", "sampling_probability": 0, "event": GAUSSIAN},
    "rate above one": {"type": "PoissonSampled", "sampling_probability": 1.01, "event": GAUSSIAN},
    "rate without event": {"type": "PoissonSampled", "sampling_probability": 0.1},
    "count zero": {"type": "SelfComposed", "count": 0, "event": GAUSSIAN},
    "count negative": {"type": "SelfComposed", "count": -3, "event": GAUSSIAN},
    "count broken": {"type": "SelfComposed", "count": 2.0, "event": GAUSSIAN},
    "count in text": {"type": "SelfComposed", "count": "2", "event": GAUSSIAN},
    "no count": {"type": "SelfComposed", "event": GAUSSIAN},
    "composed of nothing known": {"type": "Composed"},
    "composed of a record": {"type": "Composed", "events": GAUSSIAN},
    "composed of a number": {"type": "Composed", "events": 3},
    "composed with a bad part": {"type": "Composed", "events": [GAUSSIAN, {"type": "?"}]},
    "deeper than any plan": nested(100_000),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_bad_input(name):
    with pytest.raises(InputError, match="malformed privacy event"):
        from_json(MALFORMED[name])


def test_reasonable_depth_is_read():
    event = from_json(nested(50))
    for _ in range(50):
        event = event.event
    assert event == dp.GaussianDpEvent(1.0)
