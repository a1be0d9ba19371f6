from dataclasses import replace

import numpy as np
import pytest

from privet.data.records import joined
from privet.data.records.simulator import simulate
from privet.errors import InputError


def test_parts_put_together_are_the_whole():
    whole = simulate(30)
    cuts = np.array_split(np.arange(len(whole)), 4)
    again = joined(whole.part(cut) for cut in cuts)
    for name in ("patients", "stays", "offsets"):
        assert (getattr(again, name) == getattr(whole, name)).all()
    for name in ("static", "outcomes", "times", "values"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


def test_dates_stay_with_their_stays():
    whole = simulate(8)
    starts = np.datetime64("2020-01-01T00:00:00") + np.arange(len(whole)) * np.timedelta64(1, "D")
    whole = replace(whole, starts=starts)
    again = joined([whole.part([3]), whole.part([0, 1])])
    assert (again.starts == starts[[3, 0, 1]]).all()
    with pytest.raises(InputError, match="with and without dates"):
        joined([whole, replace(whole, starts=None)])


def test_what_does_not_belong_together_is_refused():
    one = simulate(5)
    other = replace(one, schema=replace(one.schema, nominal_size=6))
    with pytest.raises(InputError, match="different schemas"):
        joined([one, other])
    with pytest.raises(InputError, match="no records"):
        joined([])
