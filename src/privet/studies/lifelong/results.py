"""What the cells say together: figures over seeds, and tests. From their records alone.

Tests: `l2dp-objective`, named beforehand, against every other contender of its stream (of those
with an epsilon: at the same one), by average accuracy after the last task. The paired two-tailed
t-test over seeds: contenders of a seed learn the same tasks, under the same permutations. p values
are corrected by Holm over the contenders of a stream and an epsilon. Without `l2dp-objective` the
first contender takes its place.

Beside it stands p as the thesis computes it: paired over the curve of average accuracies. Points of
a curve lean on one another, so that it is far too small; it is there to be compared.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from privet.lifelong.metrics import Comparison, paired_test
from privet.studies.lifelong.contenders import HERO
from privet.studies.lifelong.measuring import STAGE
from privet.studies.robust_private.results import ENOUGH, over_seeds, privacy_over, spread

TEST: Final = "paired two-tailed t-test over seeds, p corrected by Holm"
WHY: Final = (
    "paired, since contenders of a seed learn the same tasks; corrected over the contenders of a"
    " stream and an epsilon; who is tested against the others was named beforehand"
)

Record = Mapping[str, Any]


def study_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each stream, contender and budget, over its seeds."""
    return [_row(list(group)) for _, group in groupby(records, key=_who)]


def streams_in(rows: Sequence[Record]) -> list[str]:
    """In their order."""
    return list(dict.fromkeys(row["stream"] for row in rows))


def rows_of_stream(rows: Sequence[Record], stream: str) -> list[Record]:
    """All of a stream."""
    return [row for row in rows if row["stream"] == stream]


def tests_of(rows: Sequence[Record]) -> dict[str, Any]:
    """In each stream, at each budget, one against all others."""
    told: dict[str, Any] = {"test": TEST, "why": WHY, "rows": []}
    least = min((len(row["seeds"]) for row in rows), default=0)
    if least < ENOUGH:
        return told | {"skipped": f"a test needs {ENOUGH} seeds, and there is {least}"}
    for stream in streams_in(rows):
        there = rows_of_stream(rows, stream)
        for ours in _tested(there):
            others = [r for r in there if r is not ours and r["epsilon"] in (ours["epsilon"], None)]
            told["rows"] += with_holm([compared(ours, other) for other in others])
    return told


def compared(ours: Record, theirs: Record) -> dict[str, Any]:
    """Two rows of a stream, by average accuracy after the last task, seed by seed."""
    values = [row["accuracy"]["values"] for row in (ours, theirs)]
    found = paired_test(*values)
    low, high = interval(values[0], values[1])
    return {
        "stream": ours["stream"],
        "epsilon": ours["epsilon"],
        "one": ours["name"],
        "other": theirs["name"],
        "other_basis": theirs["basis"],
        "points": 100 * found.difference,
        "interval": [100 * low, 100 * high],
        "t": _finite(found.statistic),
        "p": found.p_value,
        "p_over_tasks": _over_tasks(ours, theirs),
        "seeds": found.pairs,
    }


def interval(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """95 % for the mean of the differences, by Student."""
    from scipy.stats import t

    differences = np.asarray(one) - np.asarray(other)
    n = len(differences)
    reach = float(t.ppf(0.975, n - 1)) * float(differences.std(ddof=1)) / math.sqrt(n)
    middle = float(differences.mean())
    return middle - reach, middle + reach


def with_holm(tests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each with the p value that holds for all of them together (Holm, 1979)."""
    order = sorted(range(len(tests)), key=lambda i: tests[i]["p"])
    corrected, largest = [0.0] * len(tests), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(tests) - place) * tests[i]["p"]))
        corrected[i] = largest
    return [dict(test) | {"p_holm": p} for test, p in zip(tests, corrected, strict=True)]


def _tested(rows: Sequence[Record]) -> list[Record]:
    """The hero at every budget; without it the first contender of the stream."""
    names = [row["name"] for row in rows]
    one = HERO if HERO in names else names[0]
    return [row for row in rows if row["name"] == one]


def _over_tasks(ours: Record, theirs: Record) -> float | None:
    """As the thesis has it: pair by pair of tasks; None where there are no such pairs."""
    curves = [[point["mean"] for point in row["curve"]] for row in (ours, theirs)]
    if len(curves[0]) != len(curves[1]) or len(curves[0]) < ENOUGH:
        return None
    found: Comparison = paired_test(*curves)
    return found.p_value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _who(record: Record) -> tuple[str, str, float | None]:
    return record["asked"]["data"], record["name"], record["epsilon"]


def _row(cells: Sequence[Record]) -> dict[str, Any]:
    first, found = cells[0], [cell[STAGE] for cell in cells]
    return {
        "stream": first["asked"]["data"],
        "name": first["name"],
        "epsilon": first["epsilon"],
        "seeds": [cell["seed"] for cell in cells],
        "cells": [cell["cell"] for cell in cells],
        **privacy_over([cell["privacy"] for cell in cells]),
        "audit_skipped": "",
        "warnings": [],
        "tasks": len(found[0]["tasks"]),
        "accuracy": spread([one["average_accuracy"][-1] for one in found]),
        "forgetting": spread([one["average_forgetting"][-1] for one in found]),
        "area": spread([one["learning_curve_area"] for one in found]),
        "curve": over_seeds([one["average_accuracy"] for one in found]),
        "forgetting_curve": over_seeds([one["average_forgetting"] for one in found]),
        "by_task": over_seeds([one["accuracy"][-1] for one in found]),
        "seconds": spread([cell["training"]["seconds"] for cell in cells]),
    }
