"""The whole study: every model and batch, kept on disk as it goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import torch

from privet.files import make_folder, write_atomically, write_json
from privet.privacy.precision import FULL
from privet.studies.private_step.growth import Growth, Sweep, grow
from privet.studies.private_step.parity import Agreement, agreements, quiet_task
from privet.studies.private_step.results import growth_plot, step_plot, with_ratios
from privet.studies.private_step.timing import Cell, Rules, Watch, race
from privet.studies.private_step.workloads import Task, Workload


@final
@dataclass(kw_only=True)
class Record:
    """What goes to disk: facts about the run, and its findings so far; the plot lies beside."""

    path: Path
    content: dict[str, Any]

    def keep(self, findings: dict[str, Any]) -> None:
        """Written after every group: a run that is stopped keeps what it has."""
        self.content |= findings
        make_folder(self.path.parent)
        write_json(self.path, self.content)

    @property
    def plot(self) -> Path:
        """Where the plot is."""
        return self.path.with_suffix(".svg")


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """Where and by which rules; `watch` hears once of each check, warm-up and round."""

    device: torch.device
    rules: Rules
    record: Record
    precision: str = FULL.name
    compiling: bool = False
    watch: Watch = lambda _: None

    def steps(
        self, workloads: Sequence[Workload], batches: Sequence[int], names: Sequence[str]
    ) -> tuple[list[Cell], list[Agreement]]:
        """A step of every contestant on every model and batch, smallest first."""
        cells: list[Cell] = []
        checked: list[Agreement] = []
        task = partial(Task, device=self.device, precision=self.precision, compiling=self.compiling)
        plan = [  # first of all: a batch that cannot be is refused before anything runs
            (w, [task(workload=w, batch=batch) for batch in sorted(batches)]) for w in workloads
        ]
        for workload, tasks in plan:
            self.watch(f"{workload.name}: are the sums right?")
            quiet = quiet_task(workload, self.device, compiling=self.compiling)
            sound = agreements(quiet, names)
            checked += sound
            group: list[Cell] = []
            for one in tasks:
                group = race(
                    one,
                    names,
                    self.rules,
                    checked=sound,
                    earlier={cell.contestant: cell for cell in group},
                    watch=self.watch,
                )
                cells += group
                parity = [one.to_json() for one in checked]
                self.record.keep({"parity": parity, "cells": with_ratios(cells)})
        write_atomically(self.record.plot, step_plot(cells))
        return cells, checked

    def growth(self, sweeps: Sequence[Sweep]) -> list[Growth]:
        """Plain SGD and Privet along every sweep."""
        found: list[Growth] = []
        for one in grow(sweeps, self.rules, self.watch):
            found.append(one)
            self.record.keep({"growth": [growth.to_json() for growth in found]})
        write_atomically(self.record.plot, growth_plot(found))
        return found
