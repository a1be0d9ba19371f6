"""Evidence is complete, is rounded down, and is read by the card as an audit."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.audits import Bound, Evidence
from privet.audits.evidence import check_confidence, rounded_down
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.reports.card import statements

BOUND = {
    "epsilon": 1.23456789,
    "delta": 1e-5,
    "confidence": 0.95,
    "estimator": "two worlds, split",
    "assumptions": ("independent runs",),
}
ABOUT = {
    "adjacency": Adjacency.ADD_REMOVE,
    "unit": "example",
    "attack": "gradient canary",
    "canaries": 1,
    "runs": 1000,
    "subject": "one step of the mechanism",
}


def test_a_row_of_the_card_says_all():
    row = Bound(**BOUND).evidence(**ABOUT).to_json()
    assert row == {
        **BOUND,
        **ABOUT,
        "basis": "audited",
        "epsilon": 1.234567,
        "assumptions": ["independent runs"],
        "adjacency": "add-remove",
    }


@pytest.mark.parametrize(
    ("stated", "confidence", "refuted"),
    [(1.2, 0.999, True), (1.2, 0.95, False), (1.3, 0.999, False)],
)
def test_the_card_reads_it_as_an_audit(stated, confidence, refuted):
    """A bound at 95 % is above the truth once in twenty audits: it refutes nothing."""
    claim = {"epsilon": stated, "delta": 1e-5, "unit": "example", "adjacency": "add-remove"}
    card = {"privacy": [{**claim, "basis": "claimed"}]}
    found = Evidence(**(BOUND | {"confidence": confidence}), **ABOUT)
    card["audit"] = [found.to_json()]
    assert statements(card)[0].contradicted is refuted


@given(st.floats(0.0, 100.0))
@settings(derandomize=True, deadline=None)
def test_rounding_goes_down_and_not_far(value):
    assert value - 1.001e-6 <= rounded_down(value) <= value


def test_rounding_does_not_lift_a_neighbour():
    """Just below 5e-6, times a million, is 5 in floating point; that way would round up."""
    value = math.nextafter(5e-6, 0.0)
    assert math.floor(value * 1e6) / 1e6 > value  # the mistake
    assert rounded_down(value) == 4e-6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", -0.1),
        ("epsilon", math.inf),
        ("epsilon", math.nan),
        ("delta", 1.0),
        ("delta", -1e-9),
        ("confidence", 1.0),
        ("confidence", 0.4),
        ("estimator", ""),
        ("unit", ""),
        ("attack", ""),
        ("subject", ""),
        ("canaries", 0),
        ("runs", 0),
    ],
)
def test_nonsense_is_refused(field, value):
    with pytest.raises(InputError):
        Evidence(**{**BOUND, **ABOUT, field: value})


def test_an_unknown_adjacency_is_refused():
    with pytest.raises(InputError, match=r"add-remove or replace-one or zero-out"):
        Bound(**BOUND).evidence(**{**ABOUT, "adjacency": "swap"})


def test_the_level_is_what_remains():
    assert check_confidence(0.75) == 0.25
