"""No two things share a stream, whatever their numbers are."""

from itertools import product

from privet.federation.draws import Kind, drawn_from

PLACES = {
    Kind.LESSON: 2,
    Kind.DELAY: 2,
    Kind.COHORT: 1,
    Kind.DROPOUT: 2,
    Kind.PHONE: 1,
    Kind.DEAL: 0,
    Kind.VOLUNTEER: 1,
    Kind.POOL: 0,
    Kind.TURN: 1,
}


def test_no_two_things_share_a_stream() -> None:
    """(s, c) and (s, c, 0) would: a seed sequence is padded with zeros."""
    asked = [
        (seed, kind, *places)
        for seed in range(3)
        for kind in Kind
        for places in product(range(5), repeat=PLACES[kind])
    ]
    first = {drawn_from(*place).integers(2**62) for place in asked}
    assert len(first) == len(asked)


def test_the_same_thing_is_drawn_again() -> None:
    one, again = (drawn_from(3, Kind.LESSON, 4, 5).integers(2**62) for _ in range(2))
    assert one == again
