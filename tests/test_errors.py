"""Errors say what, what was given, what is expected and the fix, and carry their exit code."""

import pytest

from privet.errors import BudgetExceeded, CheckFailed, FaultyEnvironment, InputError, PrivetError


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "bad rate"),
        ({"got": 2}, "bad rate: got 2"),
        ({"got": 0}, "bad rate: got 0"),
        ({"got": ""}, "bad rate: got "),
        ({"expected": "0..1"}, "bad rate, expected 0..1"),
        ({"fix": "try 0.1"}, "bad rate. Fix: try 0.1"),
        (
            {"got": 2, "expected": "0..1", "fix": "try 0.1"},
            "bad rate: got 2, expected 0..1. Fix: try 0.1",
        ),
    ],
)
def test_one_sentence(arguments, text):
    assert str(PrivetError("bad rate", **arguments)) == text


@pytest.mark.parametrize(
    ("kind", "code"),
    [(CheckFailed, 1), (BudgetExceeded, 1), (InputError, 2), (FaultyEnvironment, 3)],
)
def test_exit_codes(kind, code):
    assert kind("x").exit_code == code
    assert issubclass(kind, PrivetError)


def test_a_budget_is_a_check_and_input_is_not():
    assert issubclass(BudgetExceeded, CheckFailed)
    assert not issubclass(InputError, CheckFailed)
