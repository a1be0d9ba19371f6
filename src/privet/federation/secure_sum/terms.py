"""The terms of one sum: who takes part, of what, under which threshold. All else is bound to them.

| symbol | here        | meaning                                                              |
|--------|-------------|----------------------------------------------------------------------|
| U0     | `roster`    | who may take part, and the key of each device                        |
| n      |             | how many they are                                                    |
| t      | `threshold` | of any secret so many shares are needed; n/2 < t <= n                |
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self, final

from privet.errors import InputError
from privet.federation.secure_sum.encoding import FixedPoint

LEAST_THRESHOLD: Final = 3


def safe_threshold(clients: int) -> int:
    """More than two thirds: holds against a lying server with nearly a third of the clients."""
    return max(LEAST_THRESHOLD, 2 * clients // 3 + 1)


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What client and server must agree on before the first key is sent.

    Attributes:
        model: of which the updates are.
        round: of the model's rounds; a server counts them.
        base_version: that the updates are of.
        size: how many numbers an update has.
        longest: C, see `encoding`.
        threshold: t.
        roster: by name, the Ed25519 public key of each device.
        bits: k, see `encoding`.
        session: new for every sum, also if a round is tried again.
    """

    model: str
    round: int
    base_version: int
    size: int
    longest: float
    threshold: int
    roster: dict[str, bytes] = field(repr=False)
    bits: int = 32
    session: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        n = len(self.roster)
        if self.size < 1:
            raise InputError("bad number of weights", got=self.size, expected="at least 1")
        if not max(LEAST_THRESHOLD, n // 2 + 1) <= self.threshold <= n:
            raise InputError(
                "bad threshold of a secure sum",
                got=f"{self.threshold} of {n} clients",
                expected=f"at least {LEAST_THRESHOLD}, more than half of them, at most all",
                fix="a larger cohort, or a threshold above two thirds of it",
            )
        if len(set(self.roster.values())) != n:
            raise InputError("two devices of a cohort with the same key")
        self.fixed_point  # noqa: B018 - refuses bad norms and widths

    @cached_property
    def fixed_point(self) -> FixedPoint:
        """How updates are written."""
        return FixedPoint(clients=len(self.roster), longest=self.longest, bits=self.bits)

    @cached_property
    def points(self) -> dict[str, int]:
        """Where each client's shares are taken: its place in the roster, from 1 on."""
        return {name: place for place, name in enumerate(sorted(self.roster), start=1)}

    @cached_property
    def digest(self) -> bytes:
        """Of all of it; two sums never have the same."""
        return digest_of(
            {
                "model": self.model,
                "round": self.round,
                "base_version": self.base_version,
                "size": self.size,
                "longest": float(self.longest).hex(),
                "threshold": self.threshold,
                "roster": {name: key.hex() for name, key in self.roster.items()},
                "bits": self.bits,
                "session": self.session,
            }
        )

    def text(self, purpose: str, *parts: bytes) -> bytes:
        """What a signature or an encryption is about: the purpose, these terms, and the parts."""
        words = ("privet secure sum", purpose, self.digest.hex(), *(part.hex() for part in parts))
        return "\n".join(words).encode()

    @classmethod
    def for_cohort(cls, roster: Mapping[str, bytes], **facts: Any) -> Self:
        """With the threshold that `safe_threshold` gives."""
        return cls(roster=dict(roster), threshold=safe_threshold(len(roster)), **facts)


def digest_of(record: Any) -> bytes:
    """SHA-256 of a record as JSON with sorted keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).digest()
