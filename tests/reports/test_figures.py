import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.reports import figures


@pytest.mark.parametrize(
    ("value", "upper", "lower"),
    [
        (2.98, "2.98", "2.98"),
        (2.9801, "2.99", "2.98"),
        (1e-05, "1e-05", "1e-05"),
        (6.4, "6.4", "6.4"),
        (1234.0, "1240", "1230"),
        (0.0, "0", "0"),
        (float("inf"), "∞", "∞"),
        (float("nan"), "undefined", "undefined"),
    ],
)
def test_bounds_are_rounded_in_their_safe_direction(value: float, upper: str, lower: str) -> None:
    assert figures.at_most(value) == upper
    assert figures.at_least(value) == lower


@given(st.floats(min_value=1e-12, max_value=1e6))
def test_what_is_printed_never_understates_a_bound(value: float) -> None:
    assert float(figures.at_least(value)) <= value <= float(figures.at_most(value))
    assert float(figures.at_most(value)) <= 1.011 * value


@pytest.mark.parametrize(
    ("share", "text"), [(0.0923, "9.3 %"), (0.29, "29.0 %"), (1.0, "100.0 %"), (0.01, "1.0 %")]
)
def test_upper_bounds_in_per_cent(share: float, text: str) -> None:
    assert figures.percent_at_most(share) == text


def test_an_interval_is_rounded_outwards() -> None:
    assert figures.interval(0.9019, 0.9501) == "90.1 to 95.1 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not stated"),
        (True, "yes"),
        (0.1 + 0.2, "0.3"),
        ([], "none"),
        ([1, "two"], "1, two"),
        ([{"name": "bounds", "epsilon": 0.1}], "name bounds, epsilon 0.1"),
    ],
)
def test_any_value_in_words(value: object, text: str) -> None:
    assert figures.value_text(value) == text
