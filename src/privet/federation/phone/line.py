"""A line to a server: HTTP with checked answers, whose certificate is looked at.

Two things can go wrong, and a phone answers them differently. `Unreachable`: nobody, or a server
that is busy or ill; the same again, later. `Declined`: the server says no to this very request.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final
from urllib.parse import urljoin, urlsplit

import httpx
from pydantic import ValidationError

from privet.errors import FaultyEnvironment, InputError

if TYPE_CHECKING:
    from privet.federation.wire import Message

M = TypeVar("M")

SECONDS: Final = 30.0
MOST_ANSWER: Final = 2**20  # bytes of a message
BLOCK: Final = 2**16
TOO_MANY: Final = 429
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 120.0
LONGEST_ASKED_FOR: Final = 3600.0


class Unreachable(Exception):  # noqa: N818 - a state of the world, not a fault
    """Nobody answers, or not now; `retry_after` seconds if the server said so."""

    def __init__(self, why: str, retry_after: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after = min(retry_after, LONGEST_ASKED_FOR)


class Declined(Exception):  # noqa: N818
    """The server's no: a status, a name for programs, a line for people, its headers."""

    def __init__(self, status: int, error: str, what: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{what} ({status} {error})")
        self.status, self.error, self.headers = status, error, headers


def wait_of(tries: int, retry_after: float, jitter: float) -> float:
    """Seconds until the next attempt: twice as long each time, never before what was asked for.

    `jitter`, 0 to 1, spreads phones that failed at one moment.
    """
    own = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries, 16))
    return max(retry_after * (1.0 + 0.1 * jitter), own * (0.5 + 0.5 * jitter))


@final
class Line:
    """To one server.

    Args:
        url: https://..., or http:// on this machine alone.
        ca: certificates (PEM) of which one must have signed the server's; no others are believed.
        transport: for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: Path | None = None,
        seconds: float = SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = _checked(url)
        self._client = httpx.Client(
            verify=_context(ca),
            timeout=seconds,
            follow_redirects=False,
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def is_own(self, url: str) -> bool:
        """Whether a URL is this server's: only it is shown tokens."""
        there, here = urlsplit(urljoin(self.url, url)), urlsplit(self.url)
        return (there.scheme, there.netloc) == (here.scheme, here.netloc)

    def ask(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], M],
        *,
        message: "Message | None" = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        """A message for a message; `read` makes it of its JSON."""
        content = self._answer(method, path, message=message, headers=headers)
        try:
            return read(content)
        except ValidationError:
            raise Unreachable(f"{path} answers with something else than was agreed") from None

    def tell(
        self, method: str, path: str, *, message: "Message", headers: Mapping[str, str]
    ) -> None:
        """A message that is not answered."""
        self._answer(method, path, message=message, headers=headers)

    def head(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of an answer alone."""
        with self._sent("HEAD", url, headers=headers) as response:
            return response.headers

    def put(self, url: str, content: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Send bytes; the headers of the answer."""
        with self._sent("PUT", url, headers=headers, content=content) as response:
            return response.headers

    def fetch(
        self, url: str, headers: Mapping[str, str], *, offset: int
    ) -> Iterator[tuple[bool, bytes]]:
        """The rest of a file, block by block; whether it really begins at the offset."""
        asked = dict(headers) | {"Accept-Encoding": "identity"}
        if offset:
            asked["Range"] = f"bytes={offset}-"
        with self._sent("GET", url, headers=asked) as response:
            goes_on = response.status_code == httpx.codes.PARTIAL_CONTENT
            for block in response.iter_bytes(BLOCK):
                yield goes_on, block

    def _answer(
        self,
        method: str,
        path: str,
        *,
        message: "Message | None",
        headers: Mapping[str, str] | None,
    ) -> bytes:
        content = None if message is None else message.model_dump_json().encode()
        own = {"Content-Type": "application/json"} if content is not None else {}
        sent = self._sent(method, path, headers=own | dict(headers or {}), content=content)
        with sent as response:
            return _read(response)

    @contextmanager
    def _sent(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> Iterator[httpx.Response]:
        """An answer whose body is still to be read; every way to fail is one of two."""
        target = urljoin(self.url, url)
        if not _is_private(target):  # an address that the server gave, as that of a store
            where = urlsplit(target)
            what = f"it sends this phone to {where.scheme}://{where.netloc}, without encryption"
            raise Declined(0, "unencrypted", what, {})
        try:
            with self._client.stream(
                method,
                target,
                headers=dict(headers),
                content=content,
            ) as response:
                if not response.is_success:
                    raise _no(response)
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise FaultyEnvironment(
                    "the server's certificate is not signed by anyone this phone believes",
                    got=self.url,
                    fix="--ca FILE with the certificate that signed it",
                ) from None
            raise Unreachable(f"{type(error).__name__} at {urlsplit(self.url).netloc}") from None


def _read(response: httpx.Response) -> bytes:
    """A message; text without end is none."""
    found = bytearray()
    for block in response.iter_bytes(BLOCK):
        found += block
        if len(found) > MOST_ANSWER:
            raise Unreachable("an answer without end")
    return bytes(found)


def _no(response: httpx.Response) -> Exception:
    """Ill or busy: later. Otherwise it is meant."""
    status = response.status_code
    if status == TOO_MANY or status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return Unreachable(f"the server answers {status}", _seconds(response.headers))
    try:
        said = httpx.Response(status, content=_read(response)).json()
        error, what = str(said["error"])[:60], str(said["what"])[:300]
    except (ValueError, KeyError, TypeError):
        error, what = "no", "the server declines"
    return Declined(status, error, what, response.headers)


def _seconds(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0


def _checked(url: str) -> str:
    """With encryption, unless nothing leaves this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("not a server's address", got=url, expected="https://HOST:PORT")
    if not _is_private(url):
        raise InputError(
            "updates would go through the network unencrypted",
            got=url,
            expected="https://, except on this machine",
            fix="serve with a certificate, and give phones --ca FILE",
        )
    return url.rstrip("/") + "/"


def _is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname or ""))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _context(ca: Path | None) -> ssl.SSLContext:
    if ca is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            "no certificate to believe in", got=f"{ca}: {error}", expected="a PEM file"
        ) from None
