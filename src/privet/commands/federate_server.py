"""`privet federate server`: serve models to phones that learn them together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from privet.commands.screen import out, print_listing
from privet.errors import FaultyEnvironment, InputError, PrivetError

if TYPE_CHECKING:
    from privet.federation.server.home import Home

PACKAGES = ("fastapi", "httpx", "jwt", "pydantic", "uvicorn")


def require_packages() -> None:
    """Say which extra is missing, if one is."""
    from importlib.util import find_spec

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise FaultyEnvironment(
            "the server needs packages of its own",
            got=f"no {', '.join(missing)}",
            fix="pip install 'privet[server]'",
        )


def server(
    folder: Path,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8470,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_self_signed: Annotated[bool, Parameter(negative="")] = False,
    plain_http: Annotated[bool, Parameter(negative="")] = False,
    behind_proxy: str | None = None,
    name: str | None = None,
    database: str | None = None,
    store: str | None = None,
    device_rate: float = 20.0,
    address_rate: float = 200.0,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Serve models to phones, until Ctrl-C; a new FOLDER is set up first.

    Killed at any moment it goes on where it was: every accepted update counts once.

    Example: privet federate server fleet

    Example: privet federate server fleet --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    --database postgresql://privet@db/fleet --store s3://bucket/fleet

    Parameters
    ----------
    folder
        Keys, settings, and by default the database and all artefacts; keep it, and keep it secret.
    host
        Address to listen at; 0.0.0.0: all of this machine. Others than this machine's own need TLS.
    port
        Port to listen at; 0: one that is free.
    tls_cert
        Certificate, with its chain, PEM.
    tls_key
        Its key, PEM, without a password.
    tls_self_signed
        Make a certificate and use it, to try; phones believe it by --ca FOLDER/tls/certificate.pem.
    plain_http
        No TLS although others can listen: only behind a proxy that speaks TLS.
    behind_proxy
        Address of that proxy: its word is taken for who asks, in X-Forwarded-For.
    name
        Of the server, to phones and in the ledger; default: of the folder. For good.
    database
        postgresql://...; default: SQLite in the folder. For good.
    store
        s3://BUCKET/PREFIX; default: in the folder. For good.
    device_rate
        Most requests of a device a second; 0: no limit.
    address_rate
        Most requests of an address a second; 0: no limit.
    verbose
        Log also what happens all the time: tickets, denials, updates that count.
    """
    require_packages()
    from privet.federation.server.home import Home
    from privet.federation.server.running import Listening, serve

    for what, rate in (("--device-rate", device_rate), ("--address-rate", address_rate)):
        if not 0 <= rate < float("inf"):
            raise InputError(f"bad {what}", got=rate, expected="requests a second; 0: no limit")
    listening = Listening(
        host=host,
        port=port,
        certificate=tls_cert,
        key=tls_key,
        self_signed=tls_self_signed,
        plain=plain_http,
        proxy=behind_proxy,
    )
    home, new = Home.entered(folder, name=name, database=database, store=store)
    _log(verbose=verbose)
    try:
        serve(
            home,
            listening,
            device_rate=device_rate,
            address_rate=address_rate,
            told=lambda url: _tell(home, url, new=new, self_signed=tls_self_signed),
        )
    except PrivetError:  # it never listened
        if new:
            home.unsettle()
        raise
    out.print("stopped; the same command goes on", highlight=False)


def _tell(home: "Home", url: str, *, new: bool, self_signed: bool) -> None:
    """Where it listens; of a new server, what to do next."""
    folder = home.folder
    lines = [("server", home.choices.name), ("listens", url), ("public key", home.keys.public_key)]
    if self_signed:
        lines.append(("phones", f"--ca {folder}/tls/certificate.pem"))
    if new:
        lines += [
            ("next", f"privet federate plan add {folder} PLAN.toml"),
            ("", f"privet federate app add {folder} APP --models MODEL"),
            ("", f"privet federate status {folder}"),
        ]
    print_listing(lines)


def _log(*, verbose: bool) -> None:
    """What happens, on stderr."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for logger, level in (
        ("privet.server", logging.DEBUG if verbose else logging.INFO),
        ("uvicorn.error", logging.WARNING),
    ):
        logging.getLogger(logger).setLevel(level)
        logging.getLogger(logger).addHandler(handler)
