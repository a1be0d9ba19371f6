"""The folder of a server: its settings, keys and artefacts; set up at the first start.

| in the folder     | what                                                     |
|-------------------|-----------------------------------------------------------|
| `server.json`     | name, database and store; the owner's alone               |
| `keys/`           | the server's own keys; the owner's alone                  |
| `secrets/`        | keys of noise and snapshots, by model; the owner's alone  |
| `state.sqlite`    | the state, unless it is in another database               |
| `store/`          | the artefacts, unless they are in another store           |
| `tls/`            | a certificate made by `--tls-self-signed`                 |
| `running.json`    | where the server listens, while it runs                   |
"""

import fcntl
import os
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self, final
from urllib.parse import urlsplit

from privet.errors import InputError
from privet.federation.server.keys import ServerKeys
from privet.federation.server.state import State
from privet.federation.server.store import Store
from privet.files import make_folder, read_json, write_json

FORMAT: Final = "privet-server/1"
SETTINGS: Final = "server.json"
RUNNING: Final = "running.json"
OWNERS_ALONE: Final = 0o700
OWNER: Final = "server"  # in the store: the public key of the server that it belongs to


@final
@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is chosen at the first start, for good.

    Attributes:
        name: of the server, to phones and in the ledger.
        database: postgresql://...; None: SQLite in the folder.
        store: s3://BUCKET/PREFIX; None: the folder.
    """

    name: str
    database: str | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        plain = self.name.replace("-", "").replace("_", "")
        if not (plain.isascii() and plain.isalnum() and self.name[0].isalnum()):
            raise InputError(
                "bad name of a server", got=f"'{self.name}'", expected="letters, digits, - and _"
            )
        _require_scheme("database", self.database, ("postgresql", "postgres"))
        _require_scheme("store", self.store, ("s3",))


@final
class Home:
    """A server's folder, which one process serves at a time."""

    def __init__(self, folder: Path, choices: Choices) -> None:
        self.folder, self.choices = folder, choices
        self.keys = ServerKeys.kept_in(folder / "keys")
        self.secrets = _private(folder / "secrets")
        self._lock = _locked(folder)

    @classmethod
    def entered(
        cls,
        folder: Path,
        *,
        name: str | None = None,
        database: str | None = None,
        store: str | None = None,
    ) -> tuple[Self, bool]:
        """Set it up, or come back; and whether it is new."""
        file = folder / SETTINGS
        asked = {"name": name, "database": database, "store": store}
        new = not file.exists()
        if new:
            choices = Choices(**asked | {"name": name or _name_for(folder)})  # type: ignore[arg-type]
            _require_empty(folder)
            _private(folder)
            write_json(file, {"format": FORMAT, **asdict(choices)}, private=True)
        else:
            choices = _chosen_before(file, asked)
        return cls(folder, choices), new

    def open_state(self) -> State:
        """Where apps, devices and journals are."""
        if self.choices.database is not None:
            from privet.federation.server.state.postgres import PostgresState

            return PostgresState(self.choices.database)
        from privet.federation.server.state.sqlite import SqliteState

        return SqliteState(self.folder / "state.sqlite")

    def open_store(self) -> Store:
        """Where artefacts are."""
        if self.choices.store is not None:
            from privet.federation.server.store.s3 import S3Store

            return self._claimed(S3Store(self.choices.store))
        from privet.federation.server.store.folder import FolderStore

        return self._claimed(FolderStore(self.folder / "store"))

    def _claimed(self, store: Store) -> Store:
        """Refuse another server's: either would tidy up what the other one still needs."""
        mine = self.keys.public_key.encode()
        if store.size(OWNER) is None:
            store.put(OWNER, mine)
        if store.get(OWNER) != mine:
            raise InputError(
                "another server's store",
                got=_without_password(self.choices.store or str(self.folder / "store")),
                fix="choose another prefix: s3://BUCKET/PREFIX",
            )
        return store

    def listens(self, url: str, certificate: Path | None) -> None:
        """Note where, for the operator's commands."""
        shown = None if certificate is None else str(certificate.resolve())
        write_json(
            self.folder / RUNNING,
            {"url": url, "certificate": shown, "process": os.getpid()},
            private=True,
        )

    def leave(self) -> None:
        """The server has stopped."""
        (self.folder / RUNNING).unlink(missing_ok=True)
        os.close(self._lock)


def is_here(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _chosen_before(file: Path, asked: dict[str, str | None]) -> Choices:
    record = read_json(file)
    if record.pop("format", None) != FORMAT:
        raise InputError("not a server's settings", got=file, expected=FORMAT)
    for what, value in asked.items():
        if value is not None and value != record.get(what):
            raise InputError(
                f"the server in this folder has another {what}",
                got=_without_password(value),
                expected=_without_password(str(record.get(what) or "the folder's own")),
                fix=f"leave out --{what}, or name another folder",
            )
    return Choices(**record)


def _without_password(value: str) -> str:
    """A URL as it may be shown."""
    parts = urlsplit(value)
    return value if parts.password is None else value.replace(f":{parts.password}@", ":***@")


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "not a server's folder", got=folder, expected="a new or empty folder, or a server's"
        )


def _require_scheme(what: str, url: str | None, schemes: tuple[str, ...]) -> None:
    if url is not None and urlsplit(url).scheme not in schemes:
        raise InputError(f"bad {what}", got=_without_password(url), expected=f"{schemes[0]}://...")


def _name_for(folder: Path) -> str:
    """After the folder, in letters that a name may have."""
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.resolve().name)
    return letters.strip("-") or "server"


def _private(folder: Path) -> Path:
    make_folder(folder)
    folder.chmod(OWNERS_ALONE)
    return folder


def _locked(folder: Path) -> int:
    """Only one server here; the system lets go of the lock when the process ends."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(
            "another server runs in this folder", got=folder, fix="stop that one first"
        ) from None
    return lock
