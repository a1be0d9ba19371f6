"""Where updates arrive when the server keeps them itself: straight into the store, piece by piece.

How much has arrived is the size of the object, and nothing else is remembered. So a broken
connection or a killed server costs a phone no byte that was written.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Self, final

from starlette.requests import ClientDisconnect

from privet.federation.server.errors import BAD_REQUEST, CONFLICT, TOO_LARGE, Refused
from privet.federation.server.limits import STALLED_SECONDS
from privet.federation.server.store import Store
from privet.federation.wire import OFFSET_HEADER

PIECE_BYTES: Final = 256 * 1024
RANGE: Final = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")
DIGEST: Final = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


@final
@dataclass(frozen=True)
class Part:
    """Which bytes of an update a request brings; what is not announced is None."""

    first: int = 0
    last: int | None = None
    total: int | None = None
    sha256: bytes | None = None

    @classmethod
    def announced(cls, content_range: str | None, length: str | None, digest: str | None) -> Self:
        """As the headers Content-Range, Content-Length and Repr-Digest say."""
        sha256 = _sha256(digest)
        if content_range is None:
            total = int(length) if length is not None and length.isdigit() else None
            return cls(last=None if total is None else total - 1, total=total, sha256=sha256)
        found = RANGE.fullmatch(content_range.strip())
        first, last, total = map(int, found.groups()) if found else (0, 0, 0)
        if not first <= last < total:
            raise Refused(
                BAD_REQUEST,
                "bad-range",
                "bad Content-Range",
                got=content_range[:60],
                expected="bytes FIRST-LAST/ALL",
            )
        return cls(first=first, last=last, total=total, sha256=sha256)

    @property
    def ends(self) -> bool:
        """Whether the update may be whole when the part is there."""
        return self.total is None or self.last == self.total - 1

    def is_all(self, size: int) -> bool:
        """Whether an update of which so much is there is whole."""
        return self.total is None or size == self.total


@final
class Uploads:
    """Writes what arrives; belongs to the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: dict[str, object] = {}

    def offset(self, key: str) -> int:
        """How many bytes of an update there are."""
        return self._store.size(key) or 0

    async def take(
        self, key: str, part: Part, body: AsyncIterator[bytes], *, most_bytes: int
    ) -> int:
        """Write a part behind what is there; how much there is now.

        The newest request is believed: an older one for the same update is a dead connection.
        """
        if part.total is not None and part.total > most_bytes:
            raise _too_large(most_bytes)
        self._require_next(key, part)
        writer = self._writers[key] = object()
        try:
            size, digest = await self._written(key, writer, part, body, most_bytes)
        except Refused as refused:
            if refused.status == TOO_LARGE:
                self._store.delete(key)
            raise
        finally:
            if self._writers.get(key) is writer:
                del self._writers[key]
        if part.is_all(size):
            self._require_digest(key, part, digest)
        return size

    async def _written(
        self, key: str, writer: object, part: Part, body: AsyncIterator[bytes], most_bytes: int
    ) -> tuple[int, bytes | None]:
        end = most_bytes if part.last is None else part.last + 1
        sha256 = self._begun(key, part)
        size = part.first
        async for piece in _pieces(body):
            if self._writers.get(key) is not writer:
                raise Refused(CONFLICT, "superseded", "a newer request brings this update")
            if size + len(piece) > end:
                raise _too_large(end)
            size = self._store.append(key, size, piece)
            if sha256 is not None:
                sha256.update(piece)
        return size, sha256.digest() if sha256 is not None else None

    def _begun(self, key: str, part: Part) -> "hashlib._Hash | None":
        """Of the bytes that are there already, if a digest is asked for, and can be known now."""
        if part.sha256 is None or not part.ends:
            return None
        return hashlib.sha256(self._store.get(key, length=part.first) if part.first else b"")

    def _require_next(self, key: str, part: Part) -> None:
        """Whether the part begins where the last one ended; at 0 it may begin again."""
        there = self.offset(key)
        if part.first in (0, there):
            return
        raise Refused(
            CONFLICT,
            "wrong-offset",
            "the part does not begin where the last one ended",
            got=part.first,
            expected=f"{there}, or 0 to begin again",
            headers={OFFSET_HEADER: str(there)},
        )

    def _require_digest(self, key: str, part: Part, digest: bytes | None) -> None:
        if digest == part.sha256:
            return
        self._store.delete(key)
        raise Refused(
            BAD_REQUEST,
            "wrong-digest",
            "the update does not arrive as it was sent",
            expected="bytes with the SHA-256 of Repr-Digest",
            fix="send it again from byte 0",
            headers={OFFSET_HEADER: "0"},
        )


async def _pieces(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """As they come, small ones together; what came before a connection broke, too."""
    held: list[bytes] = []
    size = 0
    broken = False
    while not broken:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                piece = await anext(body, None)
        except (TimeoutError, ClientDisconnect):
            piece, broken = None, True
        if piece:
            held.append(piece)
            size += len(piece)
        if held and (piece is None or size >= PIECE_BYTES):
            yield b"".join(held)
            held, size = [], 0
        if piece is None and not broken:
            return
    raise Refused(BAD_REQUEST, "cut-off", "the connection broke", fix="send the rest")


def _sha256(header: str | None) -> bytes | None:
    """What the header Repr-Digest says."""
    if header is None:
        return None
    found = DIGEST.fullmatch(header.strip())
    try:
        if found:
            return base64.b64decode(found[1], validate=True)
    except binascii.Error:
        pass
    raise Refused(
        BAD_REQUEST, "bad-digest", "bad Repr-Digest", expected="sha-256=:BASE64 OF 32 BYTES:"
    )


def _too_large(most: int) -> Refused:
    return Refused(TOO_LARGE, "too-large", "the update is too long", expected=f"{most} bytes")
