"""Statements survive JSON, malformed ones are refused, and the strongest is the right one."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy, check_target, strongest_proved

STATED = Privacy(
    epsilon=2.0,
    delta=1e-5,
    unit="patient",
    adjacency=Adjacency.ADD_REMOVE,
    basis=Basis.PROVED,
    accountant="pld",
    sampler="poisson",
    assumptions=("keys stay secret",),
)

statements = st.builds(
    Privacy,
    epsilon=st.floats(0, 1e6) | st.just(math.inf),
    delta=st.floats(0, 0.999),
    unit=st.text(max_size=8),
    adjacency=st.sampled_from(Adjacency),
    basis=st.sampled_from(Basis),
    accountant=st.text(max_size=8),
    sampler=st.text(max_size=8),
    assumptions=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    gaps=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(statements)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_text_keeps_every_statement_exactly(statement):
    back = Privacy.from_json(json.loads(json.dumps(statement.to_json())))
    assert back == statement
    assert back.adjacency is statement.adjacency
    assert back.basis is statement.basis


def test_the_record_is_plain():
    record = json.loads(json.dumps(STATED.to_json()))
    assert record == {
        "epsilon": 2.0,
        "delta": 1e-5,
        "unit": "patient",
        "adjacency": "add-remove",
        "basis": "proved",
        "accountant": "pld",
        "sampler": "poisson",
        "assumptions": ["keys stay secret"],
        "gaps": [],
    }


def test_lists_may_be_left_out():
    record = {k: v for k, v in STATED.to_json().items() if k not in ("assumptions", "gaps")}
    assert Privacy.from_json(record) == replace(STATED, assumptions=())


@pytest.mark.parametrize(
    "change",
    [
        {"adjacency": "nearly"},
        {"adjacency": None},
        {"basis": "believed"},
        {"basis": "Proved"},
        {"epsilon": "little"},
        {"epsilon": None},
        {"epsilon": -0.5},
        {"epsilon": math.nan},
        {"epsilon": 10**400},
        {"delta": -1e-5},
        {"delta": 1.0},
        {"delta": 2.0},
        {"delta": math.nan},
        {"delta": []},
        {"gaps": 3},
        {"colour": "green"},
    ],
    ids=str,
)
def test_malformed_statements_are_bad_input(change):
    with pytest.raises(InputError, match="malformed privacy entry"):
        Privacy.from_json(STATED.to_json() | change)


@pytest.mark.parametrize("missing", ["epsilon", "delta", "unit", "adjacency", "basis", "sampler"])
def test_incomplete_statements_are_bad_input(missing):
    record = STATED.to_json()
    del record[missing]
    with pytest.raises(InputError):
        Privacy.from_json(record)


@pytest.mark.parametrize("record", [None, 3, "proved", [1, 2]])
def test_what_is_no_record_is_bad_input(record):
    with pytest.raises(InputError):
        Privacy.from_json(record)


class TestStrongestProved:
    def test_least_epsilon_among_the_proved(self):
        claimed = replace(STATED, epsilon=0.1, basis=Basis.CLAIMED)
        audited = replace(STATED, epsilon=0.01, basis=Basis.AUDITED)
        weaker = replace(STATED, epsilon=3.0)
        assert strongest_proved([weaker, claimed, STATED, audited]) is STATED

    def test_add_remove_goes_before_a_smaller_number_of_another_kind(self):
        other = replace(STATED, epsilon=1.0, adjacency=Adjacency.ZERO_OUT)
        assert strongest_proved([other, STATED]) is STATED
        assert strongest_proved([other]) is other

    def test_nothing_proved(self):
        assert strongest_proved([]) is None
        assert strongest_proved([replace(STATED, basis=Basis.CLAIMED)]) is None


class TestTarget:
    @pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
    def test_bad_epsilon(self, epsilon):
        with pytest.raises(InputError, match="bad epsilon"):
            check_target(epsilon, 1e-5)

    @pytest.mark.parametrize("delta", [0, 1, -1e-9, 1.5, math.nan])
    def test_bad_delta(self, delta):
        with pytest.raises(InputError, match="bad delta"):
            check_target(1.0, delta)

    @pytest.mark.parametrize(("epsilon", "delta"), [(1e-9, 0.999), (1e6, 1e-300), (3, 1e-5)])
    def test_anything_between_is_meant(self, epsilon, delta):
        assert check_target(epsilon, delta) is None
