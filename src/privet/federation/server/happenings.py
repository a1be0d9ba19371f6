"""What happens on the server, as it happens: for its log, and for whoever watches.

The last ones are kept for those who come later. Whoever watches too slowly misses some, and is told
so; nobody else waits for them.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, final

KEPT: Final = 500
WAITING: Final = 1000
QUIET: Final = frozenset(
    {"ready", "denied", "accepted"}
)  # the everyday ones: in the log only if it is asked
ALIVE_SECONDS: Final = 15.0

LOG: Final = logging.getLogger("privet.server")


@final
class Happenings:
    """Told by the server, watched by operators; belongs to the event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._last: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._watchers: set[asyncio.Queue[dict[str, Any] | None]] = set()

    def tell(self, kind: str, **fields: Any) -> None:
        """Something happened."""
        self._number += 1
        said = {"number": self._number, "at": round(time.time(), 3), "kind": kind, **fields}
        self._last.append(said)
        for watcher in self._watchers:
            if not watcher.full():
                watcher.put_nowait(said)
        level = logging.DEBUG if kind in QUIET else logging.INFO
        if LOG.isEnabledFor(level):
            LOG.log(level, "%s %s", kind, json.dumps(fields, default=str))

    def end(self) -> None:
        """Nobody watches any more."""
        for watcher in self._watchers:
            if watcher.full():
                watcher.get_nowait()
            watcher.put_nowait(None)

    async def watched(self, after: int) -> AsyncIterator[str]:
        """Server-sent events: those after a number, then new ones; a sign of life in between."""
        watcher: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(WAITING)
        self._watchers.add(watcher)
        try:
            for said in [said for said in self._last if said["number"] > after]:
                yield _event(said)
            while True:
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        new = await watcher.get()
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                if new is None:
                    return
                yield _event(new)
        finally:
            self._watchers.discard(watcher)


def _event(said: dict[str, Any]) -> str:
    return f"id: {said['number']}\nevent: {said['kind']}\ndata: {json.dumps(said, default=str)}\n\n"
