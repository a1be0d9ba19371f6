"""The bytes of a version over HTTP: whole, a part of them, or that the phone has them already."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final

from fastapi.responses import Response, StreamingResponse

PIECE: Final = 1 << 20
RANGE: Final = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
NOT_MODIFIED: Final = 304
PARTIAL: Final = 206
WHOLE: Final = 200
OUTSIDE: Final = 416


def weights_response(content: bytes, sha256: str, asked: Mapping[str, str]) -> Response:
    """The answer to a GET; a version never changes, so that its digest is its tag."""
    tag = f'"{sha256}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=31536000, immutable",
    }
    known = {name.strip().removeprefix("W/") for name in asked.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    span = _span(asked, tag, len(content))
    if span is None:
        return _sent(memoryview(content), WHOLE, headers)
    first, end = span
    if first >= end:
        headers["Content-Range"] = f"bytes */{len(content)}"
        return Response(status_code=OUTSIDE, headers=headers)
    headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
    return _sent(memoryview(content)[first:end], PARTIAL, headers)


def _span(asked: Mapping[str, str], tag: str, size: int) -> tuple[int, int] | None:
    """From where to where; None: all, also where what is asked for cannot be understood."""
    found = RANGE.fullmatch(asked.get("range", "").strip())
    if found is None or found.groups() == ("", "") or asked.get("if-range", tag) != tag:
        return None
    first, last = found.groups()
    if first == "":
        return max(0, size - int(last)), size
    if last != "" and int(last) < int(first):
        return None
    return int(first), size if last == "" else min(size, int(last) + 1)


def _sent(content: memoryview, status: int, headers: dict[str, str]) -> Response:
    media = "application/octet-stream"
    if len(content) <= PIECE:
        return Response(bytes(content), status_code=status, headers=headers, media_type=media)
    headers["Content-Length"] = str(len(content))
    return StreamingResponse(_pieces(content), status, headers=headers, media_type=media)


async def _pieces(content: memoryview) -> AsyncIterator[memoryview]:
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]
