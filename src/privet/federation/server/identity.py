"""Who is who: apps, devices, and the tokens by which devices are known for a short while.

An app shows the key that its developer was given once; the server keeps its SHA-256. A device has
a key pair of its own and is named by the server when it registers. With a message signed by its key
it gets a token, and with the token everything else.

Signed messages bear the time and a nonce. A message of another time is refused, and a nonce is
remembered for as long as its message could be believed: what somebody overheard or kept is of no
use to them. An app's key is in every copy of the app, so it is no proof of a person: whoever
has it can register as many devices as the rate limits allow.
"""

import base64
import binascii
import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privet.federation.server.errors import (
    CONFLICT,
    FORBIDDEN,
    NO_ACCESS,
    NOT_FOUND,
    Refused,
)
from privet.federation.server.keys import ServerKeys
from privet.federation.server.state import App, Device, State
from privet.federation.wire import SKEW_SECONDS, AskToken, Register, Registered, Token

TOKEN_SECONDS: Final = 600
AUDIENCE: Final = "privet-phones"
ALGORITHM: Final = "HS256"
MOST_KNOWN: Final = 50_000  # devices whose token need not be looked at twice
NAME_BYTES: Final = 12
KEY_BYTES: Final = 32


@final
@dataclass(frozen=True, kw_only=True)
class Caller:
    """A device that has shown its token, the models of its apps, and until when that holds."""

    device: Device
    models: frozenset[str]
    until: float

    @property
    def name(self) -> str:
        """Of the device."""
        return self.device.name


