"""Masks: keystreams that are added to updates modulo 2^k, and taken away again.

| symbol | here        | meaning                                                              |
|--------|-------------|----------------------------------------------------------------------|
| p_u    | `self_key`  | u's own mask, from its seed b_u: hides what it sends until U3 is     |
|        |             | known                                                                |
| p_uv   | `pair_key`  | the mask of u and v, from what they agree: u adds it, v takes it     |
|        |             | away (u before v in the roster), so that it is gone from a sum       |

A keystream is ChaCha20's under a key that is used for nothing else, so its nonce may be zero. The
keys are bound to the terms of the round, so that no two rounds ever have a mask in common.
"""

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from privet.federation.secure_sum.encoding import Residues
from privet.federation.secure_sum.keys import agreed, derived

_BLOCK: Final = 1 << 20
_ZEROS: Final = bytes(_BLOCK)


def self_key(seed: bytes, terms: bytes) -> bytes:
    """Of a client's own mask."""
    return derived(seed, salt=terms, purpose="self mask")


def commitment(seed: bytes, terms: bytes) -> bytes:
    """Says nothing of the seed, and fits no other that anybody can find."""
    return derived(seed, salt=terms, purpose="commitment to a self mask")


def pair_key(secret: bytes, peer: bytes, terms: bytes, pair: tuple[int, int]) -> bytes:
    """Of the mask of two clients, whichever of the two asks."""
    low, high = sorted(pair)
    return agreed(secret, peer, salt=terms, purpose=f"mask of {low} and {high}")


def add_mask(total: Residues, key: bytes, *, sign: int) -> None:
    """Add a keystream to numbers modulo 2^k where they lie, or take it away (sign -1)."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    step = _BLOCK // total.itemsize
    for start in range(0, len(total), step):
        part = total[start : start + step]
        mask = np.frombuffer(stream.update(_ZEROS[: part.nbytes]), total.dtype)
        if sign > 0:
            part += mask
        else:
            part -= mask
