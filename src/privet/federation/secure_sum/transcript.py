"""What clients sign before they unmask: that they were all told the same."""

from collections.abc import Iterable, Mapping

from privet.federation.secure_sum.messages import Advertise
from privet.federation.secure_sum.terms import Terms, digest_of


def advertised(terms: Terms, box_key: bytes, mask_key: bytes) -> bytes:
    """What the signature of round 0 is over."""
    return terms.text("keys", box_key, mask_key)


def told(
    terms: Terms,
    members: Mapping[str, Advertise],
    sharers: Iterable[str],
    survivors: Iterable[str],
) -> bytes:
    """What the signature of round 3 is over: all keys of U1, and who is in U2 and U3."""
    record = {
        "keys": {name: [one.box_key.hex(), one.mask_key.hex()] for name, one in members.items()},
        "sharers": sorted(sharers),
        "survivors": sorted(survivors),
    }
    return terms.text("agreement", digest_of(record))
