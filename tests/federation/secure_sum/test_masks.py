"""Masks: the cipher's known answer, that pairs cancel, that keys are bound to terms and purpose."""

import numpy as np
import pytest

from privet.federation.secure_sum import Refused
from privet.federation.secure_sum.keys import new_secret, public_of, sealed, unsealed
from privet.federation.secure_sum.masks import add_mask, commitment, pair_key, self_key

TERMS = bytes(range(32))


def _mask(key, size=64, dtype="<u4", sign=1):
    total = np.zeros(size, dtype)
    add_mask(total, key, sign=sign)
    return total


def test_the_keystream_is_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero."""
    assert _mask(bytes(32), 4).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
def test_a_mask_goes_as_it_came_over_several_blocks(dtype):
    size = 300_000 if dtype == "<u4" else 150_001  # more than a block of the stream
    start = np.arange(size, dtype=dtype)
    total, key = start.copy(), new_secret()
    add_mask(total, key, sign=1)
    assert (total != start).mean() > 0.999
    half = len(total) // 2
    assert not np.array_equal((total - start)[:half], (total - start)[half : 2 * half])
    add_mask(total, key, sign=-1)
    np.testing.assert_array_equal(total, start)


def test_two_clients_agree_on_their_mask_and_it_cancels():
    mine, yours = new_secret(), new_secret()
    key = pair_key(mine, public_of(yours), TERMS, (1, 2))
    assert key == pair_key(yours, public_of(mine), TERMS, (2, 1))
    assert not (_mask(key) + _mask(key, sign=-1)).any()


def test_keys_of_different_terms_pairs_and_purposes_differ():
    mine, yours = new_secret(), public_of(new_secret())
    found = {
        pair_key(mine, yours, TERMS, (1, 2)),
        pair_key(mine, yours, TERMS, (1, 3)),
        pair_key(mine, yours, bytes(32), (1, 2)),
        self_key(mine, TERMS),
        self_key(mine, bytes(32)),
        commitment(mine, TERMS),
        commitment(mine, bytes(32)),
    }
    assert len(found) == 7


def test_a_public_key_without_secrets_is_refused():
    """The point zero: what is agreed with it is zero for everybody."""
    with pytest.raises(Refused, match="nothing secret"):
        pair_key(new_secret(), bytes(32), TERMS, (1, 2))


def test_a_box_opens_under_its_key_about_its_matter_alone():
    key = new_secret()
    box = sealed(key, b"two shares", about=b"a to b")
    assert unsealed(key, box, about=b"a to b") == b"two shares"
    changed = box[:-1] + bytes([box[-1] ^ 1])
    for bad in ((new_secret(), box, b"a to b"), (key, box, b"b to a"), (key, changed, b"a to b")):
        with pytest.raises(Refused, match="changed"):
            unsealed(bad[0], bad[1], about=bad[2])
    with pytest.raises(Refused):
        unsealed(key, b"short", about=b"a to b")


def test_the_same_text_is_never_sealed_the_same_way():
    """A client that is killed between two attempts seals new shares under the same key."""
    key = new_secret()
    assert sealed(key, bytes(66), about=b"")[:12] != sealed(key, bytes(66), about=b"")[:12]
