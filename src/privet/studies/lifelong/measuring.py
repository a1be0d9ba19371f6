"""What is measured on a cell: accuracy on every task after every task, and what follows of it.

`privet lifelong fit` has measured it already, on the same test records for all contenders of a
seed; here it is read, and scored by `lifelong.metrics`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import torch

from privet.files import read_json
from privet.lifelong.metrics import score
from privet.studies.lifelong.learning import STREAM, scores_of
from privet.studies.robust_private.measuring import Measured, Stages, Watch

STAGE: Final = "scores"


@final
@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """One stage; `device` is where cells learn."""

    device: torch.device

    def stages(self) -> Stages:
        """What there is to measure."""
        return {STAGE: ({"of": "the test records of each task"}, scored)}


def scored(release: Path, watch: Watch) -> Measured:
    """Of a cell, by its release."""
    read = read_json(scores_of(release.parent / STREAM))
    scores = score(read["accuracy"])
    watch(1.0)
    return (
        {
            "tasks": read["tasks"],
            "accuracy": [list(row) for row in scores.accuracy],
            "average_accuracy": list(scores.average_accuracy),
            "average_forgetting": list(scores.average_forgetting),
            "learning_curve_area": scores.learning_curve_area,
        },
        {},
    )
