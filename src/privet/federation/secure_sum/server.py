r"""The server of a secure sum: collects what clients say, stage by stage, and ends with the sum.

    KEYS -> SHARES -> INPUTS -> AGREEMENT -> UNMASKING -> DONE
      \________\_________\__________\____________\______ GIVEN_UP, with fewer than t

It draws nothing that matters: the same messages, in the order in which they came, and the same
calls of `close` lead to the same sum. Whoever keeps them can replay them, and `state` holds all of
it, too. A message that was taken already is taken again without effect; another one of the same
client is refused, and so is one of a stage that is over.

Masked updates are added up as they come and not kept.
"""

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.federation.secure_sum import codec
from privet.federation.secure_sum.keys import KEY_BYTES, agreed, holds, new_secret
from privet.federation.secure_sum.messages import (
    Advertise,
    Agree,
    Agreed,
    FromClient,
    Inbox,
    Keys,
    Masked,
    Message,
    Shares,
    Survivors,
    Unmask,
)
from privet.federation.secure_sum.refusals import GivenUp, Refused
from privet.federation.secure_sum.shamir import number_of
from privet.federation.secure_sum.terms import Terms
from privet.federation.secure_sum.transcript import advertised, told
from privet.federation.secure_sum.unmasking import Cohort, unmask


class Stage(StrEnum):
    """What is being collected."""

    KEYS = "keys"
    SHARES = "shares"
    INPUTS = "inputs"
    AGREEMENT = "agreement"
    UNMASKING = "unmasking"
    DONE = "done"
    GIVEN_UP = "given up"


