"""What has been spent on which data set: every access an event, every cap a privacy filter.

    datasets  a name, its unit, and every record ever seen under that name (keyed digests)
    lineage   which data set came from which
    caps      (epsilon, delta) and the Renyi order fixed with it
    runs      one planned mechanism each: its step, how many steps were planned, charged, redone
    participations  of a run whose units select themselves: how often each was in it (keyed digests)

A step here is what is charged at once: one *turn* of a unit. Where a sampler gives every unit its
turn once in a cycle of training steps, the whole cycle is one. A search is one, with all its runs.

Two data sets are *related* if they share a record digest. A data set derived from others by
changing rows (a re-encoding) shares none, so it is given its parents' digests as well. What was
spent on any related data set counts against a cap: a record that is in both paid in both.

A run reserves its whole plan in one transaction before it starts, so concurrent runs cannot
jointly exceed a cap. Each step is charged before its output is used. `settle` gives back what was
not charged; that is sound because the filter's sum simply stops earlier. The reservation is
durable on disk; single charges survive a killed process (a power cut can only lose charges that
the reservation still holds).
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import dp_accounting as dp

from privet.errors import BudgetExceeded, CheckFailed, FaultyEnvironment, InputError
from privet.files import make_folder
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent
from privet.privacy.events import from_json, to_json
from privet.privacy.filters import RenyiFilter

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS datasets (
    name TEXT PRIMARY KEY, unit TEXT NOT NULL, registered TEXT NOT NULL, grouped INTEGER);
CREATE TABLE IF NOT EXISTS snapshots (
    dataset TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (dataset, digest));
CREATE TABLE IF NOT EXISTS rows (
    dataset TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (dataset, digest)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rows_by_digest ON rows (digest, dataset);
CREATE TABLE IF NOT EXISTS lineage (
    child TEXT NOT NULL, parent TEXT NOT NULL, PRIMARY KEY (child, parent));
CREATE TABLE IF NOT EXISTS caps (
    dataset TEXT PRIMARY KEY,
    epsilon REAL NOT NULL, delta REAL NOT NULL, renyi_order REAL NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, dataset TEXT NOT NULL, label TEXT NOT NULL, step_event TEXT NOT NULL,
    planned INTEGER NOT NULL, charged INTEGER NOT NULL DEFAULT 0,
    redone INTEGER NOT NULL DEFAULT 0, status TEXT NOT NULL DEFAULT 'open',
    started TEXT NOT NULL, adjacency TEXT NOT NULL DEFAULT 'add-remove');
CREATE TABLE IF NOT EXISTS participations (
    run TEXT NOT NULL, unit BLOB NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (run, unit)) WITHOUT ROWID;
"""


class OtherUnit(InputError):  # noqa: N818 - names the reason
    """Records on which something was spent for one unit, and which are now counted by another."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One planned mechanism and how far it got; `adjacency`: the neighbours its proof is for."""

    id: str
    dataset: str
    label: str
    step_event: DpEvent
    planned: int
    charged: int
    redone: int
    status: str
    started: str
    adjacency: Adjacency

    @property
    def committed(self) -> int:
        """Steps that count as spent: everything reserved while open, what was charged after."""
        return (self.planned if self.status == "open" else self.charged) + self.redone


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is counted as one: a name, and whether a unit column says which records belong to it.

    Two of the same name differ if one groups records and the other takes each for a unit. `grouped`
    is None for an account that was opened before its records are known.
    """

    name: str
    grouped: bool | None

    def __str__(self) -> str:
        if self.grouped is None:
            return f"'{self.name}'"
        counted = "grouped by a unit column" if self.grouped else "each record one"
        return f"'{self.name}' ({counted})"

    @property
    def options(self) -> str:
        """How to declare data for it."""
        column = {True: " --unit-column COLUMN", False: " and no --unit-column", None: ""}
        return f"--unit {self.name}{column[self.grouped]}"


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the ledger knows about one data set."""

    name: str
    unit: Unit
    parents: tuple[str, ...]
    related: tuple[str, ...]
    cap: RenyiFilter | None
    spent_epsilon: float | None
    runs: tuple[RunRecord, ...]


