"""Whole numbers for updates: no longer than before, no overflow, the stated error."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.federation.secure_sum.encoding import MARGIN, FixedPoint, squared_norm

norms = st.floats(1e-9, 1e9)
widths = st.sampled_from((32, 64))
clients = st.integers(1, 1000)
updates = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20).map(np.array)


def _signed(point, update):
    return point.encoded(update).view(f"<i{point.bits // 8}").astype(object)


@settings(max_examples=300, deadline=None)
@given(updates, norms, widths, clients)
def test_what_is_encoded_is_no_longer_than_the_clip_norm(update, longest, bits, n):
    """In exact arithmetic. Rounding to the nearest fails this."""
    point = FixedPoint(clients=n, longest=longest, bits=bits)
    length = sum(int(q) ** 2 for q in _signed(point, update))
    assert length <= (Fraction(longest) * Fraction(2) ** point.shift) ** 2


def test_rounding_to_the_nearest_would_lengthen():
    """The planted mistake that the test above is for."""
    point = FixedPoint(clients=1000, longest=1.0)
    update = np.full(400, 0.05 * (1 - 2 * MARGIN))
    most = 4.0**point.shift
    nearest = np.ceil(np.ldexp(update, point.shift)).astype(np.int64)
    assert squared_norm(nearest) > most
    assert squared_norm(_signed(point, update).astype(np.int64)) <= most


@settings(max_examples=200, deadline=None)
@given(updates, norms, widths, clients)
def test_the_error_of_one_update_is_below_a_unit_and_towards_zero(update, longest, bits, n):
    point = FixedPoint(clients=n, longest=longest, bits=bits)
    short = point.shortened(update)
    for x, q in zip(short, _signed(point, update), strict=True):
        back = Fraction(int(q)) / Fraction(2) ** point.shift
        assert abs(Fraction(float(x))) - abs(back) >= 0
        assert abs(Fraction(float(x)) - back) < Fraction(point.unit)
        assert int(q) * x >= 0


@settings(max_examples=100, deadline=None)
@given(norms, widths, clients, st.sampled_from((-1.0, 1.0)))
def test_no_overflow_even_if_all_push_one_coordinate(longest, bits, n, sign):
    point = FixedPoint(clients=n, longest=longest, bits=bits)
    one = point.encoded(np.array([sign * longest, 0.0]))
    total = np.zeros(2, point.dtype)
    for _ in range(n):
        total += one
    decoded = point.decoded(total)
    assert decoded[0] == pytest.approx(sign * n * longest, rel=1e-5)
    assert abs(decoded[0]) <= n * longest * (1 + 2**-52)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("n", [1, 3, 64, 100, 1000])
@pytest.mark.parametrize("longest", [1e-9, 0.3, 1.0, 17.0, 1e9])
def test_the_shift_is_the_largest_that_cannot_overflow(bits, n, longest):
    point = FixedPoint(clients=n, longest=longest, bits=bits)

    def fits(shift):
        return n * math.floor(Fraction(longest) * Fraction(2) ** shift) < 2 ** (bits - 1)

    assert fits(point.shift)
    assert not fits(point.shift + 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), norms, widths, st.integers(0, 2**32 - 1))
def test_a_sum_is_within_the_stated_error(count, longest, bits, seed):
    point = FixedPoint(clients=40, longest=longest, bits=bits)
    many = np.random.default_rng(seed).normal(0, longest, (count, 5))
    total = np.zeros(5, point.dtype)
    for update in many:
        total += point.encoded(update)
    exact = np.array([[Fraction(float(x)) for x in point.shortened(u)] for u in many]).sum(axis=0)
    slack = 2.0**-52 * count * longest  # what double precision loses when it is decoded
    for found, plain in zip(point.decoded(total), exact, strict=True):
        assert abs(Fraction(float(found)) - plain) < point.error(count) + slack
    if bits == 32:
        assert point.error(count) <= count * 40 * longest * 2.0**-29


def test_short_updates_are_not_changed_by_more_than_rounding():
    point = FixedPoint(clients=4, longest=1.0)
    update = np.array([0.5, -0.25, 0.0])
    np.testing.assert_array_equal(point.decoded(point.encoded(update)), update)


def test_an_update_too_long_in_whole_numbers_is_shortened_until_it_is_not():
    """As if double precision had erred: one unit after the other goes."""
    point = FixedPoint(clients=1, longest=1.0)
    whole = np.array([2**30, 80_000, -1, 0])
    kept = point.within(whole)
    np.testing.assert_array_equal(kept, [2**30 - 3, 79_997, 0, 0])
    assert squared_norm(kept) <= 4**point.shift < squared_norm(kept + np.sign(kept))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_what_is_not_finite_counts_as_zero(bad):
    """1e200 is finite, its square is not."""
    point = FixedPoint(clients=2, longest=1.0)
    assert not point.encoded(np.array([0.5, bad])).any()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), max_size=30))
def test_squared_norms_are_exact(values):
    assert squared_norm(np.array(values, dtype=np.int64)) == sum(v * v for v in values)


@pytest.mark.parametrize(
    "facts", [{"bits": 16}, {"longest": 0.0}, {"longest": math.inf}, {"clients": 0}]
)
def test_bad_settings_are_refused(facts):
    with pytest.raises(InputError):
        FixedPoint(**({"clients": 3, "longest": 1.0} | facts))
