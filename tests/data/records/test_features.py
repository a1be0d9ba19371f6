"""Columns and their codes: known answers, and codes that survive a round trip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.features import Categorical, Numeric
from privet.errors import InputError


def test_bins_are_even_on_the_linear_scale_and_bounds_hold_what_is_outside():
    heart = Numeric(name="hr", low=0, high=250, bins=25)
    codes = heart.encode(np.array([np.nan, -5.0, 0.0, 9.99, 10.0, 249.0, 250.0, 999.0]))
    assert codes.tolist() == [0, 1, 1, 1, 2, 25, 25, 25]
    assert not heart.exact


def test_few_numbers_have_a_code_each():
    coma = Numeric(name="gcs", low=3, high=15, bins=13, decimals=0)
    assert (coma.exact, coma.levels) == (True, 13)
    scores = np.arange(3.0, 16.0)
    assert coma.encode(scores).tolist() == list(range(1, 14))
    assert coma.decode(coma.encode(scores), np.random.default_rng(0)).tolist() == scores.tolist()


def test_the_log_scale_is_narrow_near_the_lower_bound():
    urine = Numeric(name="urine", low=0, high=2560, bins=2, scale="log")
    # Half of log1p(256) is reached at share (sqrt(257) - 1) / 256.
    middle = 2560 * (np.sqrt(257) - 1) / 256
    assert urine.encode(np.array([middle * 0.999, middle * 1.001])).tolist() == [1, 2]
    share = np.linspace(0, 1, 11)
    np.testing.assert_allclose(urine.share(urine.value_at(share)), share, atol=1e-12)


@given(
    low=st.floats(-1e3, 1e3),
    width=st.floats(1e-2, 1e4),
    bins=st.integers(2, 254),
    scale=st.sampled_from(["linear", "log"]),
    seed=st.integers(0, 9),
)
def test_a_decoded_code_is_encoded_as_itself(low, width, bins, scale, seed):
    column = Numeric(name="x", low=low, high=low + width, bins=bins, scale=scale)
    codes = np.arange(bins + 1).astype(np.uint8)
    values = column.decode(codes, np.random.default_rng(seed))
    assert np.isnan(values[0])
    assert ((values[1:] >= low) & (values[1:] <= low + width)).all()
    # Rounding may move a value over the edge of its bin, never further.
    assert np.abs(column.encode(values)[1:].astype(int) - codes[1:]).max() <= 1


def test_categories_are_places_in_the_list():
    sex = Categorical(name="sex", values=("F", "M"))
    codes = sex.encode(np.array([0.0, 1.0, np.nan]))
    assert codes.tolist() == [1, 2, 0]
    back = sex.decode(codes, np.random.default_rng(0))
    np.testing.assert_array_equal(back, [0.0, 1.0, np.nan])


@pytest.mark.parametrize(
    "bad",
    [
        {"low": 1, "high": 1},
        {"low": 0, "high": np.inf},
        {"low": np.nan, "high": 1},
        {"bins": 1},
        {"bins": 255},
        {"scale": "cubic"},
        {"decimals": 13},
        {"decimals": -1},
    ],
)
def test_bad_numeric_columns_are_refused(bad):
    with pytest.raises(InputError, match="column 'x'"):
        Numeric(**({"name": "x", "low": 0, "high": 1} | bad))


@pytest.mark.parametrize("words", [("a",), ("a", "a"), tuple(map(str, range(255)))])
def test_bad_vocabularies_are_refused(words):
    with pytest.raises(InputError, match="bad vocabulary"):
        Categorical(name="x", values=words)
