"""How an operator's commands reach the server: by its folder, on this machine, or by its URL."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final
from urllib.parse import quote, urlsplit

import httpx

from privet.errors import BudgetExceeded, FaultyEnvironment, InputError
from privet.federation.server.administration import OVER_BUDGET
from privet.federation.server.home import RUNNING, is_here
from privet.federation.server.keys import ServerKeys
from privet.files import read_json

KEY_VARIABLE: Final = "PRIVET_ADMIN_KEY"
SECONDS: Final = 120.0  # a private plan is calibrated before it is answered


@final
@dataclass(frozen=True)
class Operator:
    """Asks and shows the operator's key."""

    url: str
    key: str
    context: ssl.SSLContext
    where: str

    @classmethod
    def of(cls, where: str, ca: Path | None = None) -> Self:
        """A folder, with the key in it; or a URL, with the key in PRIVET_ADMIN_KEY."""
        if "://" in where:
            key = os.environ.get(KEY_VARIABLE, "")
            if not key or not key.isascii():
                raise InputError(
                    "not an operator's key" if key else "no operator's key",
                    fix=f"set {KEY_VARIABLE}, or name the server's folder",
                )
            return cls(_checked(where), key, _believing(ca), where)
        folder = Path(where)
        key = ServerKeys.kept_in(_keys(folder)).admin
        running = _running(folder)
        certificate = running.get("certificate")
        context = _believing(ca) if certificate is None else _only(Path(certificate))
        return cls(_checked(str(running["url"])), key, context, where)

    def get(self, path: str) -> Any:
        """An answer."""
        return self._ask("GET", path, None).json()

    def devices(self) -> Iterator[dict[str, Any]]:
        """All devices, page by page."""
        after = ""
        while page := self.get(f"devices?after={quote(after)}"):
            yield from page
            after = page[-1]["name"]

    def fetch(self, path: str) -> bytes:
        """A file."""
        return self._ask("GET", path, None).content

    def post(self, path: str, message: dict[str, Any] | None = None) -> Any:
        """An answer to a message."""
        return self._ask("POST", path, message or {}).json()

    def _ask(self, method: str, path: str, message: dict[str, Any] | None) -> httpx.Response:
        try:
            with self._line() as line:
                response = line.request(method, f"/v1/admin/{path}", json=message)
        except httpx.HTTPError as error:
            raise FaultyEnvironment(
                "the server does not answer",
                got=f"{self.url}: {str(error).removesuffix('.')}",
                fix=f"privet federate server {self.where}"
                if "://" not in self.where
                else "is it running, and is its certificate believed? --ca FILE",
            ) from None
        if not response.is_success:
            raise _no(response)
        return response

    def _line(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            verify=self.context,
            timeout=SECONDS,
            trust_env=False,
        )


def _no(response: httpx.Response) -> Exception:
    try:
        said = response.json()
        what, fix = str(said["what"]), str(said.get("fix") or "")
        got, expected = said.get("got"), str(said.get("expected") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return FaultyEnvironment(f"the server answers {response.status_code}")
    if said.get("error") == OVER_BUDGET:
        return BudgetExceeded(what)
    if response.is_server_error:
        return FaultyEnvironment(what, fix=fix)
    if fix == "" and got is None and expected == "":
        return InputError(what.removesuffix("."))
    return InputError(what, got=got, expected=expected, fix=fix)


def _keys(folder: Path) -> Path:
    if not (folder / "server.json").exists():
        raise InputError(
            "no server in this folder", got=folder, fix="privet federate server FOLDER sets one up"
        )
    return folder / "keys"


def _running(folder: Path) -> dict[str, Any]:
    if not (folder / RUNNING).exists():
        raise FaultyEnvironment(
            "the server does not run", got=folder, fix=f"privet federate server {folder}"
        )
    return read_json(folder / RUNNING)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.hostname is None:
        raise InputError("not a server", got=url, expected="its folder, or https://HOST:PORT")
    if parts.scheme == "http" and not is_here(parts.hostname):
        raise InputError("the operator's key would go unencrypted", got=url, expected="https://")
    return url


def _believing(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InputError("no certificates", got=f"{ca}: {error}", expected="a PEM file") from None


def _only(certificate: Path) -> ssl.SSLContext:
    """The server's own certificate and no other; whichever name it bears, it is that server."""
    context = _believing(certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