class Ledger:
    """The ledger in one SQLite file; safe for many processes at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            make_folder(self.path.parent, fix="set PRIVET_HOME to a writable folder")
            self.digest_key = _digest_key(self.path)
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            # WAL with NORMAL: a killed process loses nothing; see `_durable` for power cuts.
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
            self._bring_up_to_date()
        except sqlite3.OperationalError as error:
            raise FaultyEnvironment(
                "cannot open the ledger",
                got=f"{self.path} ({error})",
                fix="set PRIVET_HOME to a writable folder",
            ) from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                "corrupt ledger",
                got=f"{self.path} ({error})",
                fix="restore it from a backup; what it held was spent",
            ) from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __reduce__(self) -> tuple[type["Ledger"], tuple[Path]]:
        """In another process it is the same file, opened there: connections cannot be handed on."""
        return Ledger, (self.path.resolve(),)

    def open_account(self, name: str, *, unit: str = "example") -> None:
        """An account without records yet: for a cap that must be set before anything is learned."""
        with self._transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO datasets VALUES (?, ?, ?, NULL)", (name, unit, _now())
            )

    def register(
        self,
        name: str,
        *,
        unit: str,
        grouped: bool = False,
        snapshot: str,
        rows: Iterable[bytes],
        parents: Iterable[str] = (),
    ) -> None:
        """Enter a data set, or add the records now found under its name; all of it or nothing.

        Records on which something was spent for one unit are refused for another.

        Args:
            name: what people call it.
            unit: what is protected as one.
            grouped: whether a unit column says whose each record is; else each record is a unit.
            snapshot: digest of the whole set, by which a release's data can be recognised.
            rows: keyed digests of its records.
            parents: registered data sets it was made from. If a record here is not one of
                theirs (a re-encoding), it inherits all of theirs.
        """
        parents = tuple(parents)
        with self._transaction():
            self._enter(name, Unit(name=unit, grouped=grouped))
            for parent in parents:
                self._require(parent)
            self._db.execute("INSERT OR IGNORE INTO snapshots VALUES (?, ?)", (name, snapshot))
            self._db.executemany(
                "INSERT OR IGNORE INTO rows VALUES (?, ?)", ((name, row) for row in rows)
            )
            self._inherit(name, parents)
            self.require_one_unit(name)

    def withdraw(self, name: str) -> None:
        """Take out a data set on which nothing was reserved, capped or built; leave any other."""
        with self._transaction():
            used = self._one(
                "SELECT 1 FROM runs WHERE dataset = ?1 UNION SELECT 1 FROM caps WHERE dataset = ?1"
                " UNION SELECT 1 FROM lineage WHERE parent = ?1",
                name,
            )
            if used:
                return
            for place in ("rows.dataset", "snapshots.dataset", "lineage.child", "datasets.name"):
                table, column = place.split(".")
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def cap(self, name: str, epsilon: float, delta: float) -> RenyiFilter:
        """Set the cap of a data set, for add/remove neighbours.

        Refused if more than that is spent already, or if a run is proved for other neighbours.
        """
        chosen = RenyiFilter.for_cap(epsilon, delta)
        with self._transaction(durable=True):
            self._require(name)
            self.require_one_unit(name)
            for run in self._runs_related_to(name):
                if run.committed and run.adjacency is not Adjacency.ADD_REMOVE:
                    _refuse_under_cap(name, f"run {run.id} ({run.label})", run.adjacency)
            spent = self._spent(name, chosen)
            if spent > chosen.budget:
                raise BudgetExceeded(
                    f"cap below what is already spent on '{name}'",
                    got=f"epsilon={epsilon:g}",
                    expected=f"at least {chosen.epsilon_spent(spent):.3g} at delta={delta:g}",
                )
            self._db.execute(
                "INSERT OR REPLACE INTO caps VALUES (?, ?, ?, ?)",
                (name, epsilon, delta, chosen.order),
            )
        return chosen

    def reserve(
        self,
        name: str,
        *,
        label: str,
        step_event: DpEvent,
        steps: int,
        run_id: str | None = None,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
    ) -> str:
        """Reserve a whole plan, or raise `BudgetExceeded`; returns the run's id.

        A caller that must find its run again after a crash chooses `run_id` (by `new_run_id`) and
        notes it first. `adjacency` names the neighbours between which `step_event` is proved: a
        cap is stated for add/remove, so no other run is admitted under one.
        """
        if steps < 1:
            raise InputError("bad number of steps to reserve", got=steps, expected="at least 1")
        run_id = run_id or new_run_id()
        with self._transaction(durable=True):
            self._require(name)
            self.require_one_unit(name)
            self._require_room(name, step_event, steps, adjacency)
            self._db.execute(
                "INSERT INTO runs (id, dataset, label, step_event, planned, started, adjacency)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run_id, name, label, json.dumps(to_json(step_event)), steps, _now(), adjacency),
            )
        return run_id

    def require_one_unit(self, name: str) -> None:
        """Refuse records that are in use, under another name, with another unit.

        Units of one name differ where one groups records and the other takes each for a unit.
        An access without privacy costs everything, for every unit: it is no reason to refuse.

        What runs cost can be added up for one unit only. A mechanism that is epsilon-DP for one
        record promises less for a patient with many. And one that is epsilon-DP for adding or
        removing a patient is not so for a single record: a patient who loses one of several is as
        one replaced.
        """
        unit = self.unit(name)
        for other in self._related(name):
            theirs = self.unit(other)
            counted = self._cap(other) is not None or self.spent_privately(other)
            if theirs != unit and counted:
                raise OtherUnit(
                    f"the records of '{name}' are in the ledger as '{other}', with another unit",
                    got=f"unit {unit}",
                    expected=f"{theirs}, in which '{other}' is counted",
                    fix=f"declare it with {theirs.options}, or keep a ledger of its own "
                    "(PRIVET_HOME) where what was spent before need not count",
                )

    def spent_privately(self, name: str) -> bool:
        """Whether anything with an end was spent under this name, or is reserved."""
        return any(
            run.committed and run.step_event != dp.NonPrivateDpEvent()
            for run in self._runs("WHERE dataset = ?", name)
        )

    def charge(self, run_id: str, step: int) -> None:
        """Charge turn number `step` (from 0) before its output is used; repeating is harmless."""
        done = self._db.execute(
            "UPDATE runs SET charged = MAX(charged, ?)"
            " WHERE id = ? AND status = 'open' AND planned >= ?",
            (step + 1, run_id, step + 1),
        )
        if done.rowcount != 1:
            raise CheckFailed(f"turn {step} of run {run_id} is not covered by an open reservation")

    def recharge(self, run_id: str) -> None:
        """Charge one step again: it was redone and gave another output."""
        with self._transaction(durable=True):
            run = self.run(run_id)
            if run.status != "open":
                raise CheckFailed(f"run {run_id} is closed; no step of it can be done again")
            self._require_room(run.dataset, run.step_event, 1, run.adjacency)
            self._db.execute("UPDATE runs SET redone = redone + 1 WHERE id = ?", (run_id,))

    def settle(self, run_id: str) -> None:
        """Close a run; steps that were never charged are given back."""
        with self._transaction(durable=True):
            self.run(run_id)
            self._db.execute("UPDATE runs SET status = 'settled' WHERE id = ?", (run_id,))

    def note_participations(self, run_id: str, times: Mapping[str, int]) -> None:
        """How often units, by name, were in a run so far; to say it again is harmless."""
        rows = [(run_id, self.unit_digest(name), n) for name, n in times.items()]
        with self._transaction():
            self._db.executemany(
                "INSERT INTO participations VALUES (?, ?, ?) ON CONFLICT (run, unit)"
                " DO UPDATE SET times = MAX(times, excluded.times)",
                rows,
            )

    def participations(self, run_id: str) -> dict[bytes, int]:
        """How often each unit was in a run, by its digest."""
        return dict(self._all("SELECT unit, times FROM participations WHERE run = ?", run_id))

    def unit_digest(self, name: str) -> bytes:
        """What stands for a unit's name here, and tells nothing of it without the key."""
        return hashlib.blake2b(
            f"unit|{name}".encode(), key=self.digest_key, digest_size=32
        ).digest()

    def run(self, run_id: str) -> RunRecord:
        """One run by its id."""
        found = self._runs("WHERE id = ?", run_id)
        if not found:
            raise InputError("unknown run", got=run_id, fix="see `privet ledger show`")
        return found[0]

    def knows(self, run_id: str) -> bool:
        """Whether anything was ever reserved for this run."""
        return self._one("SELECT 1 FROM runs WHERE id = ?", run_id) is not None

    def account(self, name: str) -> Account:
        """Everything known about one data set."""
        self._require(name)
        related = self._related(name)
        cap = self._cap(name)
        return Account(
            name=name,
            unit=self.unit(name),
            parents=tuple(
                r[0] for r in self._all("SELECT parent FROM lineage WHERE child = ?", name)
            ),
            related=tuple(r for r in related if r != name),
            cap=cap,
            spent_epsilon=cap.epsilon_spent(self._spent(name, cap)) if cap else None,
            runs=self._runs_related_to(name),
        )

    def unit(self, name: str) -> Unit:
        """What is counted as one in a data set."""
        self._require(name)
        unit, grouped = self._one("SELECT unit, grouped FROM datasets WHERE name = ?", name)
        return Unit(name=unit, grouped=None if grouped is None else bool(grouped))

    def commitment(self, snapshot: str, run_id: str, facts: Mapping[str, Any] | None = None) -> str:
        """What a release may say about its data: checkable with this ledger's key, else noise.

        `facts` are those that it states in plain words, bound to the records: whoever restates
        one (the unit, what it cost to learn the bounds) cannot make the commitment to go with it.

        It differs from run to run. A digest that stayed the same for the same records would tell
        whether a record was added between two releases, which is what epsilon denies.
        """
        said = "" if facts is None else f"|{json.dumps(facts, sort_keys=True)}"
        digest = hashlib.blake2b(
            f"{run_id}|{snapshot}{said}".encode(), key=self.digest_key, digest_size=32
        )
        return f"blake2b-keyed:{digest.hexdigest()}"

    def snapshots(self, name: str) -> list[str]:
        """The digests of all versions of a data set that were registered."""
        return [r[0] for r in self._all("SELECT digest FROM snapshots WHERE dataset = ?", name)]

    def names(self) -> list[str]:
        """All registered data sets."""
        return [r[0] for r in self._all("SELECT name FROM datasets ORDER BY name")]

    def _require_room(
        self, name: str, step_event: DpEvent, steps: int, adjacency: Adjacency
    ) -> None:
        for related in self._related(name):
            cap = self._cap(related)
            if cap is None:
                continue
            if adjacency is not Adjacency.ADD_REMOVE:
                _refuse_under_cap(related, "this run", adjacency)
            spent, cost = self._spent(related, cap), steps * cap.cost(step_event)
            if spent + cost > cap.budget:
                got, fix = self._excess(related, cap, spent, cost)
                raise BudgetExceeded(
                    f"this run would exceed the cap of '{related}' "
                    f"(epsilon={cap.epsilon:g}, delta={cap.delta:g})",
                    got=got,
                    fix=fix,
                )

    def _excess(self, name: str, cap: RenyiFilter, spent: float, cost: float) -> tuple[str, str]:
        """What a refused run asks for beyond a cap, and what helps."""
        apart = "or keep a ledger of its own (PRIVET_HOME)"
        if math.isinf(cost):
            return (
                "an access without privacy, which no cap has room for",
                f"train with privacy and secret noise (privet train dpsgd), {apart}",
            )
        if math.isinf(spent):
            runs = self._runs_related_to(name)
            endless = next(run for run in runs if math.isinf(_committed(run, cap)))
            return (
                f"run {endless.id} ({endless.label}) on some of its records, whose cost has no end",
                f"no epsilon is small enough: use records that no such run has seen, {apart}",
            )
        return (
            f"epsilon {cap.epsilon_spent(spent + cost):.3g} in all, "
            f"{cap.epsilon_spent(spent):.3g} of it spent or reserved",
            "ask for a smaller epsilon, or settle abandoned runs",
        )

    def _spent(self, name: str, cap: RenyiFilter) -> float:
        return sum(_committed(run, cap) for run in self._runs_related_to(name))

    def _runs_related_to(self, name: str) -> tuple[RunRecord, ...]:
        return tuple(
            run for other in self._related(name) for run in self._runs("WHERE dataset = ?", other)
        )

    def _related(self, name: str) -> list[str]:
        found = self._all(
            "SELECT DISTINCT b.dataset FROM rows a JOIN rows b ON a.digest = b.digest"
            " WHERE a.dataset = ?",
            name,
        )
        return sorted({name, *(r[0] for r in found)})

    def _inherit(self, name: str, parents: tuple[str, ...]) -> None:
        """A subset is found by its rows; anything else takes over its parents' rows."""
        for parent in parents:
            self._db.execute("INSERT OR IGNORE INTO lineage VALUES (?, ?)", (name, parent))
        if parents and not self._rows_within(name, parents):
            for parent in parents:
                self._db.execute(
                    "INSERT OR IGNORE INTO rows SELECT ?, digest FROM rows WHERE dataset = ?",
                    (name, parent),
                )

    def _rows_within(self, name: str, parents: tuple[str, ...]) -> bool:
        marks = ",".join("?" * len(parents))
        foreign = self._one(
            f"SELECT 1 FROM rows WHERE dataset = ? AND digest NOT IN "
            f"(SELECT digest FROM rows WHERE dataset IN ({marks})) LIMIT 1",
            name,
            *parents,
        )
        return foreign is None

    def _cap(self, name: str) -> RenyiFilter | None:
        row = self._one("SELECT epsilon, delta, renyi_order FROM caps WHERE dataset = ?", name)
        return RenyiFilter(epsilon=row[0], delta=row[1], order=row[2]) if row else None

    def _runs(self, where: str, *values: object) -> list[RunRecord]:
        columns = (
            "id, dataset, label, step_event, planned, charged, redone, status, started, adjacency"
        )
        # `started` counts whole seconds; within one, the row number tells who came first.
        rows = self._all(f"SELECT {columns} FROM runs {where} ORDER BY started, rowid", *values)
        names = [c.strip() for c in columns.split(",")]
        records = [dict(zip(names, row, strict=True)) for row in rows]
        return [
            RunRecord(
                **r
                | {
                    "step_event": from_json(json.loads(r["step_event"])),
                    "adjacency": Adjacency(r["adjacency"]),
                }
            )
            for r in records
        ]

    def _enter(self, name: str, unit: Unit) -> None:
        """The account; one that was opened before its records were known learns its grouping."""
        new = (name, unit.name, _now(), unit.grouped)
        self._db.execute("INSERT OR IGNORE INTO datasets VALUES (?, ?, ?, ?)", new)
        known = self.unit(name)
        if known.name != unit.name or known.grouped not in (None, unit.grouped):
            raise InputError(
                f"data set '{name}' is registered with another unit",
                got=str(unit),
                expected=str(known),
                fix=f"declare it with {known.options}, or under another --name",
            )
        self._db.execute("UPDATE datasets SET grouped = ? WHERE name = ?", (unit.grouped, name))

    def _bring_up_to_date(self) -> None:
        """Version 0.1.0 knew no unit columns, and Poisson sampling alone.

        So whatever it entered has a unit for each record, and its runs are proved for add/remove.
        """
        if self._has("datasets", "grouped") and self._has("runs", "adjacency"):
            return
        with self._transaction():  # asked again inside: another process may have been quicker
            if not self._has("datasets", "grouped"):
                self._db.execute("ALTER TABLE datasets ADD COLUMN grouped INTEGER")
                entered = "name IN (SELECT dataset FROM snapshots)"
                self._db.execute(f"UPDATE datasets SET grouped = 0 WHERE {entered}")
            if not self._has("runs", "adjacency"):
                self._db.execute(
                    "ALTER TABLE runs ADD COLUMN adjacency TEXT NOT NULL DEFAULT 'add-remove'"
                )

    def _has(self, table: str, column: str) -> bool:
        return column in {row[1] for row in self._all(f"PRAGMA table_info({table})")}

    def _require(self, name: str) -> None:
        if not self._one("SELECT 1 FROM datasets WHERE name = ?", name):
            raise InputError(
                "data set not in the ledger",
                got=f"'{name}'",
                expected=f"one of: {', '.join(self.names()) or 'none yet'}",
                fix="`privet ledger register NAME` enters it",
            )

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        """One atomic change; `durable` waits for the disk, so that a power cut cannot undo it."""
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._db.execute("BEGIN IMMEDIATE")  # the write lock now: reads below cannot go stale
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA synchronous=NORMAL")


