"""The folder of a stream that is being learned: its plan, its memory, its versions.

OUT/versions/01, 02, ...   a release after every task
OUT/scores.json            accuracy on every task after every task (public tests alone)
OUT/internal/life.json     what was asked for, the plan, the ledger, the key of the coins
OUT/internal/memory-01.npz what task 1 left to the memory
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from privet.engine.origin import Origin, name_of
from privet.errors import InputError
from privet.files import make_folder, read_json, write_atomically, write_json
from privet.ledger import Ledger, default_ledger_path
from privet.lifelong.lifetime import Lifetime
from privet.lifelong.memory import Kept, kept_of
from privet.lifelong.metrics import Scores, score
from privet.lifelong.stream import Stream
from privet.privacy.randomness import KEY_BYTES, Randomness, SecretStream
from privet.release import INTERNAL, MANIFEST, Release
from privet.training.run_folder import WARNING, RunFolder

VERSIONS: Final = "versions"
SCORES: Final = "scores.json"
FIELDS: Final = (
    *("method", "analysis", "memory", "settings", "lifetime"),
    *("stream", "planned", "ledger", "coins", "names"),
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Life:
    """One stream in one folder.

    `record` is what was asked for: method, analysis, settings, the plan of the memory.
    """

    folder: Path
    stream: Stream
    record: Mapping[str, Any]
    ledger: Ledger

    @classmethod
    def begin(
        cls,
        folder: str | Path,
        stream: Stream,
        record: Mapping[str, Any],
        ledger: Ledger | None,
        *,
        noise_seed: int | None,
    ) -> "Life":
        """In a new or empty folder."""
        folder = Path(folder)
        require_free(folder)
        ledger = ledger if ledger is not None else Ledger(default_ledger_path())
        key = secrets.token_bytes(KEY_BYTES)
        if noise_seed is not None:
            key = Randomness.seeded(noise_seed).sampling.branch(purpose="coins", step=0).key
        private = folder / INTERNAL
        make_folder(private)
        private.chmod(0o700)
        write_atomically(private / "README", WARNING)
        write_atomically(private / ".gitignore", b"*\n")
        noted = {
            **record,
            "stream": dict(stream.reference),
            "planned": len(stream),
            "ledger": str(ledger.path.resolve()),
            "coins": key.hex(),
            "names": secrets.token_hex(KEY_BYTES),
        }
        write_json(private / "life.json", noted, private=True)
        return cls(folder=folder, stream=stream, record=noted, ledger=ledger)

    @classmethod
    def reopen(cls, folder: str | Path, stream: Stream, ledger: Ledger | None = None) -> "Life":
        """One that was begun."""
        record = record_in(folder)
        if ledger is None and not Path(record["ledger"]).exists():
            raise InputError(
                "the ledger of the stream is not there",
                got=record["ledger"],
                fix="restore it: the stream is charged to it",
            )
        ledger = ledger if ledger is not None else Ledger(record["ledger"])
        return cls(folder=Path(folder), stream=stream, record=record, ledger=ledger)

    def withdraw(self) -> None:
        """Take the folder away again, where nothing was asked of any record yet.

        Else a setting that was refused would stay in it, and the right one be refused.
        """
        if RunFolder(self.version(1)).settings.exists():
            return
        for part in (INTERNAL, VERSIONS):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def take_back(self, number: int) -> None:
        """Undo a task that was killed before its first step, when nothing was asked of a record."""
        begun = RunFolder(self.version(number))
        if begun.is_saved or begun.checkpoint.exists() or not begun.internal.exists():
            return
        record = read_json(begun.settings) if begun.settings.exists() else {}
        named = [record[key] for key in ("run", "memory_run") if key in record]
        runs = [self.ledger.run(name) for name in named if self.ledger.knows(name)]
        if any(run.charged > 0 for run in runs):
            return
        for run in runs:
            self.ledger.settle(run.id)
        begun.discard()

    def version(self, number: int) -> Path:
        """The folder of the release after task `number`, from 1."""
        return _version(self.folder, number)

    def internal(self, name: str) -> Path:
        """A private file."""
        return self.folder / INTERNAL / name

    @property
    def learned(self) -> int:
        """Tasks whose version is there."""
        return versions_in(self.folder)

    @cached_property
    def coins(self) -> SecretStream:
        """Who is admitted to the memory; as secret as the noise."""
        return SecretStream(bytes.fromhex(self.record["coins"]))

    def require_known(self, number: int) -> None:
        """Note the records of a task before it is learned; refuse others in its place later.

        Another cut of the same records would put a unit into two tasks, where one was promised.
        """
        path = self.internal(f"task-{number:02d}.json")
        task = self.stream.tasks[number - 1]
        whose = "" if task.identities is None else name_of([task.identities])
        content = f"{Origin.of(task.data).train}|{whose}|{self.stream.shared}"
        sealed = self.ledger.commitment(content, f"task {number}")
        if not path.exists():
            write_json(path, {"records": sealed}, private=True)
        elif read_json(path)["records"] != sealed:
            raise InputError(
                f"task {number} has other records than when it was learned",
                got=f"'{self.stream.tasks[number - 1].data.name}'",
                expected="the stream as it began, perhaps with more tasks behind",
                fix="give --records when a stream begins, so that more tasks do not cut it anew",
            )

    def run_of(self, number: int) -> str:
        """The name of a task in the ledger; refused if its steps were taken before.

        It follows from a key of the stream. So a task whose folder was deleted, or a copy of the
        whole folder, cannot read the memory a second time: what was charged covers one reading.
        """
        names = SecretStream(bytes.fromhex(self.record["names"]))
        for attempt in range(100):
            address = f"{number}|{attempt}".encode()
            name = names.digest(address, purpose="name of a task").hex()[:16]
            if not self.ledger.knows(name):
                return name
            if self.ledger.run(name).charged > 0:
                break
        raise InputError(
            f"task {number} was learned before, or begun, and its folder is gone",
            got=self.version(number),
            fix="restore the folder; the memory is read once by every task, as was charged",
        )

    def require_room(self) -> None:
        """Refuse tasks that the plan did not know, where it had to know all of them."""
        known = self.record["planned"]
        private = self.record["lifetime"] is not None
        if private and len(self.stream) > known and not self._open_ended:
            raise InputError(
                "this stream was planned for the tasks that were known when it began",
                got=f"{len(self.stream)} tasks",
                expected=f"{known}",
                fix="begin a new one with all tasks; streams of disjoint tasks may grow",
            )

    @property
    def _open_ended(self) -> bool:
        return not self.stream.shared and self.record["method"] not in ("dpsgd-agem", "joint")

    def lifetime(self) -> Lifetime:
        """The plan, and the tasks that were learned under it."""
        if self.learned == 0:
            return Lifetime.from_json(self.record["lifetime"])
        trust = read_json(self.version(self.learned) / "trust.json")
        return Lifetime.from_json(trust["lifelong"])

    @property
    def redone(self) -> int:
        """Steps of all tasks so far that were drawn twice: they may go beyond the target."""
        if self.learned == 0:
            return 0
        trust = read_json(self.version(self.learned) / "trust.json")
        return int(trust["lifelong"].get("redone", 0))

    def kept(self, number: int, *, chance: float) -> Kept:
        """What a task left to the memory: written once, then read."""
        path = self.internal(f"memory-{number:02d}.npz")
        if not path.exists():
            task = self.stream.tasks[number - 1]
            kept_of(task, number, chance=chance, coins=self.coins).save(path)
        return Kept.load(path)

    def measured(self, release: Release, number: int) -> list[float]:
        """Accuracy of a release on the test records of the first so many tasks."""
        found = []
        for task in self.stream.tasks[:number]:
            right = release.predict(task.data.test.x) == task.data.test.y
            found.append(float(np.mean(right)))
        return found

    def write_scores(self, releases: Mapping[int, Release]) -> Scores:
        """Accuracies after every task; public only where the test records are."""
        public = all(task.data.test_is_public for task in self.stream)
        path = self.folder / SCORES if public else self.internal(SCORES)
        rows = json.loads(path.read_text())["accuracy"] if path.exists() else []
        for number in range(len(rows) + 1, self.learned + 1):
            release = releases.get(number) or Release.load(self.version(number))
            rows.append(self.measured(release, number))
        scores = score(rows)
        write_json(
            path,
            {
                "tasks": [task.name for task in self.stream][: len(rows)],
                "accuracy": rows,
                "average_accuracy": list(scores.average_accuracy),
                "average_forgetting": list(scores.average_forgetting),
            },
            private=not public,
        )
        return scores


def versions_in(folder: str | Path) -> int:
    """How many tasks have their version in the folder of a stream."""
    number = 0
    while (_version(Path(folder), number + 1) / MANIFEST).exists():
        number += 1
    return number


def _version(folder: Path, number: int) -> Path:
    return folder / VERSIONS / f"{number:02d}"


def record_in(folder: str | Path) -> dict[str, Any]:
    """What was asked for in a folder that was begun."""
    path = Path(folder) / INTERNAL / "life.json"
    if not path.exists():
        whole = stream_around(folder)
        raise InputError(
            "no stream was begun here",
            got=folder,
            fix="begin one: privet lifelong fit ..." if whole is None else f"it is in {whole}",
        )
    return read_json(path, fields=FIELDS)


def stream_around(folder: str | Path) -> Path | None:
    """The stream that a folder is, or is a version of."""
    folder = Path(folder).absolute()
    possible = (folder, folder.parent.parent) if folder.parent.name == VERSIONS else (folder,)
    return next((path for path in possible if (path / INTERNAL / "life.json").exists()), None)


def require_free(folder: Path) -> None:
    """Refuse a folder in which there is something."""
    if (folder / INTERNAL / "life.json").exists():
        raise InputError(
            "a stream is there already",
            got=folder,
            fix=f"go on with it: privet lifelong extend {folder}; or choose another --out",
        )
    if folder.exists() and any(folder.iterdir()):
        raise InputError("the folder is not empty", got=folder, fix="choose another --out")
