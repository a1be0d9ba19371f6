"""Stretches read from front to back say what a look at every phone says."""

from bisect import bisect_right

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.federation.availability import Availability
from privet.federation.traces import Phone

STRETCHES = st.lists(st.integers(0, 12), max_size=8, unique=True).map(
    lambda ends: tuple(zip(*[iter(map(float, sorted(ends)))] * 2, strict=False))
)


def _by_looking(phone: Phone, now: float) -> float:
    """When the last stretch ends that has begun by now."""
    place = bisect_right([start for start, _ in phone.stretches], now) - 1
    return phone.stretches[place][1] if place >= 0 else -np.inf


@given(st.lists(STRETCHES, max_size=6), st.lists(st.floats(0, 13), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_every_phone_is_where_its_stretches_say(
    stretches: list[tuple[tuple[float, float], ...]], moments: list[float]
) -> None:
    phones = [Phone(stretches=own) for own in stretches]
    there = Availability(phones)
    for now in sorted(moments):
        there.pass_to(now)
        assert there.until.tolist() == [_by_looking(phone, now) for phone in phones]


@given(st.lists(STRETCHES, max_size=6))
@settings(max_examples=200, deadline=None)
def test_stretches_begin_in_order_and_ties_go_by_phone(
    stretches: list[tuple[tuple[float, float], ...]],
) -> None:
    there = Availability([Phone(stretches=own) for own in stretches])
    begun = []
    while (begins := there.peek()) is not None:
        begun.append((begins[0], there.take()))
    assert begun == sorted(
        (start, owner) for owner, own in enumerate(stretches) for start, _ in own
    )
    assert len(there) == len(begun)