def _committed(run: RunRecord, cap: RenyiFilter) -> float:
    """Without end where a run proves nothing for the cap's neighbours, as known noise does."""
    if not run.committed:
        return 0.0
    endless = run.adjacency is not Adjacency.ADD_REMOVE
    return math.inf if endless else run.committed * cap.cost(run.step_event)


def _refuse_under_cap(name: str, run: str, adjacency: Adjacency) -> NoReturn:
    raise InputError(
        f"the cap of '{name}' is for add/remove neighbours, for which {run} proves nothing",
        got=f"a proof for {adjacency.value} neighbours alone, as of shuffled batches",
        fix="--sampler fixed-batches costs the same and is proved for both; or keep a ledger of"
        " its own (PRIVET_HOME)",
    )


def new_run_id() -> str:
    """A name for a run that no other run has."""
    return secrets.token_hex(8)


def default_ledger_path() -> Path:
    """`PRIVET_HOME`/ledger.db, or the user's data folder."""
    from platformdirs import user_data_dir

    return Path(os.environ.get("PRIVET_HOME") or user_data_dir("privet")) / "ledger.db"


def _digest_key(ledger: Path) -> bytes:
    path = ledger.with_suffix(".key")
    if not path.exists():
        if ledger.exists():
            raise InputError(
                "the ledger's key is missing",
                got=path,
                expected="the file that was made with the ledger",
                fix="restore it; without it no record in the ledger is recognised",
            )
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        # A link appears complete or not at all, and the first of two processes wins.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
    key = path.read_bytes()
    if len(key) != 32:
        raise InputError(
            "corrupt ledger key", got=f"{path} with {len(key)} bytes", expected="32 bytes"
        )
    return key


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
