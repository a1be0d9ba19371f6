"""Where artefacts lie: uploads, versions, snapshots; a folder, or any store that speaks S3.

| key                            | what                                      | written by |
|--------------------------------|-------------------------------------------|------------|
| `updates/MODEL/ROUND/TICKET`   | an upload, until it is decided            | the phone  |
| `taken/MODEL/SEQ`              | accepted updates of one commit, copied    | the server |
| `versions/MODEL/VERSION`       | weights of a version                      | the server |
| `snapshots/MODEL/SEQ`          | a model's state, sealed                   | the server |
| `server`                       | whose store it is                         | the server |

What a phone can write is never read again once it counts: the server copies accepted updates to a
place of its own, in one piece for a whole commit.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final

from privet.errors import InputError

Bytes = bytes | bytearray | memoryview
_KEY: Final = re.compile(r"[\w\-][\w.\- ]*(/[\w\-][\w.\- ]*)*")


class Missing(InputError):  # noqa: N818 - names the fact
    """There is no such object."""


class Store(ABC):
    """Objects by key. All calls are safe from any thread."""

    @abstractmethod
    def put(self, key: str, content: Bytes | Sequence[Bytes]) -> None:
        """Write an object whole, or not at all; it survives a power cut once this returns.

        Several parts are written one after the other, as one object. What was there is replaced.
        """

    @abstractmethod
    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it; `Missing` if there is none."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Of an object, in bytes; None: there is none."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove it, if it is there."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[str]:
        """All keys that begin so, in order; `prefix` ends with a slash."""

    @abstractmethod
    def upload_url(self, key: str, *, seconds: float) -> str | None:
        """Where a phone may PUT this object for so long; None: at the server, by `append`."""

    @abstractmethod
    def download_url(self, key: str, *, seconds: float) -> str | None:
        """Where a phone may GET it; None: at the server, by `get`."""

    def append(self, key: str, offset: int, content: Bytes) -> int:
        """Write a piece of an upload at its offset; how long the upload is now.

        Not durable, and only where `upload_url` is None. A piece may begin anywhere in what is
        there, not behind its end; what was behind the piece is cut off.
        """
        raise NotImplementedError(f"uploads go to the store itself, not to {key}")


def checked(key: str) -> str:
    """Refuse a key that could lead out of the store."""
    if not _KEY.fullmatch(key):
        raise InputError("bad key of an object", got=repr(key))
    return key


def upload_key(model: str, number: int, ticket: str) -> str:
    """Where the upload of a ticket lies."""
    return f"updates/{model}/{number}/{ticket}"
