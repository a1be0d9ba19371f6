"""Sending an update, in parts, from wherever the last attempt ended."""

from pathlib import Path
from typing import Final

from privet.federation.phone.standing import Ticket
from privet.federation.phone.talking import Server

CHUNK: Final = 2**16  # bytes that are sent at once


def send_some(server: Server, held: Ticket, update: Path) -> int | None:
    """The next bytes; how many, or None when all have arrived."""
    total = update.stat().st_size
    if not held.resumable:
        server.put_whole(held.put_url, update)
        return None
    first = server.arrived(held.put_url)
    if first >= total:
        return None
    content = _part(update, first)
    arrived = server.put(held.put_url, content, first=first, total=total)
    return None if arrived >= total else len(content)


def send_anew(server: Server, held: Ticket, update: Path) -> None:
    """The first bytes once more: what lies there is not what was sent, and is replaced."""
    if held.resumable:
        total = update.stat().st_size
        server.put(held.put_url, _part(update, 0), first=0, total=total)


def _part(update: Path, first: int) -> bytes:
    with update.open("rb") as file:
        file.seek(first)
        return file.read(CHUNK)
