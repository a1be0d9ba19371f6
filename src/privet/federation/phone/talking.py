"""What a phone and its server say to one another, from the phone's end.

Tokens last minutes and are asked for again in time. Whatever is fetched is believed only if the
server's key, pinned when the phone registered, has signed its digest.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar, final
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import TypeAdapter

from privet.errors import CheckFailed, InputError
from privet.federation import wire
from privet.federation.phone.line import Declined, Line, Unreachable
from privet.federation.phone.storage import digest_of_file, own_folder, put_in_place
from privet.federation.phone.trusting import (
    fresh_nonce,
    own_key,
    public_text,
    require_signed,
    signed,
)
from privet.files import read_json, write_json

T = TypeVar("T")

EARLY: Final = 30.0  # seconds before its end at which a token is not used any more
HEADER_BYTES: Final = 4096  # of a file of weights beside the numbers
NO_ACCESS: Final = 401
CONFLICT: Final = 409
_ANSWER: Final = TypeAdapter[wire.Accepted | wire.Denied](wire.Accepted | wire.Denied).validate_json
KEY: Final = "key"


@final
@dataclass(frozen=True, kw_only=True)
class Me:
    """Who the phone is to its server.

    Attributes:
        device: its name.
        server_key: which signs what it believes.
        models: that its app has.
        app: SHA-256 of the app's key: how the app is known again.
        phone, system: what it says it is.
    """

    device: str
    server_key: str
    models: tuple[str, ...]
    app: str
    phone: str
    system: str


@final
class Server:
    """The server, to one registered phone."""

    def __init__(
        self,
        line: Line,
        me: Me,
        key: Ed25519PrivateKey,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.line, self.me, self._key, self._wall = line, me, key, wall
        self._token, self._until = "", 0.0

    @classmethod
    def entered(cls, line: Line, folder: Path, *, app_key: str, phone: str, system: str) -> Self:
        """Register for an app, or come back."""
        app = app_digest(app_key)
        key, path = own_key(own_folder(folder) / KEY), folder / f"app-{app[:16]}.json"
        if not path.exists():
            _register(line, path, key, app_key=app_key, phone=phone, system=system)
        record = read_json(path)
        if record.pop("url") != line.url:
            raise InputError(
                "this phone is registered with another server", got=line.url, fix="another --folder"
            )
        return cls(line, Me(**record | {"models": tuple(record["models"])}), key)

    def offers(self) -> list[wire.Offer]:
        """The models that its app has."""
        return self._ask("GET", "v1/offers", wire.Offers.model_validate_json).offers

    def ready(self, model: str) -> wire.Accepted | wire.Denied:
        """RTCm."""
        message = wire.Ready(
            phone=self.me.phone, system=self.me.system, sent=self._wall(), nonce=fresh_nonce()
        )
        return self._ask("POST", f"{_of(model)}/ready", _ANSWER, message=message)

    def commit(self, ticket: str, sha256: str) -> wire.Outcome:
        """The update is there; whether it counts."""
        path = f"v1/tickets/{quote(ticket, safe='')}/commit"
        return self._ask(
            "POST", path, wire.Outcome.model_validate_json, message=wire.Commit(sha256=sha256)
        )

    def sum_step(self, ticket: str) -> wire.SumStep:
        """Where the secure sum of a round stands, and what is due."""
        path = f"v1/tickets/{quote(ticket, safe='')}/sum"
        return self._ask("POST", path, wire.SumStep.model_validate_json)

    def say_in_sum(self, ticket: str, stage: str, content: bytes) -> None:
        """What is due in a secure sum."""
        path = f"v1/uploads/sums/{quote(ticket, safe='')}/{quote(stage, safe='')}"
        kind = {"Content-Type": "application/json"}
        self._with_token(lambda own: self.line.put(path, content, own | kind))

    def sign(self, text: bytes) -> bytes:
        """By the phone's own key, which does not leave this object."""
        return self._key.sign(text)

    def report(self, model: str, *, version: int, tried: int, right: int) -> None:
        """Federated evaluation."""
        message = wire.Report(
            version=version, tried=tried, right=right, sent=self._wall(), nonce=fresh_nonce()
        )
        path = f"{_of(model)}/reports"
        self._with_token(lambda own: self.line.tell("POST", path, message=message, headers=own))

    def fetch(self, model: str, version: int, url: str, path: Path, *, weights: int) -> int:
        """A version's weights into a file; how many bytes went through the network.

        What was cut off goes on where it was. The file has its name only if its digest is the one
        that the server has signed.
        """
        where = f"{_of(model)}/manifest?version={version}"
        said = self._ask("GET", where, wire.SignedManifest.model_validate_json)
        require_signed(said, self.me.server_key, model=model, version=version)
        if said.manifest.weights != weights:
            raise CheckFailed(
                f"'{model}' {version} does not fit its network",
                got=f"{said.manifest.weights} weights",
                expected=str(weights),
            )
        if path.exists() and digest_of_file(path) == said.manifest.sha256:
            return 0
        part = path.with_name(f"{path.name}.part")
        fetched = self._with_token(
            lambda own: self._write(url, part, own, most=4 * weights + HEADER_BYTES)
        )
        if digest_of_file(part) != said.manifest.sha256:
            part.unlink()
            raise Unreachable(f"the weights of '{model}' {version} do not arrive as they were sent")
        part.chmod(0o600)
        put_in_place(part, path)
        return fetched

    def arrived(self, put_url: str) -> int:
        """How many bytes of an update have arrived."""
        headers = self._with_token(lambda own: self.line.head(put_url, self._shown(put_url, own)))
        return _offset(headers)

    def put(self, put_url: str, content: bytes, *, first: int, total: int) -> int:
        """A part of an update; how many bytes have arrived now.

        Where it does not begin where the last one ended, the server says where that was.
        """
        last = first + len(content) - 1
        span = {"Content-Range": f"bytes {first}-{last}/{total}"}
        try:
            headers = self._with_token(
                lambda own: self.line.put(put_url, content, self._shown(put_url, own) | span)
            )
        except Declined as no:
            if no.status == CONFLICT and wire.OFFSET_HEADER in no.headers:
                return _offset(no.headers)
            raise
        return _offset(headers)

    def put_whole(self, put_url: str, path: Path) -> None:
        """All of an update at once: to a store that knows no parts."""
        self.line.put(put_url, path.read_bytes(), {})

    def _write(self, url: str, part: Path, own: dict[str, str], *, most: int) -> int:
        """The rest of a file, behind what is there."""
        offset, fetched = part.stat().st_size if part.exists() else 0, 0
        if offset > most:
            part.unlink()
            offset = 0
        part.touch(mode=0o600)
        with part.open("ab") as file:
            for goes_on, block in self.line.fetch(url, self._shown(url, own), offset=offset):
                if not goes_on and fetched == 0:
                    file.truncate(0)
                    offset = 0
                fetched += len(block)
                if offset + fetched > most:
                    raise Unreachable("more weights than the model has")
                file.write(block)
        return fetched

    def _shown(self, url: str, own: dict[str, str]) -> dict[str, str]:
        """The token, to its own server alone: a presigned URL of a store needs none."""
        return own if self.line.is_own(url) else {}

    def _ask(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], T],
        *,
        message: wire.Message | None = None,
    ) -> T:
        return self._with_token(
            lambda own: self.line.ask(method, path, read, message=message, headers=own)
        )

    def _with_token(self, does: Callable[[dict[str, str]], T]) -> T:
        """With a token that holds; one that the server does not know any more is renewed once."""
        try:
            return does(self._bearer())
        except Declined as no:
            if no.status != NO_ACCESS:
                raise
        self._until = 0.0
        return does(self._bearer())

    def _bearer(self) -> dict[str, str]:
        if self._wall() >= self._until:
            asked = wire.AskToken(
                device=self.me.device, sent=self._wall(), nonce=fresh_nonce(), signature="-"
            )
            asked = asked.model_copy(update={"signature": signed(self._key, asked.signed_text())})
            given = self.line.ask(
                "POST", "v1/tokens", wire.Token.model_validate_json, message=asked
            )
            self._token, self._until = given.token, self._wall() + given.expires_in - EARLY
        return {"Authorization": f"Bearer {self._token}"}


