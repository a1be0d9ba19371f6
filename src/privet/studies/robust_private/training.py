"""Trains a cell, goes on with a killed one, or finds that it is done."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

from privet.data.dataset import Dataset
from privet.files import read_json
from privet.ledger import Ledger
from privet.training.registry import Variant
from privet.training.run_folder import RunFolder

Watch = Callable[[float], None]


class Participant(Protocol):
    """Who takes part, as far as records go."""

    @property
    def name(self) -> str:
        """Of tables."""


class Trainee(Participant, Protocol):
    """Who takes part, as far as training goes."""

    @property
    def variant(self) -> Variant:
        """How it is trained."""


class Lesson(Protocol):
    """A cell, as far as records go."""

    @property
    def contender(self) -> Participant:
        """Who is trained."""

    @property
    def epsilon(self) -> float | None:
        """At which budget."""

    @property
    def seed(self) -> int:
        """Of the first weights."""

    @property
    def name(self) -> str:
        """Of its folder."""

    @property
    def title(self) -> str:
        """For a progress bar."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the cells that must be trained before."""


class Training(Lesson, Protocol):
    """A cell, as far as training goes: one release on one data set."""

    @property
    def contender(self) -> Trainee:
        """Who is trained."""

    @property
    def settings(self) -> Any:
        """All but budget and seed."""

    def asked(self, data: Dataset) -> dict[str, Any]:
        """What decides on the training."""


@final
@dataclass(frozen=True, kw_only=True)
class School:
    """Where all cells learn: one data set, one ledger."""

    data: Dataset
    ledger: Ledger
    reference: dict[str, Any]

    def asked(self, cell: Training) -> dict[str, Any]:
        """What decides on a cell's training."""
        return cell.asked(self.data)

    def train(self, cell: Training, folder: Path, watch: Watch) -> str:
        """See to it that the release is in `folder`; says how: 'trained', 'resumed', 'found'."""
        run = RunFolder(folder)
        self._take_back_unbegun(run)
        how: dict[str, Any] = {
            "ledger": self.ledger,
            "watch": lambda trainer: watch(trainer.next_step / trainer.plan.steps),
        }
        if run.is_saved and not run.checkpoint.exists():
            return "found"
        if run.settings.exists():
            cell.contender.variant.resume(folder, self.data, **how)
            return "resumed"
        cell.contender.variant.run(
            self.data, cell.settings, out=folder, reference=self.reference, **how
        )
        return "trained"

    def _take_back_unbegun(self, run: RunFolder) -> None:
        """A run that was killed before its first step has nothing to resume, and spent nothing."""
        if run.is_saved or run.checkpoint.exists() or not run.folder.exists():
            return
        name = read_json(run.settings)["run"] if run.settings.exists() else ""
        if self.ledger.knows(name):
            if self.ledger.run(name).charged:
                return
            self.ledger.settle(name)
        shutil.rmtree(run.folder)
