"""Conditions in words: what they mean, and what cannot be met."""

import numpy as np
import pytest

from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Schema
from privet.errors import InputError
from privet.synthesis.conditions import Conditions

SCHEMA = Schema(
    name="s",
    temporal=(Numeric(name="hr", low=0, high=250),),
    static=(Numeric(name="age", low=18, high=100), Categorical(name="sex", values=("f", "m", "x"))),
    outcomes=(Categorical(name="died", values=("no", "yes")),),
    nominal_size=10,
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["age>=60"], [False, True, True, False]),
        (["age > 60"], [False, False, True, False]),
        (["age<60"], [True, False, False, False]),
        (["age<=60"], [True, True, False, False]),
        (["age=60,75"], [False, True, True, False]),
        (["sex = f, x"], [True, False, True, True]),
        (["age>=60", "sex=m"], [False, True, False, False]),
        (["died=yes"], [True, True, True, True]),
        ([], [True, True, True, True]),
    ],
)
def test_which_stays_may_begin(words, expected):
    static = np.array([[30, 0], [60, 1], [75, 2], [np.nan, 0]])
    assert Conditions.read(words, SCHEMA).met_by_static(static).tolist() == expected


def test_which_stays_may_be_kept():
    found = Conditions.read(["died=yes", "age>=60"], SCHEMA)
    assert found.met_by_outcomes(np.array([[0.0], [1.0], [np.nan]])).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("age", "cannot read"),
        ("age~60", "cannot read"),
        ("weight>3", "no such column"),
        ("hr>100", "measured again and again"),
        ("age>=old", "no number"),
        ("age>=120", "18 to 100"),
        ("age<18", "18 to 100"),
        ("age=5", "18 to 100"),
        ("age>=60,70", "several numbers"),
        ("sex=F", "f, m, x"),
        ("sex>f", "f, m, x"),
    ],
)
def test_what_cannot_be_met_is_said_in_one_line(word, said):
    with pytest.raises(InputError, match=said):
        Conditions.read([word], SCHEMA)
