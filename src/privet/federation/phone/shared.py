"""What all models of a phone share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from privet.federation.phone.clock import Clock
from privet.federation.phone.conditions import Surroundings
from privet.federation.phone.policies import Policies
from privet.federation.phone.talking import Server

Watcher = Callable[[str, Mapping[str, Any]], None]


@final
@dataclass(frozen=True, kw_only=True)
class Shared:
    """What all models of a phone share.

    Attributes:
        server: to talk with.
        clock: of the phone.
        surroundings: power, network, use.
        policies: the user's.
        seed: what lessons are drawn from, with a key of their records.
        jitter: a number from 0 to 1 that spreads attempts.
        watch: told of what happens, for people.
    """

    server: Server
    clock: Clock
    surroundings: Surroundings
    policies: Policies
    seed: int
    jitter: Callable[[], float]
    watch: Watcher = lambda _event, _facts: None
