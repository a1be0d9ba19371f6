"""How time and memory of a step grow: with the batch, the parameters, the length of sequences.

The exponent b of `cost ~ size^b` is the slope of a least-squares line through the logarithms. At
small sizes overhead that does not grow flattens it, so the slope between the last two sizes is
given beside it: that is where the line is heading.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from privet.studies.private_step.contestants import ALWAYS
from privet.studies.private_step.parity import agreements, quiet_task
from privet.studies.private_step.timing import Cell, Rules, Watch, race
from privet.studies.private_step.workloads import (
    Task,
    Workload,
    cnn_large,
    find_workload,
    lstm,
    transformer,
)

CHANNELS: Final = (8, 16, 32, 64)
LENGTHS: Final = (16, 32, 64, 128)
COSTS: Final = ("seconds", "bytes")


@final
@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Tasks that differ in one size: `along` says which."""

    along: str
    model: str
    sizes: tuple[int, ...]
    tasks: tuple[Task, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a sweep found: for each size the cells of all contestants."""

    sweep: Sweep
    cells: tuple[tuple[Cell, ...], ...]

    def points(self, contestant: str, cost: str) -> list[tuple[int, float]]:
        """(size, seconds or bytes), where it was measured."""
        found = []
        for size, group in zip(self.sweep.sizes, self.cells, strict=True):
            cell = next(c for c in group if c.contestant == contestant)
            value = cell.median if cost == "seconds" else cell.peak_bytes
            if value:
                found.append((size, float(value)))
        return found

    def to_json(self) -> dict[str, Any]:
        """Cells and exponents."""
        return {
            "along": self.sweep.along,
            "model": self.sweep.model,
            "sizes": list(self.sweep.sizes),
            "exponents": {
                contestant: {cost: exponents(self.points(contestant, cost)) for cost in COSTS}
                for contestant in ALWAYS
            },
            "cells": [[cell.to_json() for cell in group] for group in self.cells],
        }


def exponents(points: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    """Of all points, and of the last two; None where there are fewer."""
    if len(points) < 2:
        return None
    logs = [(math.log(size), math.log(value)) for size, value in points]
    return {"fitted": _slope(logs), "last": _slope(logs[-2:])}


def _slope(points: Sequence[tuple[float, float]]) -> float:
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    together = sum((a - x) * (b - y) for a, b in points)
    return float(together / sum((a - x) ** 2 for a, _ in points))


def sweeps(batches: Sequence[int], device: torch.device) -> list[Sweep]:
    """Batches as given; width and length at the smallest of them."""

    def of(
        along: str, sizes: Sequence[int], make: Callable[[int], Workload], batch: int | None
    ) -> Sweep:
        tasks = [Task(workload=make(n), batch=batch or n, device=device) for n in sizes]
        shown = sizes if along != "parameters" else [_parameters(t.workload) for t in tasks]
        name = tasks[0].workload.name
        return Sweep(along=along, model=name, sizes=tuple(shown), tasks=tuple(tasks))

    least = min(batches)
    return [
        of("batch", sorted(batches), lambda _: find_workload("cnn"), None),
        of("parameters", CHANNELS, cnn_large, least),
        of("length", LENGTHS, transformer, least),
        of("length", LENGTHS, lstm, least),
    ]


def _parameters(workload: Workload) -> int:
    return sum(p.numel() for p in workload.model(torch.device("cpu")).parameters())


def grow(chosen: Sequence[Sweep], rules: Rules, watch: Watch = lambda _: None) -> Iterator[Growth]:
    """Plain SGD and Privet along each sweep; Privet's sum is checked at the first size."""
    for sweep in chosen:
        first = sweep.tasks[0]
        checked = agreements(quiet_task(first.workload, first.device), ALWAYS)
        cells = [tuple(race(t, ALWAYS, rules, checked=checked, watch=watch)) for t in sweep.tasks]
        yield Growth(sweep=sweep, cells=tuple(cells))
