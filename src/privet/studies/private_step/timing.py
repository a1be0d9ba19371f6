"""Alternating rounds in one process.

In every round each contestant has a turn: one step, or as many as fill a tenth of a second, one
after the other as in training. (A single step of a millisecond after everybody else's finds the
caches of processor and Python full of theirs.) The round after begins with the next one, so that
whatever drifts (heat, other programs) hits all alike, and nobody always comes after the same
neighbour. Warm-up steps are not counted; of several variants the fastest in warm-up runs.
"""

import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import torch

from privet.errors import InputError
from privet.studies.private_step.contestants import CONTESTANTS, Ready
from privet.studies.private_step.machine import kept_memory, peak_memory, reason, timed
from privet.studies.private_step.parity import Agreement
from privet.studies.private_step.workloads import Task

WARM_UP: Final = 2  # steps before the turn by which the fastest variant is chosen
TURN: Final = 0.1  # seconds that a turn lasts, about, or one step if that takes longer

Watch = Callable[[str], object]


@final
@dataclass(kw_only=True)
class Cell:
    """One contestant on one task; `why` there is no time, or none any more.

    `seconds` are those of a step, the mean of a turn of `steps`, in each round.
    """

    model: str
    batch: int
    contestant: str
    variant: str = ""
    steps: int = 1
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    kept_bytes: int = 0
    why: str = ""

    @property
    def median(self) -> float | None:
        """Seconds; None where there is no honest figure."""
        return None if self.why or not self.seconds else statistics.median(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """In milliseconds, with every round."""
        milliseconds = [1000 * s for s in self.seconds]
        done = self.median is not None
        return {
            "model": self.model,
            "batch": self.batch,
            "contestant": self.contestant,
            "variant": self.variant,
            "steps_in_a_turn": self.steps,
            "median_ms": statistics.median(milliseconds) if done else None,
            "best_ms": min(milliseconds) if done else None,
            "rounds_ms": milliseconds,
            "peak_bytes": self.peak_bytes,
            "kept_bytes": self.kept_bytes,
            "why": self.why,
        }


@final
@dataclass(frozen=True, kw_only=True)
class Rules:
    """How often, and how long a cell may take."""

    rounds: int = 10
    cell_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError("bad number of rounds", got=self.rounds, expected="at least 1")
        if not 0 < self.cell_seconds < math.inf:
            raise InputError(
                "bad limit of a cell",
                got=self.cell_seconds,
                expected="a positive number of seconds",
            )

    def too_long(self, step_seconds: float) -> str:
        """Why a cell of such steps is left out; "" if it is not."""
        needed = step_seconds * (WARM_UP + steps_in_a_turn(step_seconds) * (1 + self.rounds))
        if needed <= self.cell_seconds:
            return ""
        return f"skipped: would take about {needed:.0f} s (--cell-seconds {self.cell_seconds:g})"


def steps_in_a_turn(seconds: float) -> int:
    """As many as fill a turn, where one takes so long."""
    return max(1, round(TURN / seconds))


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of one round: each begins with the one after the last round's first."""
    start = turn % len(names) if names else 0
    return [*names[start:], *names[:start]]


def race(
    task: Task,
    names: Iterable[str],
    rules: Rules,
    *,
    checked: Iterable[Agreement] = (),
    earlier: Mapping[str, Cell] | None = None,
    watch: Watch = lambda _: None,
) -> list[Cell]:
    """Time a step of each contestant.

    Args:
        task: what they do.
        names: who takes part.
        rules: how many rounds, and how long at most.
        checked: who computes the right sum; a variant with a `why` is not timed.
        earlier: cells of the same model at a smaller batch: what took too long then is not tried.
        watch: told what goes on, once for the preparation and once for each round.
    """
    where = f"{task.workload.name}, batch {task.batch}"
    barred = {(a.contestant, a.variant): a.why for a in checked if a.why}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers' advice, which has its place elsewhere
        watch(f"{where}: warm-up")
        cells = {
            name: Cell(model=task.workload.name, batch=task.batch, contestant=name)
            for name in names
        }
        ready = {}
        for name, cell in cells.items():
            cell.why = _foreseen(task, (earlier or {}).get(name), rules)
            found = None if cell.why else _fastest(task, cell, barred, rules)
            if found is not None:
                ready[name] = found
        for turn in range(rules.rounds):
            watch(f"{where}: round {turn + 1}")
            for name in in_turn(list(ready), turn):
                _take(cells[name], ready, task.device)
        for name in list(ready):
            _weigh(cells[name], ready[name], task.device)
    return list(cells.values())


def _foreseen(task: Task, earlier: Cell | None, rules: Rules) -> str:
    """From a smaller batch; a step is taken to grow with its batch."""
    if earlier is None:
        return ""
    if earlier.median is not None:
        return rules.too_long(earlier.median * task.batch / earlier.batch)
    return earlier.why if earlier.why.startswith("skipped") else ""


def _fastest(
    task: Task, cell: Cell, barred: Mapping[tuple[str, str], str], rules: Rules
) -> Ready | None:
    """The fastest variant that may run, warmed up; what is against it stands in the cell."""
    best: Ready | None = None
    least, against = float("inf"), ""
    task.examples()  # the data set does not count as memory of who comes first
    before = kept_memory(task.device)
    for variant in CONTESTANTS[cell.contestant](task):
        why = barred.get((cell.contestant, variant.label), "")
        if not why:
            try:
                ready = variant.build(task, variant.adapted(task.model()))
                seconds = _warmed_up(ready, task.device, rules)
            except Exception as error:  # whatever a peer may do
                why = reason(error)
            else:
                if seconds < least:
                    best, least, cell.variant = ready, seconds, variant.label
                    cell.steps = steps_in_a_turn(seconds)
                del ready
        against = against or why
        # Lets go of what the slower ones had: what is kept now is kept by the best.
        cell.kept_bytes = max(0, kept_memory(task.device) - before)
    cell.why = against if best is None else rules.too_long(least)
    return None if cell.why else best


def _warmed_up(ready: Ready, device: torch.device, rules: Rules) -> float:
    """Seconds of a step after the first, which may compile and fill caches."""
    first = _turn(ready, device)
    if first > rules.cell_seconds:
        return first
    second = _turn(ready, device)
    return min(second, _turn(ready, device, steps_in_a_turn(second)))


def _turn(ready: Ready, device: torch.device, steps: int = 1) -> float:
    """Seconds of a step, the mean of several that follow one another."""

    def take() -> None:
        for _ in range(steps):
            ready.step()

    seconds = timed(take, device)
    ready.tidy()
    return seconds / steps


def _take(cell: Cell, ready: dict[str, Ready], device: torch.device) -> None:
    """One turn of one contestant; who fails is out of the race."""
    try:
        cell.seconds.append(_turn(ready[cell.contestant], device, cell.steps))
    except Exception as error:  # memory may run out late: sampled batches vary
        cell.why = reason(error)
        del ready[cell.contestant]
        kept_memory(device)


def _weigh(cell: Cell, ready: Ready, device: torch.device) -> None:
    try:
        cell.peak_bytes = cell.kept_bytes + peak_memory(ready.step, device)
        ready.tidy()
    except Exception:  # the times stand; the memory is not known
        kept_memory(device)
