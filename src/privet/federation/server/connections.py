"""Connections: how many an address may hold, and how long and how large a request's head may be.

Whatever comes before the application is asked is bounded here: uvicorn waits without end for a
request that does not come, or not wholly, and keeps its head however long it is.
"""

import asyncio
from collections import Counter
from typing import Any, ClassVar, Final, final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from privet.federation.server.limits import STALLED_SECONDS, network_of

MOST_OF_AN_ADDRESS: Final = 1000
MOST_HEAD_BYTES: Final = 64 * 1024  # also of what follows a body, and of what is between its parts


@final
class Door:
    """Counts connections by address; belongs to the event loop."""

    def __init__(self, most: int | None) -> None:
        self._most, self._held = most, Counter[str]()

    def enters(self, address: str) -> bool:
        """Whether it may hold one more; then it does."""
        if self._most is not None and self._held[address] >= self._most:
            return False
        self._held[address] += 1
        return True

    def leaves(self, address: str) -> None:
        """One fewer."""
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]


class Connection(HttpToolsProtocol):
    """One connection, which is closed where it says nothing whole for too long, or too much."""

    door: ClassVar[Door]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._address = ""  # once it is counted
        self._late: asyncio.TimerHandle | None = None
        self._in_message = self._moved = False
        self._unread = 0  # bytes that were neither a whole head nor of a body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and wait a while for a request."""
        super().connection_made(transport)
        address = network_of(self.client[0] if self.client else "unknown")
        if not self.door.enters(address):
            transport.abort()
            return
        self._address = address
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._expect_no_head()
        if self._address:
            self.door.leaves(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes more."""
        self._moved = False
        super().data_received(data)
        self._unread = 0 if self._moved else self._unread + len(data)
        if self._unread > MOST_HEAD_BYTES:
            self.transport.abort()
        elif self._answered if self._moved else not self._in_message:
            self._expect_head()

    @property
    def _answered(self) -> bool:
        """Whether the last request has its answer: what comes now is not of it any more."""
        return self.cycle is not None and self.cycle.response_complete

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._moved = self._in_message = True
        self._expect_no_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body: how much may come is the application's to say."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """What comes next is another head."""
        self._moved, self._in_message = True, False
        super().on_message_complete()

    def _expect_head(self) -> None:
        if self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def _expect_no_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def counted(most: int | None) -> type[Connection]:
    """The protocol of one server; `most` of an address, None: a proxy in front counts them."""

    @final
    class Counted(Connection):
        door = Door(most)

    return Counted
