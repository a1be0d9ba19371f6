"""What a schema refuses, and the gap that follows from it."""

import pytest

from privet.data.dataset import LearnedFact
from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Ends, Order, Schema
from privet.errors import InputError


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"time_unit": "weeks"}, "time_unit"),
        ({"max_steps": 0}, "max_steps"),
        ({"nominal_size": 0}, "nominal_size"),
        ({"temporal": ()}, "no temporal column"),
        ({"max_gap": 0.0}, "bounds"),
        ({"horizon": 0.0}, "horizon"),
        ({"patient": "hr"}, "declared twice.*'hr'"),
        ({"start": "came"}, "without timestamps"),
        ({"constraints": (Order(above="hr", below="rhythm"),)}, "two numeric"),
        ({"constraints": (Order(above="hr", below="hr"),)}, "two numeric"),
        ({"constraints": (Order(above="hr", below="age"),)}, "two numeric"),
        ({"constraints": (Ends(column="rhythm", value="maybe"),)}, "an end by"),
        ({"constraints": (Ends(column="hr", value="1"),)}, "an end by"),
    ],
)
def test_bad_facts_are_refused(ward, bad, words):
    with pytest.raises(InputError, match=words):
        ward(**bad)


def test_a_column_is_found_by_name(ward):
    assert ward().feature("sex") == Categorical(name="sex", values=("F", "M"))
    with pytest.raises(InputError, match=r"'sx', expected one of age, sex, hr"):
        ward().feature("sx")


def test_the_gap_is_a_column_up_to_the_longest(ward):
    gap = ward(max_gap=60.0, gap_bins=8).gap
    assert (gap.low, gap.high, gap.levels, gap.scale) == (0.0, 60.0, 8, "log")


def test_start_is_a_column_of_its_own(ward):
    with pytest.raises(InputError, match="declared twice"):
        ward(timestamps=True, start="time")


@pytest.mark.parametrize("epsilon", [0.0, -5.0, float("nan"), float("inf")])
def test_prices_of_learned_facts_are_positive(epsilon):
    fact = LearnedFact(name="bounds of x", epsilon=epsilon)
    with pytest.raises(InputError, match="bad epsilon of learned"):
        Schema(
            name="x",
            temporal=(Numeric(name="x", low=0, high=1),),
            nominal_size=1,
            learned=(fact,),
        )
