"""A client of a secure sum: takes a message, gives the next one, and never answers twice.

    advertise -> share -> mask -> agree -> unmask

Every step is answered once. The same question again gets the same answer, byte for byte; another
question in the same step is refused, and so is one out of turn. That is what keeps a server from
asking for both secrets of one peer, or for two updates under the same masks.

`state` is all that a killed client needs, and secret: keep it in a private file, and write it
BEFORE the answer is sent. A client that is set back to an older state and goes on would answer
twice: then begin anew, with new terms.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar, final

from numpy.typing import NDArray

from privet.federation.secure_sum import codec
from privet.federation.secure_sum.keys import (
    Sign,
    agreed,
    holds,
    new_secret,
    public_of,
    sealed,
    unsealed,
)
from privet.federation.secure_sum.masks import add_mask, commitment, pair_key, self_key
from privet.federation.secure_sum.messages import (
    Advertise,
    Agree,
    Agreed,
    Inbox,
    Keys,
    Masked,
    Message,
    Shares,
    Survivors,
    Unmask,
)
from privet.federation.secure_sum.refusals import Refused
from privet.federation.secure_sum.shamir import SHARE_BYTES, split
from privet.federation.secure_sum.terms import LEAST_THRESHOLD, Terms
from privet.federation.secure_sum.transcript import advertised, told

Answer = TypeVar("Answer", bound=Message)
STEPS: Final = ("share", "mask", "agree", "unmask")


@dataclass(kw_only=True)
class _Memory:
    """All that a client knows; `held` has two shares of each peer, of its seed and its mask key."""

    terms: Terms
    name: str
    advertise: Advertise
    box_secret: bytes
    mask_secret: bytes
    seed: bytes
    members: dict[str, Advertise] = field(default_factory=dict)
    held: dict[str, bytes] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()
    questions: dict[str, bytes] = field(default_factory=dict)
    share: Shares | None = None
    mask: Masked | None = None
    agree: Agree | None = None
    unmask: Unmask | None = None


@final
class SecureClient:
    """One device in one sum.

    Args:
        terms: as the server offered them.
        name: of this device in the roster.
        sign: by the device's Ed25519 key.
        least: the lowest threshold that this device accepts; it is what the device is hidden
            among, and the server proposes it.
    """

    def __init__(
        self, terms: Terms, name: str, sign: Sign, *, least: int = LEAST_THRESHOLD
    ) -> None:
        if terms.threshold < least:
            raise Refused(
                "a cohort too small to hide in", got=terms.threshold, expected=f"at least {least}"
            )
        box, mask = new_secret(), new_secret()
        text = advertised(terms, public_of(box), public_of(mask))
        advertise = Advertise(
            terms=terms.digest,
            sender=name,
            box_key=public_of(box),
            mask_key=public_of(mask),
            signature=sign(text),
        )
        if name not in terms.roster or not holds(terms.roster[name], advertise.signature, text):
            raise Refused("a cohort in which this device is not, or not with its own key")
        self._sign = sign
        self._memory = _Memory(
            terms=terms,
            name=name,
            advertise=advertise,
            box_secret=box,
            mask_secret=mask,
            seed=new_secret(),
        )

    @property
    def terms(self) -> Terms:
        """What was agreed on."""
        return self._memory.terms

    @property
    def has_masked(self) -> bool:
        """Whether its masked update may have been sent: it must go into no other sum then."""
        return "mask" in self._memory.questions

    def advertise(self) -> Advertise:
        """Round 0."""
        return self._memory.advertise

    def share(self, keys: Keys) -> Shares:
        """Round 1: check everybody's keys, and give each a share of both secrets."""
        m = self._memory
        if (before := self._before("share", keys, m.share)) is not None:
            return before
        members = self._members(keys)
        points = {name: self.terms.points[name] for name in members}
        seeds = split(m.seed, self.terms.threshold, points.values())
        mask_keys = split(m.mask_secret, self.terms.threshold, points.values())
        both = {name: seeds[x] + mask_keys[x] for name, x in points.items()}
        m.members, m.held = members, {m.name: both.pop(m.name)}
        m.share = Shares(
            terms=self.terms.digest,
            sender=m.name,
            commitment=commitment(m.seed, self.terms.digest),
            boxes={
                name: sealed(self._box_key(name), text, about=self._about(m.name, name))
                for name, text in both.items()
            },
        )
        return self._noted("share", keys, m.share)

    def mask(self, inbox: Inbox, change: NDArray[Any]) -> Masked:
        """Round 2: open the boxes, and mask the update; another update later changes nothing."""
        m = self._memory
        if (before := self._before("mask", inbox, m.mask)) is not None:
            return before
        if m.name in inbox.boxes:
            raise Refused("a box from this client to itself")
        self._require_enough({m.name, *inbox.boxes}, m.members, "who shared")
        if change.shape != (self.terms.size,):
            raise Refused(
                "an update of another size", got=change.shape, expected=f"({self.terms.size},)"
            )
        held = {name: self._opened(name, box) for name, box in inbox.boxes.items()}
        total = self.terms.fixed_point.encoded(change)
        digest, points = self.terms.digest, self.terms.points
        add_mask(total, self_key(m.seed, digest), sign=1)
        for name in held:
            pair = points[m.name], points[name]
            key = pair_key(m.mask_secret, m.members[name].mask_key, digest, pair)
            add_mask(total, key, sign=1 if pair[0] < pair[1] else -1)
        m.held |= held
        m.mask = Masked(terms=digest, sender=m.name, vector=total.tobytes())
        return self._noted("mask", inbox, m.mask)

    def agree(self, survivors: Survivors) -> Agree:
        """Round 3: sign what this client was told."""
        m = self._memory
        if (before := self._before("agree", survivors, m.agree)) is not None:
            return before
        self._require_enough(set(survivors.names), m.held, "whose updates are there")
        if m.name not in survivors.names or len(set(survivors.names)) != len(survivors.names):
            raise Refused("a list of survivors without this client, or with one twice")
        m.survivors = tuple(sorted(survivors.names))
        m.agree = Agree(terms=self.terms.digest, sender=m.name, signature=self._sign(self._told()))
        return self._noted("agree", survivors, m.agree)

    def unmask(self, agreed: Agreed) -> Unmask:
        """Round 4: one share of each peer, if enough of them were told the same; then forget."""
        m = self._memory
        if (before := self._before("unmask", agreed, m.unmask)) is not None:
            return before
        self._require_enough(set(agreed.signatures), m.survivors, "who agreed")
        text = self._told()
        for name, signature in agreed.signatures.items():
            if not holds(self.terms.roster[name], signature, text):
                raise Refused("clients were told different things", got=f"'{name}' did not agree")
        m.unmask = Unmask(
            terms=self.terms.digest,
            sender=m.name,
            seeds={name: m.held[name][:SHARE_BYTES] for name in m.survivors},
            mask_keys={
                name: both[SHARE_BYTES:] for name, both in m.held.items() if name not in m.survivors
            },
        )
        answer = self._noted("unmask", agreed, m.unmask)
        self.forget()
        return answer

    def forget(self) -> None:
        """Keep no secret: after the last answer, or where a round is given up."""
        nothing: dict[str, Any] = {"box_secret": b"", "mask_secret": b"", "seed": b"", "held": {}}
        self._memory = replace(self._memory, **nothing, share=None, mask=None)

    def state(self) -> bytes:
        """All that a killed client needs to go on; secret."""
        return codec.to_bytes(self._memory)

    @classmethod
    def restored(cls, state: bytes, sign: Sign) -> Self:
        """A client that goes on where another process stopped."""
        client = cls.__new__(cls)
        client._sign = sign
        client._memory = codec.from_bytes(_Memory, state)
        return client

    def _before(self, step: str, question: Message, answer: Answer | None) -> Answer | None:
        """What was answered already; None if this is the first time, and it is the turn."""
        m = self._memory
        if question.terms != self.terms.digest:
            raise Refused("a message of another sum")
        if step in m.questions:
            if m.questions[step] != _digest(question) or answer is None:
                raise Refused("a second, different question in one round", got=f"'{step}' again")
            return answer
        if len(m.questions) != STEPS.index(step) or not m.seed:
            raise Refused("a message out of turn", got=f"'{step}'")
        return None

    def _noted(self, step: str, question: Message, answer: Answer) -> Answer:
        self._memory.questions[step] = _digest(question)
        return answer

    def _members(self, keys: Keys) -> dict[str, Advertise]:
        m, terms = self._memory, self.terms
        members = {one.sender: one for one in keys.members}
        self._require_enough(set(members), terms.roster, "who advertised keys")
        for name, one in members.items():
            text = advertised(terms, one.box_key, one.mask_key)
            if not holds(terms.roster[name], one.signature, text):
                raise Refused("keys that their device did not sign", got=f"of '{name}'")
        public = [key for one in keys.members for key in (one.box_key, one.mask_key)]
        if members.get(m.name) != m.advertise or len(set(public)) != 2 * len(members):
            raise Refused("keys of which some are twice there, or this client's own are not")
        return members

    def _require_enough(self, names: set[str], among: Any, who: str) -> None:
        if not names <= set(among):
            raise Refused(f"strangers among those {who}")
        if len(names) < self.terms.threshold:
            raise Refused(
                f"too few of those {who}",
                got=len(names),
                expected=f"at least {self.terms.threshold}",
            )

    def _box_key(self, peer: str) -> bytes:
        """Of the boxes between two clients, whichever of the two asks."""
        m = self._memory
        salt, theirs = self.terms.digest, m.members[peer].box_key
        return agreed(m.box_secret, theirs, salt=salt, purpose="boxes")

    def _about(self, sender: str, receiver: str) -> bytes:
        return self.terms.text("shares", sender.encode(), receiver.encode())

    def _opened(self, sender: str, box: bytes) -> bytes:
        both = unsealed(self._box_key(sender), box, about=self._about(sender, self._memory.name))
        if len(both) != 2 * SHARE_BYTES:
            raise Refused("a box with something else than two shares", got=f"from '{sender}'")
        return both

    def _told(self) -> bytes:
        m = self._memory
        return told(self.terms, m.members, m.held, m.survivors)


def _digest(question: Message) -> bytes:
    return hashlib.sha256(codec.to_bytes(question)).digest()
