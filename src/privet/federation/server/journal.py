"""What happened to a model, in order: the one source from which its state follows.

| kind          | fields                                                          |
|---------------|-----------------------------------------------------------------|
| `opened`      | epoch (of the model's clock), plan (digest)                      |
| `update`      | ticket, device, base, and where the bytes lie                    |
| `sum`         | devices, base, and where the bytes lie                           |
| `deadline`    |                                                                 |
| `invited`     | devices                                                         |
| `rolled-back` | to                                                              |
| `plan`        | revision                                                        |
| `stopped`     |                                                                 |
| `resumed`     | also where nobody could come for a while                        |
| `reopened`    |                                                                 |

Where bytes lie: object, start, length, sha256.

Whoever goes on with a model first writes `reopened`. If a process that has lost its leave still
writes an event, its number is taken; so nothing that was read before can be out of date.
"""

from enum import StrEnum
from typing import Any, Final, final

from privet.federation.server.state import Event, State

FIRST: Final = 0


@final
class Kind(StrEnum):
    """What can happen."""

    OPENED = "opened"
    UPDATE = "update"
    SUM = "sum"
    DEADLINE = "deadline"
    INVITED = "invited"
    ROLLED_BACK = "rolled-back"
    PLAN = "plan"
    STOPPED = "stopped"
    RESUMED = "resumed"
    REOPENED = "reopened"


@final
class Journal:
    """Appends to one model's log; its numbers have no gaps, and its clock never goes back."""

    def __init__(self, state: State, model: str) -> None:
        self._state, self.model = state, model
        self.next_seq = FIRST
        self.at = 0.0

    def event(self, kind: Kind, at: float, *, ahead: int = 0, **fields: Any) -> Event:
        """The next event, or the one after so many others; nothing is written yet."""
        seq = self.next_seq + ahead
        return Event(model=self.model, seq=seq, kind=kind, at=max(at, self.at), fields=fields)

    def write(self, *events: Event) -> None:
        """Within a transaction of the caller's."""
        for event in events:
            self._state.append(event)

    def reopen(self) -> None:
        """From now on nobody else writes; before anything is read."""
        last = self._state.last_event(self.model)
        assert last is not None, "a model that goes on has begun"
        again = Event(model=self.model, seq=last.seq + 1, kind=Kind.REOPENED, at=last.at, fields={})
        with self._state.transaction(durable=True):
            self.write(again)

    def passed(self, event: Event) -> None:
        """The event is durable, and is behind us."""
        assert event.seq == self.next_seq, "events are applied in order"
        self.next_seq, self.at = event.seq + 1, event.at
