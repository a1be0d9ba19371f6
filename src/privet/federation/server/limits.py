"""How much anybody may ask for: requests by address and by device, and bytes in a message."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final, final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privet.federation.server.errors import TOO_LARGE, TOO_MANY, TOO_SLOW, Refused
from privet.federation.server.keys import UPLOADS

MOST_NAMES: Final = 100_000  # a bucket that was not asked for longest is forgotten
MOST_JSON_BYTES: Final = 64 * 1024
STALLED_SECONDS: Final = 30.0  # after which a phone that says nothing more is not waited for
BURST_SECONDS: Final = 5.0
NETWORK_BITS: Final = 64  # of an IPv6 address: the rest is for its owner to choose


@final
class Buckets:
    """One token bucket for each name: `rate` a second, as many at once as in five seconds.

    A rate of 0 is no limit.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, max(1.0, rate * BURST_SECONDS), clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> float:
        """Take one; 0, or after how many seconds there will be one."""
        if self.rate == 0:
            return 0.0
        now = self._clock()
        level, then = self._levels.pop(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        granted = level >= 1
        self._levels[name] = (level - granted, now)
        if len(self._levels) > MOST_NAMES:
            self._levels.popitem(last=False)
        return 0.0 if granted else (1 - level) / self.rate

    def take(self, name: str, whose: str) -> None:
        """Take one, or refuse."""
        if seconds := self.wait(name):
            raise Refused(
                TOO_MANY,
                "too-many",
                f"too many requests of this {whose}",
                expected=f"at most {self.rate:g} a second",
                fix="wait as long as Retry-After says",
                retry_after=seconds,
            )


def network_of(address: str) -> str:
    """Whom requests of an address are counted for: itself, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    rest = 128 - NETWORK_BITS
    return f"{IPv6Address(int(parsed) >> rest << rest)}/{NETWORK_BITS}"


@final
class Gate:
    """Before all routes: counts requests by address and lets no message be longer than allowed.

    Updates have a limit of their own, which their URL bears.
    """

    def __init__(self, app: ASGIApp, addresses: Buckets) -> None:
        self.app, self.addresses = app, addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.addresses.take(network_of((scope["client"] or ("unknown",))[0]), "address")
            if not scope["path"].startswith(UPLOADS):
                receive = _limited(receive, scope)
        except Refused as refused:
            await refused.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _limited(receive: Receive, scope: Scope) -> Receive:
    """The same messages, until they are too long; the announced length is not believed alone."""
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if not announced.isdigit() or int(announced) > MOST_JSON_BYTES:
        raise Refused(TOO_LARGE, "too-large", "the message is too long", expected=_allowed())
    arrived, whole = 0, False

    async def counted() -> Message:
        nonlocal arrived, whole
        if whole:  # what comes now is only that the connection ends, whenever that is
            return await receive()
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                message = await receive()
        except TimeoutError:
            raise HTTPException(TOO_SLOW, "the message does not arrive") from None
        arrived += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if arrived > MOST_JSON_BYTES:
            raise HTTPException(TOO_LARGE, f"the message is too long, expected {_allowed()}")
        return message

    return counted


def _allowed() -> str:
    return f"at most {MOST_JSON_BYTES // 1024} KiB"
