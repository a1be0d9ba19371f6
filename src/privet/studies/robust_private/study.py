"""All cells of a study, one after the other (or several at once: `working`), each with a record.

    OUT/ledger.db                 what was spent, the study's own
    OUT/cells/NAME/release/       the release of a cell, as `privet train` writes it
    OUT/cells/NAME/cell.json      its record: what was asked, trained, measured
    OUT/cells/NAME/*.npz          one entry for each image, behind the figures
    OUT/results.json, table.md, index.html, *.svg

A study that was stopped goes on where it was: what has a record is not done again, a killed
training is resumed. A record says what was asked for. A training under other settings is refused in
the same folder; a measurement under other terms is taken again, and replaces the earlier one.
"""

import fcntl
import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
import torch

from privet.errors import InputError
from privet.files import make_folder, read_json, write_atomically, write_json
from privet.release import MANIFEST, Release
from privet.studies.private_step.machine import describe
from privet.studies.robust_private.measuring import Arrays, Stages
from privet.studies.robust_private.statements import privacy_figures
from privet.studies.robust_private.training import Lesson

CELLS: Final = "cells"
RECORD: Final = "cell.json"
RELEASE: Final = "release"
FAILED: Final = "failed"

Watch = Callable[[int, str], None]


class Teaching(Protocol):
    """Trains cells."""

    def asked(self, cell: Any) -> dict[str, Any]:
        """What decides on a cell's training."""

    def train(self, cell: Any, folder: Path, watch: Callable[[float], None]) -> str:
        """See to it that the release is in `folder`; says how."""