def _register(
    line: Line, path: Path, key: Ed25519PrivateKey, *, app_key: str, phone: str, system: str
) -> None:
    about = line.ask("GET", "v1/server", wire.AboutServer.model_validate_json)
    said = wire.Register(
        app_key=app_key,
        public_key=public_text(key),
        phone=phone,
        system=system,
        sent=time.time(),
        nonce=fresh_nonce(),
        signature="-",
    )
    said = said.model_copy(update={"signature": signed(key, said.signed_text())})
    given = line.ask("POST", "v1/devices", wire.Registered.model_validate_json, message=said)
    record = {
        "url": line.url,
        "device": given.device,
        "server_key": about.public_key,
        "models": given.models,
        "app": app_digest(app_key),
        "phone": phone,
        "system": system,
    }
    write_json(path, record, private=True)


def app_digest(app_key: str) -> str:
    """How an app is known again; its key itself is not kept."""
    return hashlib.sha256(app_key.encode()).hexdigest()


def _of(model: str) -> str:
    return f"v1/models/{quote(model, safe='')}"


def _offset(headers: Mapping[str, str]) -> int:
    try:
        return max(0, int(headers.get(wire.OFFSET_HEADER, "0")))
    except ValueError:
        raise Unreachable("the server does not say how much has arrived") from None
