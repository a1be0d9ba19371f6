"""The server as a process: listens, with TLS if it is asked for, and stops without losing a thing.

When it is told to stop it takes no new connections, answers what was asked, lets go of those who
wait, and closes its models. A process that is killed loses nothing either: it only takes longer to
come back.
"""

import logging
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import torch
import uvicorn

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.certificate import self_signed
from privet.federation.server.connections import MOST_OF_AN_ADDRESS, counted
from privet.federation.server.home import Home, is_here
from privet.federation.server.routes import application
from privet.federation.server.service import ADDRESS_RATE, DEVICE_RATE, Service, opener

GRACE_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 65  # longer than proxies wait, so that they hang up first
MOST_CONNECTIONS: Final = 10_000
MOST_FILES: Final = MOST_CONNECTIONS + 1000
BACKLOG: Final = 1024
EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

UVICORN: Final = logging.getLogger("uvicorn.error")


@final
@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a server listens, and how.

    Attributes:
        host, port: port 0: one that is free.
        certificate, key: of TLS, in PEM; or
        self_signed: one is made, in the server's folder.
        plain: without TLS also where others could listen: a proxy in front speaks it.
        proxy: whose word is taken for the address of who asks; None: nobody's.
    """

    host: str = "127.0.0.1"
    port: int = 8470
    certificate: Path | None = None
    key: Path | None = None
    self_signed: bool = False
    plain: bool = False
    proxy: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise InputError("bad port", got=self.port, expected="0 to 65535")
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS needs both", expected="--tls-cert FILE and --tls-key FILE")
        if self.self_signed and self.certificate is not None:
            raise InputError("two certificates", fix="leave out --tls-self-signed")
        if not (self.encrypted or self.plain or is_here(self.host)):
            raise InputError(
                "tokens and updates would go through the network unencrypted",
                got=f"--host {self.host} without TLS",
                fix="--tls-cert and --tls-key, or --tls-self-signed to try; behind a proxy that"
                " speaks TLS: --plain-http",
            )

    @property
    def encrypted(self) -> bool:
        """Whether the server itself speaks TLS."""
        return self.self_signed or self.certificate is not None

    def files(self, home: Home) -> tuple[Path | None, Path | None]:
        """Certificate and key."""
        if self.self_signed:
            return self_signed(home.folder / "tls", self.host)
        return self.certificate, self.key


@final
class Server(uvicorn.Server):
    """Says when it listens, and lets go of those who wait when it stops."""

    def __init__(
        self, config: uvicorn.Config, service: Service, listens: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service, self._listens = service, listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the door."""
        await super().startup(sockets)
        UVICORN.setLevel(logging.WARNING)
        self._listens()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close it."""
        self._service.end_waiting()
        await super().shutdown(sockets)


def serve(
    home: Home,
    listening: Listening,
    *,
    device_rate: float = DEVICE_RATE,
    address_rate: float = ADDRESS_RATE,
    told: Callable[[str], None],
) -> None:
    """Serve until told to stop; `told` hears the URL once the server listens."""
    certificate, key = listening.files(home)
    _require_usable(certificate, key)
    _allow_files()
    torch.set_num_threads(1)  # an update is added in microseconds: threads would wait for threads
    with _bound(listening) as door:
        service = _service(home, device_rate, address_rate)
        url = _url(listening, door)

        def listens() -> None:
            home.listens(url, certificate)
            told(url)

        UVICORN.setLevel(logging.CRITICAL)  # a failure to start is told as an error of ours
        server = Server(_config(service, listening, certificate, key), service, listens)
        try:
            server.run(sockets=[door])
        except KeyboardInterrupt:
            pass  # it has closed in good order, and then repeats the signal
        except SystemExit:
            raise service.failure or FaultyEnvironment("the server cannot start") from None
        finally:
            home.leave()


def _allow_files() -> None:
    """As many as there may be connections, as far as the system lets us."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _service(home: Home, device_rate: float, address_rate: float) -> Service:
    state, store, name = home.open_state(), home.open_store(), home.choices.name
    return Service(
        name,
        keys=home.keys,
        state=state,
        store=store,
        opens=opener(name=name, state=state, store=store, secrets=home.secrets),
        device_rate=device_rate,
        address_rate=address_rate,
    )


def _bound(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        return socket.create_server(
            (listening.host, listening.port), family=family, backlog=BACKLOG
        )
    except OSError as error:
        raise InputError(
            "cannot listen",
            got=f"{listening.host} port {listening.port} ({error.strerror})",
            fix="another --port or --host",
        ) from None


def _url(listening: Listening, door: socket.socket) -> str:
    """At which it is reached from this machine."""
    host, port = door.getsockname()[:2]
    host = EVERYWHERE.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if listening.encrypted else 'http'}://{shown}:{port}"


def _config(
    service: Service, listening: Listening, certificate: Path | None, key: Path | None
) -> uvicorn.Config:
    in_front = listening.plain or listening.proxy is not None
    return uvicorn.Config(
        application(service),
        http=counted(None if in_front else MOST_OF_AN_ADDRESS),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_context_factory=_modern if certificate is not None else None,
        access_log=False,  # the URLs of uploads are secrets
        log_config=None,
        server_header=False,
        proxy_headers=listening.proxy is not None,
        forwarded_allow_ips=listening.proxy,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
    )


def _modern(_: uvicorn.Config, usual: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    context = usual()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _require_usable(certificate: Path | None, key: Path | None) -> None:
    """Refuse what cannot be a certificate with its key before anything is opened."""
    if certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            "no usable certificate",
            got=f"{certificate} with {key}: {error}",
            expected="a certificate and its own key, PEM, without a password",
        ) from None
