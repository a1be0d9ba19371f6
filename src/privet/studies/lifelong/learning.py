"""Learns the stream of a cell, goes on with one that was killed, or finds that it is done.

CELL/stream/     the folder of `privet lifelong fit`
CELL/release     a link to its last version, which the study looks at
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.files import read_json
from privet.ledger import Ledger
from privet.lifelong.fitting import extend, fit
from privet.lifelong.life import SCORES, VERSIONS
from privet.release import INTERNAL, MANIFEST
from privet.studies.lifelong.cells import Cell

STREAM: Final = "stream"
Watch = Callable[[float], None]


@final
@dataclass(frozen=True, kw_only=True)
class School:
    """Where all cells learn: each its stream, charged to the ledger of the study."""

    ledger: Ledger

    def asked(self, cell: Cell) -> dict[str, Any]:
        """What decides on a cell."""
        return cell.asked()

    def train(self, cell: Cell, folder: Path, watch: Watch) -> str:
        """See to it that `folder` is the last version; says how: 'trained', 'resumed', 'found'."""
        place = folder.parent / STREAM
        how = "found" if is_done(place) else self._learn(cell, place, watch)
        last = sorted((place / VERSIONS).glob(f"*/{MANIFEST}"))[-1].parent
        if not folder.is_symlink():
            folder.symlink_to(last.relative_to(folder.parent))
        return how

    def _learn(self, cell: Cell, place: Path, watch: Watch) -> str:
        stream = cell.stream.at(cell.seed)
        tasks = 1 if cell.contender.method == "joint" else len(stream)

        def told(trainer: Any) -> None:
            done = sum(1 for _ in (place / VERSIONS).glob(f"*/{MANIFEST}"))
            watch((done + trainer.next_step / trainer.plan.steps) / tasks)

        if (place / INTERNAL / "life.json").exists():
            extend(place, stream=stream, ledger=self.ledger, watch=told)
            return "resumed"
        if place.exists():  # killed before anything was planned, let alone asked of a record
            shutil.rmtree(place)
        target = {k: v for k, v in cell.options.items() if k in ("epsilon", "delta")}
        others = {k: v for k, v in cell.options.items() if k not in target}
        one = cell.contender
        fit(
            one.method, stream, out=place, analysis=one.analysis, memory=one.memory,
            ledger=self.ledger, watch=told, **target, **others,
        )  # fmt: skip
        return "trained"


def is_done(place: Path) -> bool:
    """Whether every version of a stream is there, and measured."""
    path = scores_of(place)
    if not path.exists():
        return False
    record = read_json(place / INTERNAL / "life.json")
    return bool(len(read_json(path)["accuracy"]) == record["planned"])


def scores_of(place: Path) -> Path:
    """Where the accuracies of a stream in a folder are: inside where test records are private."""
    public = place / SCORES
    return public if public.exists() else place / INTERNAL / SCORES