@final
class Identity:
    """Registers apps and devices, and knows them again."""

    def __init__(
        self, state: State, keys: ServerKeys, clock: Callable[[], float] = time.time
    ) -> None:
        self._state, self._keys, self._clock = state, keys, clock
        self._known: dict[str, Caller] = {}  # by token
        self._knowing, self._forgotten = threading.Lock(), 0
        self._heard = Heard(clock)

    def add_app(self, name: str, models: list[str]) -> str:
        """A new app; its key, which is shown once."""
        key = secrets.token_urlsafe(KEY_BYTES)
        app = App(name=name, key_digest=_digest(key), since=self._clock())
        self._state.add_app(app, models)
        return key

    def renew_app(self, name: str) -> str:
        """Another key for an app, shown once. The old one registers nobody any more.

        Devices that are registered have keys of their own, and stay.
        """
        key = secrets.token_urlsafe(KEY_BYTES)
        if not self._state.renew_app(name, _digest(key)):
            raise Refused(NOT_FOUND, "app-unknown", "no such app", got=name)
        return key

    def subscribe(self, app: str, models: list[str]) -> None:
        """An app that is there has these models, too."""
        if app not in {known.name for known in self._state.apps()}:
            raise Refused(NOT_FOUND, "app-unknown", "no such app", got=app)
        self._state.subscribe(app, models)
        self._forget()

    def register(self, message: Register) -> Registered:
        """A new device of an app, or the same again: whoever lost the answer may ask twice."""
        app = self._state.app_with_key(_digest(message.app_key))
        if app is None:
            raise Refused(NO_ACCESS, "app-unknown", "no app has this key")
        self._check(message, message.public_key)
        new = Device(
            name=f"d-{secrets.token_hex(NAME_BYTES)}",
            public_key=message.public_key,
            phone=message.phone,
            system=message.system,
            since=self._clock(),
        )
        device = self._state.add_device(new, app.name)
        if device.name != new.name:  # it was there, and may have more models now
            self._forget()
        _require_admitted(device)
        return Registered(device=device.name, models=self._state.models_of(device.name))

    def token(self, message: AskToken) -> Token:
        """A token for a device that signs with its key."""
        device = self._state.device(message.device)
        if device is None:
            raise Refused(NO_ACCESS, "device-unknown", "no such device", fix="register")
        self._check(message, device.public_key)
        _require_admitted(device)
        now = self._clock()
        claims = {"sub": device.name, "aud": AUDIENCE, "iat": now, "exp": now + TOKEN_SECONDS}
        token = jwt.encode(claims, self._keys.token, algorithm=ALGORITHM)
        return Token(token=token, expires_in=TOKEN_SECONDS)

    def knows(self, token: str) -> bool:
        """Whether `caller` answers from memory."""
        return token in self._known

    def caller(self, token: str) -> Caller:
        """Whose token this is."""
        caller = self._known.get(token)
        if caller is None:
            before = self._forgotten
            caller = self._looked_at(token)
            self._learn(token, caller, before)
        if self._clock() >= caller.until:
            raise Refused(NO_ACCESS, "token-expired", "the token is over", fix="ask for a new one")
        _require_admitted(caller.device)
        return caller

    def _learn(self, token: str, caller: Caller, before: int) -> None:
        """Unless all was forgotten since it was looked at: the device may be blocked by now."""
        with self._knowing:
            if before == self._forgotten:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[token] = caller

    def _forget(self) -> None:
        """What is known of devices may not hold any more."""
        with self._knowing:
            self._forgotten += 1
            self._known.clear()

    def block(self, name: str, *, blocked: bool) -> None:
        """Let a device in no more, or again; its tokens end at once."""
        self._state.block(name, blocked=blocked)
        self._forget()

    def forget_nonces(self) -> None:
        """Those of messages that could not be believed any more."""
        self._state.forget_nonces(before=self._clock())

    def fresh(self, sent: float, nonce: str, device: str) -> None:
        """Refuse a message that bears a token if it is old, or was heard before."""
        self._on_time(sent)
        if not self._heard.first(f"{device} {nonce}"):
            raise _replayed()

    def _check(self, message: Register | AskToken, public_key: str) -> None:
        """Its time, whose it is, and that it is heard for the first time; in this order."""
        self._on_time(message.sent)
        _require_signed(message, public_key)
        if not self._state.remember_nonce(message.nonce, until=self._clock() + 2 * SKEW_SECONDS):
            raise _replayed()

    def _on_time(self, sent: float) -> None:
        now = self._clock()
        if abs(sent - now) > SKEW_SECONDS:
            raise Refused(
                NO_ACCESS,
                "stale-clock",
                "the message is of another time",
                got=f"{sent:.0f}",
                expected=f"within {SKEW_SECONDS:.0f} s of {now:.0f}",
                fix="set the clock, and sign again",
            )

    def _looked_at(self, token: str) -> Caller:
        try:
            claims = jwt.decode(
                token,
                self._keys.token,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                options={
                    "require": ["exp", "sub", "aud"],
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
            name, until = str(claims["sub"]), float(claims["exp"])
        except (jwt.InvalidTokenError, ValueError, TypeError):
            raise Refused(NO_ACCESS, "token-invalid", "the token is not of this server") from None
        device = self._state.device(name)
        if device is None:
            raise Refused(NO_ACCESS, "device-unknown", "no such device", fix="register")
        models = frozenset(self._state.models_of(name))
        return Caller(device=device, models=models, until=until)


@final
class Heard:
    """Nonces of messages that bear a token, for as long as these could be believed.

    Kept in memory: what these messages ask for is the same when it is asked for twice.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._turned = clock, clock()
        self._now: set[str] = set()
        self._before: set[str] = set()

    def first(self, nonce: str) -> bool:
        """Whether it was not heard before; it is from now on."""
        if self._clock() - self._turned > 2 * SKEW_SECONDS:
            self._before, self._now, self._turned = self._now, set(), self._clock()
        if nonce in self._now or nonce in self._before:
            return False
        self._now.add(nonce)
        return True


def _require_signed(message: Register | AskToken, public_key: str) -> None:
    try:
        raw = base64.b64decode(public_key, validate=True)
        if base64.b64encode(raw).decode() != public_key:  # one key would be several devices
            raise ValueError("another spelling of the key")
        key = Ed25519PublicKey.from_public_bytes(raw)
        key.verify(base64.b64decode(message.signature, validate=True), message.signed_text())
    except (InvalidSignature, binascii.Error, ValueError):
        raise Refused(
            NO_ACCESS,
            "bad-signature",
            "the message is not signed by the device's key",
            expected="Ed25519 over its signed text, base64",
        ) from None


def _require_admitted(device: Device) -> None:
    if device.blocked:
        raise Refused(FORBIDDEN, "device-blocked", "the operator has blocked this device")


def _replayed() -> Refused:
    return Refused(CONFLICT, "replayed", "the message was heard before", fix="use a new nonce")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
