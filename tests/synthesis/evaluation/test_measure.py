import numpy as np

from privet.synthesis.evaluation.measure import largest_of, mean_of, plain


def test_plain_values_are_json():
    found = plain(
        {"a": np.float64(1.5), 2: [np.nan, np.inf, None], "b": np.arange(2), "c": (True,)}
    )
    assert found == {"a": 1.5, "2": [None, None, None], "b": [0, 1], "c": [True]}
    assert type(found["a"]) is float


def test_what_is_no_number_does_not_enter_means():
    assert mean_of([1.0, None, np.nan, 3.0]) == 2.0
    assert largest_of([1.0, None, np.nan]) == 1.0
    assert mean_of([None]) is largest_of([]) is None
