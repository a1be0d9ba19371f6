"""Learning rates over a run. Post-processing: they follow from the step's number alone."""

import math
from collections.abc import Callable, Mapping
from typing import Final

SCHEDULES: Final[Mapping[str, Callable[[float], float]]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
}


def share_of_peak(done: float, schedule: str, warmup: float) -> float:
    """The share of the highest rate to use when a share `done` of all steps has been run."""
    if done < warmup:
        return done / warmup
    return SCHEDULES[schedule]((done - warmup) / (1.0 - warmup))
