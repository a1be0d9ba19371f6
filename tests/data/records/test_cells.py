"""Readers of cells: what each makes of the cells it is given, from text and from typed columns."""

from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.records.cells import (
    NO_TIME,
    BadCell,
    Dates,
    Ids,
    Numbers,
    Rated,
    Replaced,
    Texts,
    Times,
    Words,
)

NAN = np.nan


def test_numbers_from_text_and_from_numbers():
    plain = Numbers()(["1", "", "-2.5e3", " 7 ", "0"])
    np.testing.assert_array_equal(plain, [1, NAN, -2500, 7, 0])
    np.testing.assert_array_equal(Numbers()([None, "NA", "3"]), [NAN, NAN, 3])
    np.testing.assert_array_equal(Numbers(["-1"])(["-1", "-1.0", "2"]), [NAN, -1, 2])
    np.testing.assert_array_equal(Numbers()(np.array([0, 5])), [0, 5])
    np.testing.assert_array_equal(Numbers()([0, None, True]), [0, NAN, 1])


@pytest.mark.parametrize("bad", ["x", "1_0", "1,5", "inf", "-Infinity", "1e999", "0x10"])
def test_what_is_no_finite_number_is_refused_with_its_row(bad):
    with pytest.raises(BadCell) as caught:
        Numbers()(["1", "2", bad, "3"])
    assert caught.value.row == 2
    assert str(caught.value) in ("not a number", "an infinite number")


def test_an_infinite_number_in_a_typed_column_is_refused():
    with pytest.raises(BadCell, match="infinite"):
        Numbers()(np.array([1.0, np.inf]))


def test_words_are_places_and_vocabulary_comes_before_blanks():
    np.testing.assert_array_equal(Words(("a", "NA"))(["NA", "a", "", "nan"]), [1, 0, NAN, NAN])
    np.testing.assert_array_equal(Words(("0", "1"))([1.0, 0, True, None]), [1, 0, 1, NAN])
    np.testing.assert_array_equal(Words((" a", "b"))([" a", "b "]), [0, 1])
    with pytest.raises(BadCell) as caught:
        Words(("a", "b"))(["a", "c"])
    assert caught.value.row == 1


def test_ids_are_numbered_across_chunks_and_formats():
    ids = Ids()
    assert ids(["x", " 7 ", "x"]).tolist() == [0, 1, 0]
    assert ids([7, 7.0, "007"]).tolist() == [1, 1, 2]
    assert ids.names().tolist() == ["x", "7", "007"]
    for blank in ("", "nan", None, "N/A", NAN):
        with pytest.raises(BadCell, match="no id"):
            Ids()([blank])


def test_texts_keep_everything():
    texts = Texts()
    assert texts(["a", "", "a ", 1.5]).tolist() == [0, 1, 2, 3]
    assert texts.names() == ["a", "", "a ", "1.5"]


def test_times_may_be_blank_but_not_negative():
    np.testing.assert_array_equal(Times()(["0", "", "2.5"]), [0, NAN, 2.5])
    for bad in ("-0.1", "nan", "inf"):
        with pytest.raises(BadCell):
            Times()(["0", bad])


def test_dates_are_microseconds_whatever_they_come_as():
    expected = [1_000_000, NO_TIME, 86_400_000_000]
    assert Dates()(["1970-01-01 00:00:01", "", "1970-01-02"]).tolist() == expected
    assert Dates()([datetime(1970, 1, 1, 0, 0, 1), None, date(1970, 1, 2)]).tolist() == expected


def test_zones_are_remembered_across_chunks():
    dates = Dates()
    assert dates(["1970-01-01T01:00:00+01:00"]).tolist() == [0]
    with pytest.raises(BadCell, match="mixed"):
        dates(["1970-01-01"])


@given(moment=st.datetimes())
def test_dates_are_exact(moment):
    found = Dates()([moment.isoformat(sep=" ")])
    assert found.astype("datetime64[us]").tolist() == [moment]


def test_replaced_words_and_those_in_no_list():
    reader = Replaced(Words(("WHITE", "OTHER")), {"PALE": "WHITE", "?": ""}, otherwise="OTHER")
    np.testing.assert_array_equal(reader(["PALE", "?", "", "GREEN"]), [0, NAN, NAN, 1])
    assert reader.unlisted == 1
    ages = Replaced(Numbers(), {"> 89": "90"})
    np.testing.assert_array_equal(ages(["> 89", "45"]), [90, 45])


def test_ratings_among_free_text():
    pain = Rated(0, 10)
    cells = ["5", "", "8.5", "13", "asleep", "-1", "10", None]
    np.testing.assert_array_equal(pain(cells), [5, NAN, 8.5, NAN, NAN, NAN, 10, NAN])
    assert pain.unusable == 3
