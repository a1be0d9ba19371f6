"""What client and server of a secure sum say to one another.

| round | client says | server says then | with                                                 |
|-------|-------------|------------------|------------------------------------------------------|
| 0     | `Advertise` | `Keys`           | a public key for boxes and one for masks, signed; U1 |
| 1     | `Shares`    | `Inbox`          | shares of mask key and seed, a box for each; U2      |
| 2     | `Masked`    | `Survivors`      | the masked update; whose are here: U3                |
| 3     | `Agree`     | `Agreed`         | a signature over U1, U2 and U3; those of U4          |
| 4     | `Unmask`    |                  | for each of U3 a share of its seed, for each other   |
|       |             |                  | of U2 one of its mask key; the sum                   |

`terms` is the digest of the terms: what was said in another round is of no use in this one.
All are plain dataclasses; `codec` makes JSON of them.
"""

from dataclasses import dataclass
from typing import final


@dataclass(frozen=True, kw_only=True)
class Message:
    """The root of all messages."""

    terms: bytes


@dataclass(frozen=True, kw_only=True)
class FromClient(Message):
    """What a client says."""

    sender: str


@final
@dataclass(frozen=True, kw_only=True)
class Advertise(FromClient):
    """Round 0: new public keys, signed by the device's key."""

    box_key: bytes
    mask_key: bytes
    signature: bytes


@final
@dataclass(frozen=True, kw_only=True)
class Keys(Message):
    """U1: everybody's keys."""

    members: tuple[Advertise, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Shares(FromClient):
    """Round 1: a box for every other client, and what the seed must fit later."""

    commitment: bytes
    boxes: dict[str, bytes]


@final
@dataclass(frozen=True, kw_only=True)
class Inbox(Message):
    """U2: the boxes for one client, by sender."""

    boxes: dict[str, bytes]


@final
@dataclass(frozen=True, kw_only=True)
class Masked(FromClient):
    """Round 2: the update, encoded and masked; `vector` is its numbers, the least byte first."""

    vector: bytes


@final
@dataclass(frozen=True, kw_only=True)
class Survivors(Message):
    """U3: whose masked updates are here."""

    names: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Agree(FromClient):
    """Round 3: a signature over all that the client was told so far."""

    signature: bytes


@final
@dataclass(frozen=True, kw_only=True)
class Agreed(Message):
    """U4: the signatures of those who were told the same."""

    signatures: dict[str, bytes]


@final
@dataclass(frozen=True, kw_only=True)
class Unmask(FromClient):
    """Round 4: shares of seeds of U3, shares of mask keys of the rest of U2; of nobody both."""

    seeds: dict[str, bytes]
    mask_keys: dict[str, bytes]