class Measuring(Protocol):
    """Measures releases."""

    @property
    def device(self) -> torch.device:
        """Where."""

    def stages(self) -> Stages:
        """Each measurement by name: what decides on it, and how it is taken of a folder."""


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """A folder, and how cells in it are trained and measured.

    Attributes:
        folder: of everything.
        school, laboratory: who trains, who measures.
        watch: hears how many cells are done, and what is being done.
        goes_on: whether a cell that fails has a record that says why (`FAILED`), and the others go
            on; it is tried again when the study is repeated. Else its error ends the study.
    """

    folder: Path
    school: Teaching
    laboratory: Measuring
    watch: Watch = lambda *_: None
    goes_on: bool = False

    def run(self, cells: Sequence[Lesson]) -> list[dict[str, Any]]:
        """The records of all cells."""
        with self.alone_with(cells):
            return [self._cell(cell, done) for done, cell in enumerate(cells)]

    @contextmanager
    def alone_with(self, cells: Sequence[Lesson]) -> Iterator[None]:
        """Nobody else is at work in the folder, and what is there fits these cells."""
        with _alone_in(self.folder):
            self._require_fitting(cells)
            yield

    def _require_fitting(self, cells: Sequence[Lesson]) -> None:
        """Before anything is trained: no cell is in the folder with other settings."""
        for cell in cells:
            asked, record = self.school.asked(cell), self._record(cell)
            there = record.get("asked", asked)
            begun = FAILED not in record or (self._folder(cell) / RELEASE).exists()
            if there != asked and begun:
                raise InputError(
                    f"the cell {cell.name} was trained with other settings",
                    got=_difference(there, asked),
                    expected="the settings that it was begun with",
                    fix="choose another --out",
                )

    def _cell(self, cell: Lesson, done: int) -> dict[str, Any]:
        self.train(cell, done)
        return self.measure(cell, done)

    def train(self, cell: Lesson, done: int = 0) -> None:
        """See to it that a cell is trained; `done` is for `watch`."""
        folder, record = self._folder(cell), self._record(cell)
        record |= {
            "cell": cell.name,
            "name": cell.contender.name,
            "epsilon": cell.epsilon,
            "seed": cell.seed,
            "asked": self.school.asked(cell),
        }
        record.pop(FAILED, None)
        make_folder(folder)
        write_json(folder / RECORD, record)
        with self._failure_noted(cell):
            self._train(cell, record, done)

    def measure(self, cell: Lesson, done: int = 0) -> dict[str, Any]:
        """The record of a trained cell, with every measurement; of one that failed, why."""
        if FAILED not in self._record(cell):
            with self._failure_noted(cell):
                self._measure(cell, done)
        return self._record(cell)

    def _measure(self, cell: Lesson, done: int) -> None:
        folder, record = self._folder(cell), self._record(cell)
        for stage, (asked, measure) in self.laboratory.stages().items():
            if record.get(stage, {}).get("asked") == asked:
                continue
            begun = time.monotonic()
            found, arrays = measure(folder / RELEASE, self._progress(cell, done, stage))
            keep_arrays(folder / f"{stage}.npz", arrays)
            record[stage] = {"asked": asked, **found, **self._told(begun)}
            write_json(folder / RECORD, record)
        record["privacy"] = privacy_figures(Release.load(folder / RELEASE).trust)
        write_json(folder / RECORD, record)

    @contextmanager
    def _failure_noted(self, cell: Lesson) -> Iterator[None]:
        """An error becomes a line of the record, if the others are to go on."""
        try:
            yield
        except Exception as error:
            if not self.goes_on:
                raise
            why = str(error) or type(error).__name__
            write_json(self._folder(cell) / RECORD, self._record(cell) | {FAILED: why})

    def _train(self, cell: Lesson, record: dict[str, Any], done: int) -> None:
        """Train if need be; a release that is not the one of the record is refused."""
        release, begun = self._folder(cell) / RELEASE, time.monotonic()
        try:
            how = self.school.train(cell, release, self._progress(cell, done, "training"))
        except InputError as error:
            raise InputError(f"{cell.title}: {error}") from None
        weights = read_json(release / MANIFEST)["files"]["weights.safetensors"]
        trained = record.get("training")
        if trained is None or how != "found":
            trust = read_json(release / "trust.json")
            record["training"] = {
                "how": how,
                "weights": weights,
                "settings": trust["provenance"]["config"],
                "mechanism": trust["mechanism"],
                **self._told(begun),
            }
            write_json(self._folder(cell) / RECORD, record)
        elif trained["weights"] != weights:
            raise InputError(
                "the release of a cell was exchanged after it was measured",
                got=release,
                fix=f"restore it, or delete {self._folder(cell)} to train the cell again",
            )

    def _told(self, begun: float) -> dict[str, Any]:
        machine = describe(self.laboratory.device)
        return {"seconds": round(time.monotonic() - begun, 3), "machine": machine}

    def _progress(self, cell: Lesson, done: int, stage: str) -> Callable[[float], None]:
        what = f"{cell.title}: {stage.replace('_', ' ')}"
        return lambda share: self.watch(done, f"{what} {100 * share:.0f} %")

    def _folder(self, cell: Lesson) -> Path:
        return self.folder / CELLS / cell.name

    def _record(self, cell: Lesson) -> dict[str, Any]:
        path = self._folder(cell) / RECORD
        return read_json(path) if path.exists() else {}


def every_record(folder: Path) -> list[dict[str, Any]]:
    """Of all cells that were ever begun in the folder of a study."""
    return [read_json(path) for path in sorted((folder / CELLS).glob(f"*/{RECORD}"))]


def keep_arrays(path: Path, arrays: Arrays) -> None:
    """One file; none where there are no arrays."""
    if not arrays:
        path.unlink(missing_ok=True)  # of earlier terms
        return
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # names are arrays' alone
    write_atomically(path, buffer.getvalue())


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    """The first thing that differs."""
    flat = [{**record, **record.get("settings", {})} for record in (asked, there)]
    names = [n for n in flat[0] if n != "settings" and flat[0][n] != flat[1].get(n)]
    name = names[0] if names else "settings"
    return f"{name} {flat[0].get(name)}, there {flat[1].get(name)}"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time: a second one would take a run that just begins for a killed one."""
    make_folder(folder)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("another process is at work on this study", got=folder) from None
        yield
