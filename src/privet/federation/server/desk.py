"""One model as the event loop sees it: its host's calls, and who waits for a new version."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, final

from privet.errors import InputError, PrivetError
from privet.federation.server.errors import NOT_FOUND, TOO_LARGE, TOO_SLOW, Refused
from privet.federation.server.happenings import Happenings
from privet.federation.server.host import Decision, Given, ModelHost, NotNow
from privet.federation.server.keys import ServerKeys
from privet.federation.server.limits import STALLED_SECONDS
from privet.federation.server.state import State
from privet.federation.server.store import Store
from privet.federation.server.sums import Sums
from privet.federation.wire import Manifest, News, Offer, Ready, Report, SignedManifest

MOST_WAIT: Final = 50.0  # seconds that a phone waits for news; proxies like to cut at 60
LONGEST_TICK: Final = 5.0
SHORTEST_TICK: Final = 0.02
AFTER_A_FAULT: Final = 1.0
SUMS_TICK: Final = 0.5
KEPT_VERSIONS: Final = 2
LARGEST_KEPT: Final = 64 << 20
KEPT_MANIFESTS: Final = 64

LOG: Final = logging.getLogger("privet.server")


@final
class Desk:
    """What the routes ask of one model; belongs to the event loop."""

    def __init__(
        self, host: ModelHost, store: Store, keys: ServerKeys, happenings: Happenings
    ) -> None:
        self.host, self._store, self._keys, self._happenings = host, store, keys, happenings
        self._seen = host.version
        self._moved = asyncio.Event()
        self._weights: OrderedDict[int, bytes] = OrderedDict()
        self._reading = asyncio.Lock()
        self._manifests: OrderedDict[int, SignedManifest] = OrderedDict()
        self._sums: Sums | None = None
        self._reads: dict[str, asyncio.Timeout] = {}  # by device

    @property
    def name(self) -> str:
        """Of the model."""
        return self.host.plan.name

    def offer(self) -> Offer:
        """What a phone needs to know of the model."""
        return self.host.plan.offer(self.host.version)

    async def ready(self, device: str, message: Ready) -> Given | NotNow:
        """A device's ticket, or why there is none; off the loop, as a new one is written down."""
        ask = partial(self.host.ready, device, phone=message.phone, system=message.system)
        return await asyncio.to_thread(ask)

    async def commit(self, ticket: str, device: str, sha256: str) -> Decision:
        """Whether an update counts; once this is known it is on disk."""
        decision = await asyncio.wrap_future(self.host.commit(ticket, device, sha256))
        self.look()
        return decision

    def open_sums(self, state: State) -> None:
        """From now on updates are taken in secure sums."""
        self._sums = Sums(self.host, state, self._store)

    def sums(self) -> Sums:
        """The model's secure sums, if it has any."""
        if self._sums is None:
            raise Refused(NOT_FOUND, "no-sums", "updates of this model are taken one by one")
        return self._sums

    async def read(self, device: str, body: AsyncIterator[bytes]) -> bytes:
        """What a device says in a secure sum, if it is not too long.

        One message of a device at a time: an older one is a dead connection.
        """
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(STALLED_SECONDS) as patience:
                older = self._reads.get(device)
                if older is not None and not older.expired():
                    older.reschedule(now())
                self._reads[device] = patience
                return await self._read(body, lambda: patience.reschedule(now() + STALLED_SECONDS))
        except TimeoutError:
            raise Refused(TOO_SLOW, "too-slow", "the message does not arrive") from None
        finally:
            if self._reads.get(device) is patience:
                del self._reads[device]

    async def _read(self, body: AsyncIterator[bytes], arrived: Callable[[], None]) -> bytes:
        most, content = self.sums().most_bytes, bytearray()
        async for piece in body:
            arrived()
            content += piece
            if len(content) > most:
                raise Refused(TOO_LARGE, "too-large", "the message is too long", expected=str(most))
        return bytes(content)

    async def report(self, device: str, message: Report) -> None:
        """A device has tried a version."""
        await asyncio.to_thread(
            self.host.report, device, message.version, message.tried, message.right
        )

    def manifest(self, version: int | None) -> SignedManifest:
        """What a version is (default: the newest), signed."""
        number = self.host.version if version is None else version
        if number not in self._manifests:
            self._manifests[number] = self._keys.signed(self._unsigned(number))
            if len(self._manifests) > KEPT_MANIFESTS:
                self._manifests.popitem(last=False)
        return self._manifests[number]

    async def weights(self, version: int) -> bytes:
        """The bytes of a version; those of the newest ones are kept at hand."""
        async with self._reading:
            if version not in self._weights:
                key = self.host.weights_key(version)
                content = await asyncio.to_thread(self._store.get, key)
                if len(content) > LARGEST_KEPT:
                    return content
                self._weights[version] = content
                if len(self._weights) > KEPT_VERSIONS:
                    self._weights.popitem(last=False)
            return self._weights[version]

    async def newer_than(self, version: int, seconds: float) -> News:
        """The newest version, as soon as it is above this one or the time is over."""
        if self.host.version <= version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._moved.wait()
        return News(version=self.host.version)

    def look(self) -> None:
        """Tell those who wait if there is a new version."""
        if self.host.version != self._seen:
            self._seen = self.host.version
            self._happenings.tell("published", model=self.name, version=self._seen)
            self.wake()

    def wake(self) -> None:
        """Let nobody wait any longer."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def change(self, act: Callable[..., Any], *given: Any) -> Any:
        """Let the operator change the model, off the event loop."""
        outcome = await asyncio.to_thread(act, *given)
        self._weights.clear()
        self._manifests.clear()
        self.look()
        return outcome

    async def tick_for_ever(self) -> None:
        """End rounds when their time is over. A fault is logged, and it is tried again."""
        while True:
            try:
                seconds = await asyncio.to_thread(self._ticked)
            except PrivetError as error:
                LOG.error("%s: %s", self.name, error)
                seconds = AFTER_A_FAULT
            except Exception:
                LOG.exception("%s: a fault at the end of a round", self.name)
                seconds = AFTER_A_FAULT
            self.look()
            await asyncio.sleep(min(LONGEST_TICK, max(SHORTEST_TICK, seconds)))

    def _ticked(self) -> float:
        if self._sums is None:
            return self.host.tick()
        try:
            self._sums.tick()
        finally:  # a sum at fault must not keep its round from ending
            seconds = self.host.tick()
        return min(seconds, SUMS_TICK)

    def _unsigned(self, version: int) -> Manifest:
        try:
            return self.host.manifest(version)
        except InputError:
            raise Refused(
                NOT_FOUND,
                "version-unknown",
                "the version is not kept",
                got=version,
                expected=f"at most {self.host.version}",
            ) from None