ORDER: Final = (Stage.KEYS, Stage.SHARES, Stage.INPUTS, Stage.AGREEMENT, Stage.UNMASKING)
_STAGE_OF: Final[dict[type[FromClient], Stage]] = {
    Advertise: Stage.KEYS,
    Shares: Stage.SHARES,
    Masked: Stage.INPUTS,
    Agree: Stage.AGREEMENT,
    Unmask: Stage.UNMASKING,
}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Sum:
    """What came of it: the sum of the encoded updates of these clients, and nothing else."""

    total: NDArray[np.float64]
    clients: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many updates are in it."""
        return len(self.clients)


@dataclass(kw_only=True)
class _Memory:
    """All that the server knows; `taken` has the digest of every message, by stage and sender."""

    terms: Terms
    stage: Stage = Stage.KEYS
    taken: dict[str, dict[str, bytes]] = field(default_factory=dict)
    advertised: dict[str, Advertise] = field(default_factory=dict)
    shares: dict[str, Shares] = field(default_factory=dict)
    total: bytes = b""
    survivors: tuple[str, ...] = ()
    signatures: dict[str, bytes] = field(default_factory=dict)
    unmasks: dict[str, Unmask] = field(default_factory=dict)


@final
class SecureServer:
    """One sum, from its terms on."""

    def __init__(self, terms: Terms) -> None:
        self._memory = _Memory(terms=terms)
        self._total = np.zeros(terms.size, terms.fixed_point.dtype)

    @property
    def terms(self) -> Terms:
        """What was offered to the cohort."""
        return self._memory.terms

    @property
    def stage(self) -> Stage:
        """What is being collected now."""
        return self._memory.stage

    @property
    def here(self) -> frozenset[str]:
        """Who has answered in this stage."""
        return frozenset(self._memory.taken.get(self.stage, {}))

    @property
    def expected(self) -> frozenset[str]:
        """Who may answer in this stage; when all have, there is nothing to wait for."""
        if self.stage not in ORDER:
            return frozenset()
        if self.stage is Stage.KEYS:
            return frozenset(self.terms.roster)
        before = ORDER[ORDER.index(self.stage) - 1]
        return frozenset(self._memory.taken.get(before, {}))

    def take(self, message: FromClient) -> None:
        """A client's message of this stage.

        Raises:
            Refused: it is late, early, from a stranger, a second one, or it does not fit.
        """
        m, stage = self._memory, _STAGE_OF[type(message)]
        digest = hashlib.sha256(codec.to_bytes(message)).digest()
        if message.terms != self.terms.digest:
            raise Refused("a message of another sum")
        if message.sender in m.taken.get(stage, {}):
            if m.taken[stage][message.sender] != digest:
                raise Refused("a second, different message of a client", got=f"in '{stage}'")
            return
        if stage is not self.stage:
            raise Refused("a message out of turn", got=f"of '{stage}' in '{self.stage}'")
        if message.sender not in self.expected:
            raise Refused("a message of a client that is not, or no longer, in the cohort")
        self._keep(message)
        m.taken.setdefault(stage, {})[message.sender] = digest

    def close(self) -> Stage:
        """End the stage, with whoever has answered; below t it is all over.

        Raises:
            GivenUp: shares do not fit what they are shares of; the sum is lost.
        """
        m = self._memory
        if self.stage not in ORDER:
            return self.stage
        if len(self.here) < self.terms.threshold:
            self._forget(Stage.GIVEN_UP)
            return self.stage
        if self.stage is Stage.INPUTS:
            m.survivors = tuple(sorted(self.here))
        if self.stage is Stage.UNMASKING:
            self._finish()
            return self.stage
        m.stage = ORDER[ORDER.index(self.stage) + 1]
        return self.stage

    def for_client(self, name: str) -> Message | None:
        """What this client needs for its next answer; None: nothing, or it is out."""
        m, digest = self._memory, self.terms.digest
        if name not in self.expected:
            return None
        match self.stage:
            case Stage.SHARES:
                members = tuple(m.advertised[name] for name in sorted(m.advertised))
                return Keys(terms=digest, members=members)
            case Stage.INPUTS:
                boxes = {s: one.boxes[name] for s, one in m.shares.items() if s != name}
                return Inbox(terms=digest, boxes=boxes)
            case Stage.AGREEMENT:
                return Survivors(terms=digest, names=m.survivors)
            case Stage.UNMASKING:
                return Agreed(terms=digest, signatures=dict(m.signatures))
        return None

    @property
    def result(self) -> Sum:
        """The sum, once it is done."""
        if self.stage is not Stage.DONE:
            raise ValueError("there is no sum")
        total = self.terms.fixed_point.decoded(self._total)
        return Sum(total=total, clients=self._memory.survivors)

    def state(self) -> bytes:
        """All that a killed server needs to go on."""
        return codec.to_bytes(replace(self._memory, total=self._total.tobytes()))

    @classmethod
    def restored(cls, state: bytes) -> Self:
        """A server that goes on where another process stopped."""
        memory = codec.from_bytes(_Memory, state)
        server = cls(memory.terms)
        server._memory = memory
        server._total = np.frombuffer(memory.total, server._total.dtype).copy()
        memory.total = b""
        return server

    def _keep(self, message: FromClient) -> None:
        m = self._memory
        match message:
            case Advertise():
                self._require_keys(message)
                m.advertised[message.sender] = message
            case Shares():
                self._require_boxes(message)
                m.shares[message.sender] = message
            case Masked():
                self._add(message)
            case Agree():
                text = told(self.terms, m.advertised, m.shares, m.survivors)
                if not holds(self.terms.roster[message.sender], message.signature, text):
                    raise Refused("a client was told something else, or did not sign it")
                m.signatures[message.sender] = message.signature
            case Unmask():
                self._require_halves(message)
                m.unmasks[message.sender] = message

    def _require_keys(self, message: Advertise) -> None:
        text = advertised(self.terms, message.box_key, message.mask_key)
        if not holds(self.terms.roster[message.sender], message.signature, text):
            raise Refused("keys that their device did not sign")
        known = {k for one in self._memory.advertised.values() for k in (one.box_key, one.mask_key)}
        new = {message.box_key, message.mask_key}
        if any(len(key) != KEY_BYTES for key in new) or len(new) < 2 or new & known:
            raise Refused("keys that are none, or that are there already")
        for key in new:  # one with which nobody can agree would make all others leave
            agreed(new_secret(), key, salt=b"", purpose="trial")

    def _require_boxes(self, message: Shares) -> None:
        if set(message.boxes) != set(self._memory.advertised) - {message.sender}:
            raise Refused("boxes for others than the clients of this sum")
        if len(message.commitment) != KEY_BYTES:
            raise Refused("a commitment of another length", got=len(message.commitment))

    def _add(self, message: Masked) -> None:
        if len(message.vector) != self._total.nbytes:
            raise Refused(
                "a masked update of another length",
                got=len(message.vector),
                expected=f"{self._total.nbytes} bytes",
            )
        self._total += np.frombuffer(message.vector, self._total.dtype)

    def _require_halves(self, message: Unmask) -> None:
        m = self._memory
        gone = set(m.shares) - set(m.survivors)
        if set(message.seeds) != set(m.survivors) or set(message.mask_keys) != gone:
            raise Refused("shares of other secrets than those that were asked for")
        for share in (*message.seeds.values(), *message.mask_keys.values()):
            number_of(share)

    def _finish(self) -> None:
        m = self._memory
        cohort = Cohort(
            terms=self.terms, advertised=m.advertised, shares=m.shares, survivors=m.survivors
        )
        try:
            unmask(self._total, cohort, m.unmasks)
        except Refused as why:
            self._forget(Stage.GIVEN_UP)
            raise GivenUp("the shares of a secret do not fit it", got=str(why)) from None
        total, survivors = self._total, m.survivors
        self._forget(Stage.DONE)
        self._total, m.survivors = total, survivors

    def _forget(self, stage: Stage) -> None:
        """Only the digests of what was taken stay, so that a late client hears the same again."""
        m = self._memory
        empty: dict[str, Any] = {"advertised": {}, "shares": {}, "signatures": {}, "unmasks": {}}
        for name, nothing in empty.items():
            setattr(m, name, nothing)
        m.stage, m.survivors = stage, ()
        self._total = np.zeros_like(self._total)
