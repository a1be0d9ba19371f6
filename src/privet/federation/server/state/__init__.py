"""The server's memory: apps, devices, tickets, and each model's journal.

One interface over SQLite (a file, for one machine) and PostgreSQL. Every call is safe from any
thread. A call by itself is one atomic statement that survives a killed process; in `transaction`
several are one, and with `durable` they survive a power cut once the block is left.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.state.records import (
    App,
    Device,
    Event,
    Fate,
    PlanRow,
    ReportRow,
    RoundRow,
    SnapshotRow,
    Ticket,
    Version,
)
from privet.federation.wire import Reason

Row = tuple[Any, ...]


class Lease(Protocol):
    """Leave to serve a model, which one process has at a time."""

    def require(self) -> None:
        """Refuse to go on where it was lost, and another process may serve the model."""

    def release(self) -> None:
        """Give it back."""


class State(ABC):
    """What a server remembers; `SqliteState` and `PostgresState` say where."""

    def __init__(self) -> None:
        self._here = threading.local()

    # -- how statements reach the database -------------------------------------------------

    @abstractmethod
    def _borrow(self) -> Any:
        """A connection for this thread alone, until it is given back."""

    @abstractmethod
    def _give_back(self, connection: Any) -> None:
        """Back to the others."""

    @abstractmethod
    def _begin(self, connection: Any, *, durable: bool) -> None: ...

    @abstractmethod
    def _end(self, connection: Any, *, commit: bool) -> None: ...

    @abstractmethod
    def _rows(self, connection: Any, statement: str, values: tuple[Any, ...]) -> list[Row]: ...

    @abstractmethod
    def lease(self, model: str) -> Lease:
        """Serve this model from now on; refused while another process does."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """All calls of this thread in the block are one; an exception undoes them."""
        if getattr(self._here, "connection", None) is not None:
            raise RuntimeError("a transaction within a transaction")
        connection = self._borrow()
        try:
            self._begin(connection, durable=durable)
            self._here.connection = connection
            try:
                yield
            except BaseException:
                self._end(connection, commit=False)
                raise
            self._end(connection, commit=True)
        finally:
            self._here.connection = None
            self._give_back(connection)

    def _do(self, statement: str, *values: Any) -> list[Row]:
        """A statement that changes something; alone it is a transaction of its own."""
        held = getattr(self._here, "connection", None)
        if held is not None:
            return self._rows(held, statement, values)
        with self.transaction():
            return self._rows(self._here.connection, statement, values)

    def _all(self, statement: str, *values: Any) -> list[Row]:
        """A statement that only reads."""
        held = getattr(self._here, "connection", None)
        if held is not None:
            return self._rows(held, statement, values)
        connection = self._borrow()
        try:
            return self._rows(connection, statement, values)
        finally:
            self._give_back(connection)

    # -- apps and devices -------------------------------------------------------------------

    def add_app(self, app: App, models: Iterable[str] = ()) -> None:
        """A new app; refused if the name is taken."""
        with self.transaction(durable=True):
            made = self._do(
                "INSERT INTO apps VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING name",
                *(app.name, app.key_digest, app.since),
            )
            if not made:
                raise InputError("an app has this name", got=f"'{app.name}'", fix="choose another")
            self.subscribe(app.name, models)

    def renew_app(self, app: str, key_digest: str) -> bool:
        """The app has another key, and the old one is nobody's; whether there is such an app."""
        query = "UPDATE apps SET key_digest = ? WHERE name = ? RETURNING name"
        with self.transaction(durable=True):
            return bool(self._do(query, key_digest, app))

    def subscribe(self, app: str, models: Iterable[str]) -> None:
        """The app has these models, too, from now on."""
        for model in models:
            self._do("INSERT INTO app_models VALUES (?, ?) ON CONFLICT DO NOTHING", app, model)

    def apps(self) -> list[App]:
        """All of them, by name."""
        rows = self._all("SELECT name, key_digest, since FROM apps ORDER BY name")
        return [App(name=n, key_digest=d, since=s) for n, d, s in rows]

    def app_with_key(self, key_digest: str) -> App | None:
        """Whose key has this SHA-256."""
        query = "SELECT name, key_digest, since FROM apps WHERE key_digest = ?"
        found = self._all(query, key_digest)
        return App(name=found[0][0], key_digest=found[0][1], since=found[0][2]) if found else None

    def models_of_app(self, app: str) -> list[str]:
        """What it is subscribed to."""
        return [
            r[0] for r in self._all("SELECT model FROM app_models WHERE app = ? ORDER BY 1", app)
        ]

    def add_device(self, device: Device, app: str) -> Device:
        """Enter a phone, for an app; one whose key is known keeps its name and gains the app."""
        columns = "name, public_key, phone, system, since, blocked"
        with self.transaction(durable=True):
            row = self._do(
                f"INSERT INTO devices ({columns}) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (public_key) DO UPDATE"
                " SET phone = excluded.phone, system = excluded.system"
                f" RETURNING {columns}",
                *(device.name, device.public_key, device.phone, device.system, device.since),
                int(device.blocked),
            )[0]
            known = _device(row)
            self._do(
                "INSERT INTO device_apps VALUES (?, ?) ON CONFLICT DO NOTHING", known.name, app
            )
        return known

    def device(self, name: str) -> Device | None:
        """The phone of this name."""
        found = self._all(
            "SELECT name, public_key, phone, system, since, blocked FROM devices WHERE name = ?",
            name,
        )
        return _device(found[0]) if found else None

    def devices(self, *, after: str, most: int) -> list[Device]:
        """The next phones behind a name, by name."""
        columns = "name, public_key, phone, system, since, blocked"
        query = f"SELECT {columns} FROM devices WHERE name > ? ORDER BY name LIMIT ?"
        return [_device(row) for row in self._all(query, after, most)]

    def devices_of(self, model: str) -> list[str]:
        """Names of all phones that have the model by some app and are not blocked."""
        rows = self._all(
            "SELECT DISTINCT d.name FROM devices d JOIN device_apps a ON a.device = d.name"
            " JOIN app_models m ON m.app = a.app WHERE m.model = ? AND d.blocked = 0 ORDER BY 1",
            model,
        )
        return [r[0] for r in rows]

    def models_of(self, device: str) -> list[str]:
        """The models that a phone has by its apps."""
        rows = self._all(
            "SELECT DISTINCT m.model FROM device_apps a JOIN app_models m ON m.app = a.app"
            " WHERE a.device = ? ORDER BY 1",
            device,
        )
        return [r[0] for r in rows]

    def block(self, device: str, *, blocked: bool = True) -> None:
        """Shut a phone out, or let it in again; refused for one that nobody knows."""
        query = "UPDATE devices SET blocked = ? WHERE name = ? RETURNING name"
        if not self._do(query, int(blocked), device):
            raise InputError("no such device", got=f"'{device}'")

    def remember_nonce(self, nonce: str, *, until: float) -> bool:
        """Whether the nonce is new; from now on it is not."""
        query = "INSERT INTO nonces VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING nonce"
        return bool(self._do(query, nonce, until))

    def forget_nonces(self, *, before: float) -> None:
        """Those that are too old to be used again anyway."""
        self._do("DELETE FROM nonces WHERE until < ?", before)

    # -- plans ------------------------------------------------------------------------------

    def add_plan(self, plan: PlanRow) -> None:
        """One more revision; refused if it is there."""
        values = (plan.model, plan.revision, plan.digest, plan.text, plan.from_round)
        self._do("INSERT INTO plans VALUES (?, ?, ?, ?, ?)", *values)

    def plans(self, model: str) -> list[PlanRow]:
        """All revisions of one model's plan, the first one first."""
        rows = self._all(
            "SELECT revision, digest, text, from_round FROM plans WHERE model = ?"
            " ORDER BY revision",
            model,
        )
        return [
            PlanRow(model=model, revision=int(r), digest=d, text=t, from_round=int(n))
            for r, d, t, n in rows
        ]

    def models(self) -> list[str]:
        """Every model that has a plan."""
        return [r[0] for r in self._all("SELECT DISTINCT model FROM plans ORDER BY 1")]

    # -- tickets ----------------------------------------------------------------------------

    def give_ticket(self, ticket: Ticket) -> Ticket:
        """A new one, or that which the device has for the round already, with a new deadline."""
        row = self._do(
            f"INSERT INTO tickets ({_TICKET}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (model, round, device) DO UPDATE SET until = excluded.until"
            f" RETURNING {_TICKET}",
            *(ticket.ticket, ticket.model, ticket.device, ticket.round, ticket.base_version),
            *(ticket.until, ticket.fate, ticket.reason),
        )[0]
        return _ticket(row)

    def ticket(self, name: str) -> Ticket | None:
        """The ticket of this name."""
        found = self._all(f"SELECT {_TICKET} FROM tickets WHERE ticket = ?", name)
        return _ticket(found[0]) if found else None

    def tickets_out(self, model: str) -> list[Ticket]:
        """Those that nothing was decided of."""
        query = f"SELECT {_TICKET} FROM tickets WHERE model = ? AND fate = ?"
        return [_ticket(row) for row in self._all(query, model, Fate.OUT)]

    def decide(self, ticket: str, fate: Fate, reason: Reason | None = None) -> None:
        """What became of it; once only."""
        self._do(
            "UPDATE tickets SET fate = ?, reason = ? WHERE ticket = ? AND fate = ?",
            *(fate, reason, ticket, Fate.OUT),
        )

    # -- journals ---------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """One more line; refused if its number is there, as another process has written it."""
        self._do(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            *(event.model, event.seq, event.kind, event.at),
            json.dumps(dict(event.fields), sort_keys=True, separators=(",", ":")),
        )

    def events(self, model: str, *, after: int = -1, most: int = 2**53) -> list[Event]:
        """The lines behind a number."""
        query = (
            "SELECT seq, kind, at, fields FROM events WHERE model = ? AND seq > ?"
            " ORDER BY seq LIMIT ?"
        )
        return [
            Event(model=model, seq=int(seq), kind=kind, at=float(at), fields=json.loads(fields))
            for seq, kind, at, fields in self._all(query, model, after, most)
        ]

    def last_event(self, model: str) -> Event | None:
        """The newest line."""
        newest = self._all("SELECT MAX(seq) FROM events WHERE model = ?", model)[0][0]
        return None if newest is None else self.events(model, after=int(newest) - 1)[0]

    def put_snapshot(self, snapshot: SnapshotRow) -> None:
        """Where to begin after a crash; refused where the journal has gone on without it."""
        if self.events(snapshot.model, after=snapshot.seq, most=1):
            raise FaultyEnvironment(
                "a snapshot of what is not the newest any more",
                got=f"another process serves '{snapshot.model}' by now",
                fix="start this one again; what was answered is counted",
            )
        self._do(
            "INSERT INTO snapshots VALUES (?, ?, ?, ?) ON CONFLICT (model) DO UPDATE"
            " SET seq = excluded.seq, key = excluded.key, sha256 = excluded.sha256",
            *(snapshot.model, snapshot.seq, snapshot.key, snapshot.sha256),
        )

    def snapshot(self, model: str) -> SnapshotRow | None:
        """Where to begin; None: at the start."""
        found = self._all("SELECT model, seq, key, sha256 FROM snapshots WHERE model = ?", model)
        return _snapshot(found[0]) if found else None

    # -- what came of it --------------------------------------------------------------------

    def put_version(self, version: Version) -> None:
        """Published; the same again changes nothing."""
        self._do(
            "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            *(
                version.model,
                version.version,
                version.key,
                version.sha256,
                version.plan,
                version.at,
            ),
        )

    def versions(self, model: str) -> list[Version]:
        """All of them, the first one first."""
        query = (
            "SELECT model, version, key, sha256, plan, at FROM versions WHERE model = ? ORDER BY 2"
        )
        return [_version(row) for row in self._all(query, model)]

    def version(self, model: str, version: int) -> Version | None:
        """One of them."""
        found = self._all(
            "SELECT model, version, key, sha256, plan, at FROM versions"
            " WHERE model = ? AND version = ?",
            *(model, version),
        )
        return _version(found[0]) if found else None

    def drop_version(self, model: str, version: int) -> None:
        """Its weights are gone."""
        self._do("DELETE FROM versions WHERE model = ? AND version = ?", model, version)

    def put_round(self, row: RoundRow) -> None:
        """A round is over; the same again changes nothing."""
        self._do(
            "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            *(row.model, row.round, row.at, row.how, row.updates, row.version, row.staleness),
        )

    def rounds(self, model: str, *, last: int = 200) -> list[RoundRow]:
        """The last ones, the oldest of them first."""
        rows = self._all(
            "SELECT model, round, at, how, updates, version, staleness FROM rounds"
            " WHERE model = ? ORDER BY round DESC LIMIT ?",
            *(model, last),
        )
        return [
            RoundRow(
                model=m, round=int(n), at=a, how=h, updates=int(u), version=int(v), staleness=s
            )
            for m, n, a, h, u, v, s in reversed(rows)
        ]

    def put_report(self, model: str, version: int, device: str, *, tried: int, right: int) -> bool:
        """Whether it is the device's first of this version; only that one counts."""
        made = self._do(
            "INSERT INTO reports VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING device",
            *(model, version, device, tried, right),
        )
        return bool(made)

    def reports(self, model: str) -> list[ReportRow]:
        """By version."""
        rows = self._all(
            "SELECT version, COUNT(*), SUM(tried), SUM(hits) FROM reports WHERE model = ?"
            " GROUP BY version ORDER BY version",
            model,
        )
        return [
            ReportRow(version=int(v), devices=int(d), tried=int(t), right=int(r))
            for v, d, t, r in rows
        ]

    def add_count(self, model: str, what: str, reason: str = "", n: int = 1) -> None:
        """So many more of this kind."""
        self._do(
            "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (model, what, reason)"
            " DO UPDATE SET n = counts.n + excluded.n",
            *(model, what, reason, n),
        )

    def counts(self, model: str) -> dict[tuple[str, str], int]:
        """How many of each kind, by (what, reason)."""
        query = "SELECT what, reason, n FROM counts WHERE model = ?"
        return {(what, reason): int(n) for what, reason, n in self._all(query, model)}


_TICKET = "ticket, model, device, round, base_version, until, fate, reason"


def _ticket(row: Row) -> Ticket:
    ticket, model, device, number, base, until, fate, reason = row
    return Ticket(
        ticket=ticket,
        model=model,
        device=device,
        round=int(number),
        base_version=int(base),
        until=float(until),
        fate=Fate(fate),
        reason=None if reason is None else Reason(reason),
    )


def _device(row: Row) -> Device:
    name, key, phone, system, since, blocked = row
    return Device(
        name=name, public_key=key, phone=phone, system=system, since=since, blocked=bool(blocked)
    )


def _version(row: Row) -> Version:
    model, version, key, sha256, plan, at = row
    return Version(
        model=model, version=int(version), key=key, sha256=sha256, plan=plan, at=float(at)
    )


def _snapshot(row: Row) -> SnapshotRow:
    return SnapshotRow(model=row[0], seq=int(row[1]), key=row[2], sha256=row[3])


__all__ = [
    "App",
    "Device",
    "Event",
    "Fate",
    "Lease",
    "PlanRow",
    "ReportRow",
    "RoundRow",
    "SnapshotRow",
    "State",
    "Ticket",
    "Version",
]
