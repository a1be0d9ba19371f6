"""Sending an update, in parts, from wherever the last attempt ended."""

from pathlib import Path
from typing import Final

from privet.federation.phone.conditions import Surroundings
from privet.federation.phone.standing import Ticket
from privet.federation.phone.talking import Server

CHUNK: Final = 2**16  # bytes that are sent at once
LEAST_CHUNK: Final = 512  # on the slowest of links
CHUNK_SECONDS: Final = 1.0  # of a link's time; then conditions are looked at again


def chunk_of(around: Surroundings) -> int:
    """As many bytes as the link carries in a short while."""
    seconds = around.seconds_up(CHUNK)
    if seconds <= CHUNK_SECONDS:
        return CHUNK
    return max(LEAST_CHUNK, int(CHUNK * CHUNK_SECONDS / seconds))


def send_some(server: Server, held: Ticket, update: Path, *, chunk: int) -> int | None:
    """The next bytes; how many, or None when all have arrived."""
    total = update.stat().st_size
    if not held.resumable:
        server.put_whole(held.put_url, update)
        return None
    first = server.arrived(held.put_url)
    if first >= total:
        return None
    content = _part(update, first, chunk)
    arrived = server.put(held.put_url, content, first=first, total=total)
    return None if arrived >= total else len(content)


def send_anew(server: Server, held: Ticket, update: Path) -> None:
    """The first bytes once more: what lies there is not what was sent, and is replaced."""
    if held.resumable:
        total = update.stat().st_size
        server.put(held.put_url, _part(update, 0, CHUNK), first=0, total=total)


def _part(update: Path, first: int, chunk: int) -> bytes:
    with update.open("rb") as file:
        file.seek(first)
        return file.read(chunk)
