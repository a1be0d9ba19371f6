"""Which data can be halved."""

import pytest

from privet.errors import InputError
from privet.studies.transdenoiser.halves import halves_of


def test_the_halves_share_no_record_and_have_one_test_set():
    halves = halves_of("digits", None)
    first, second = (
        {row.tobytes() for row in halves[half].train.x} for half in ("first", "second")
    )
    assert not first & second
    assert (halves["first"].test.x == halves["second"].test.x).all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digits/first", "halves the data itself.*--data digits"),
        ("mine.toml", "public records only"),
        ("digitz", "did you mean 'digits'"),
    ],
)
def test_others_are_refused(name, said):
    with pytest.raises(InputError, match=said):
        halves_of(name, None)
