"""Shares: known answers, any t of n, and by brute force that fewer say nothing."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.federation.secure_sum import Refused
from privet.federation.secure_sum.shamir import (
    PRIME,
    SHARE_BYTES,
    combine,
    split,
    value_at,
    weights_at_zero,
)


def _small(polynomial, points, prime):
    return {x: value_at(x, polynomial, prime) for x in points}


def test_the_field_is_one():
    """2^256 + 297 passes Miller-Rabin to forty bases; no lesser odd number above 2^256 does."""

    def probably_prime(n):
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in range(2, 42):
            power = pow(base, odd, n)
            if power in (1, n - 1):
                continue
            if not any(n - 1 == (power := power * power % n) for _ in range(twos - 1)):
                return False
        return True

    assert probably_prime(PRIME)
    assert not any(probably_prime(2**256 + k) for k in range(1, 297, 2))


def test_known_answers_of_a_small_polynomial():
    """f(x) = 1234 + 166 x + 94 x^2 over GF(1613), as textbooks have it."""
    assert _small((1234, 166, 94), range(1, 7), 1613) == {
        1: 1494,
        2: 329,
        3: 965,
        4: 176,
        5: 1188,
        6: 775,
    }
    weights = weights_at_zero((2, 4, 5), 1613)
    # by hand: 20/6, 10/-2, 8/3 modulo 1613
    assert weights == {2: 541, 4: 1608, 5: 1078}
    assert (541 * 329 + 1608 * 176 + 1078 * 1188) % 1613 == 1234


def test_known_answer_at_full_size():
    """A line through the secret 1 with slope p - 1 has the values 1 - x."""
    assert value_at(5, (1, PRIME - 1)) == PRIME - 4
    shares = {x: value_at(x, (1, PRIME - 1)).to_bytes(SHARE_BYTES) for x in (3, 9)}
    assert combine(shares, weights_at_zero((3, 9))) == (1).to_bytes(32)


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_t_of_n_shares_give_the_secret(secret, data):
    n = data.draw(st.integers(1, 12))
    t = data.draw(st.integers(1, n))
    shares = split(secret, t, range(1, n + 1))
    chosen = data.draw(st.permutations(sorted(shares)))[:t]
    assert combine(shares, weights_at_zero(chosen)) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_ends_of_the_range(secret):
    shares = split(secret, 2, (1, 2, 1000))
    assert combine(shares, weights_at_zero((2, 1000))) == secret


@pytest.mark.parametrize(("prime", "t"), [(5, 3), (7, 3), (11, 2)])
def test_fewer_shares_fit_every_secret_equally_often(prime, t):
    """Brute force: for each secret all polynomials; any t - 1 shares are alike distributed.

    With one coefficient forgotten (degree t - 2), or with one that cannot be zero, it is not so.
    """

    def seen(secret, points, coefficients):
        return Counter(
            tuple(_small((secret, *rest), points, prime).values()) for rest in coefficients
        )

    every = list(itertools.product(range(prime), repeat=t - 1))
    short = [rest[:-1] for rest in every[::prime]]
    no_zero = [rest for rest in every if rest[-1]]
    for points in itertools.combinations(range(1, prime), t - 1):
        views = [seen(secret, points, every) for secret in range(prime)]
        assert all(view == views[0] for view in views)
        assert set(views[0].values()) == {1}  # exactly one polynomial: a uniform view
        for broken in (short, no_zero):
            views = [seen(secret, points, broken) for secret in range(prime)]
            assert any(view != views[0] for view in views)


def test_one_share_too_few_gives_something_else():
    secret = bytes(range(32))
    shares = split(secret, 3, range(1, 6))
    wrong = 0
    for points in itertools.combinations(shares, 2):
        try:
            wrong += combine(shares, weights_at_zero(points)) != secret
        except Refused:
            wrong += 1
    assert wrong == 10


def test_two_splits_have_no_share_in_common():
    first, second = (split(bytes(32), 3, range(1, 6)) for _ in range(2))
    assert not set(first.values()) & set(second.values())


def test_what_is_no_share_is_refused():
    weights = weights_at_zero((1, 2))
    good = split(bytes(32), 2, (1, 2))
    for bad in (b"", bytes(32), PRIME.to_bytes(SHARE_BYTES), b"\xff" * SHARE_BYTES):
        with pytest.raises(Refused):
            combine(good | {2: bad}, weights)


@pytest.mark.parametrize("points", [(0, 1), (1, 1), (1, PRIME)])
def test_points_at_which_nothing_may_be_shared(points):
    with pytest.raises(ValueError, match="points must differ"):
        weights_at_zero(points)
