"""What the server remembers, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

from privet.federation.wire import Reason


@final
@dataclass(frozen=True, kw_only=True)
class App:
    """A third party's app: `key_digest` is the SHA-256 of its key, which is shown once."""

    name: str
    key_digest: str
    since: float


@final
@dataclass(frozen=True, kw_only=True)
class Device:
    """A phone: what it is, and the key that it signs with."""

    name: str
    public_key: str
    phone: str
    system: str
    since: float
    blocked: bool = False


class Fate(StrEnum):
    """What became of a ticket."""

    OUT = "out"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@final
@dataclass(frozen=True, kw_only=True)
class Ticket:
    """Leave to train from one version; `until` is in seconds of the model's clock."""

    ticket: str
    model: str
    device: str
    round: int
    base_version: int
    until: float
    fate: Fate = Fate.OUT
    reason: Reason | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of a model's journal; `at` is in seconds of the model's clock."""

    model: str
    seq: int
    kind: str
    at: float
    fields: Mapping[str, Any]


@final
@dataclass(frozen=True, kw_only=True)
class Version:
    """A published version: where its weights lie, and their digest; `at`: of the model's clock."""

    model: str
    version: int
    key: str
    sha256: str
    plan: str
    at: float


@final
@dataclass(frozen=True, kw_only=True)
class RoundRow:
    """A round that is over."""

    model: str
    round: int
    at: float
    how: str
    updates: int
    version: int
    staleness: float


@final
@dataclass(frozen=True, kw_only=True)
class SnapshotRow:
    """Where a model's state lies that holds all events up to `seq`."""

    model: str
    seq: int
    key: str
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One revision of a model's plan, as JSON; in force from a round on."""

    model: str
    revision: int
    digest: str
    text: str
    from_round: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """What devices made of a version: how many reported, tried in all, right in all."""

    version: int
    devices: int
    tried: int
    right: int
