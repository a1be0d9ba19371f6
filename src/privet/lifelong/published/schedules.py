"""How many steps a task gets: the schedules of L2DP-ML.

| thesis        | here            | steps of task tau, of n batches               |
|---------------|-----------------|-----------------------------------------------|
| basic         | 'basic'         | n: one epoch                                  |
| E epochs      | 'uniform'       | E n                                           |
| Balanced      | 'balanced'      | the same number for every task                |
| Heterogeneous | 'heterogeneous' | E_tau n, E_tau chosen by the size of the task |

The thesis argues that steps cost nothing, so that small tasks may have more of them. Where it does
not say how many: balanced tasks share the steps of the basic schedule equally; E_tau is 5 for tasks
below a tenth of the largest, 1 for others, which is what it used for its signals.
"""

from collections.abc import Sequence
from typing import Final

from privet.errors import InputError
from privet.lifelong.stream import Stream

SCHEDULES: Final = ("basic", "uniform", "balanced", "heterogeneous")
SMALL: Final = 0.1  # of the largest task
EPOCHS_OF_SMALL: Final = 5


def records_of(stream: Stream) -> tuple[int, ...]:
    """Of each task. The method batches records, whoever they belong to: users are not declared."""
    return tuple(
        task.data.nominal_size if task.data.train.units is None else len(task.data.train)
        for task in stream
    )


def steps_of(
    schedule: str,
    sizes: Sequence[int],
    batch: int,
    *,
    epochs: float | tuple[float, ...] | None = None,
    steps: int | None = None,
) -> tuple[int, ...]:
    """Of each task, given its number of records."""
    if schedule == "balanced":
        return (steps or balanced_steps(sizes, batch),) * len(sizes)
    passes = _epochs(schedule, sizes, epochs)
    return tuple(max(1, round(e * (n // batch))) for e, n in zip(passes, sizes, strict=True))


def balanced_steps(sizes: Sequence[int], batch: int) -> int:
    """Of every task: an equal share of those of the basic schedule."""
    return max(1, round(sum(size // batch for size in sizes) / len(sizes)))


def _epochs(
    schedule: str, sizes: Sequence[int], epochs: float | tuple[float, ...] | None
) -> tuple[float, ...]:
    if isinstance(epochs, tuple) != (schedule == "heterogeneous" and epochs is not None):
        raise InputError(
            "one number of epochs for each task goes with the heterogeneous schedule",
            got=f"schedule '{schedule}', epochs {epochs}",
        )
    if isinstance(epochs, tuple):
        if len(epochs) != len(sizes):
            raise InputError(
                "as many numbers of epochs as tasks", got=len(epochs), expected=f"{len(sizes)}"
            )
        return epochs
    if schedule == "heterogeneous":
        return tuple(EPOCHS_OF_SMALL if n < SMALL * max(sizes) else 1 for n in sizes)
    return ((epochs or 1) if schedule == "uniform" else 1,) * len(sizes)
