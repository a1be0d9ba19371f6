"""What the cells say together: figures over seeds. From their records alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from privet.studies.robust_private.results import privacy_over, spread
from privet.studies.robust_private.study import FAILED
from privet.studies.synthesis.contenders import CONTENDERS, NONE
from privet.studies.synthesis.measuring import STAGE, YARDSTICK
from privet.synthesis.evaluation.feature_clusters import ELAPSED

BY_COLUMN: Final = {
    "kl": ("marginals", "kl_real_other"),
    "distance": ("feature-clusters", "minkowski_sum"),
    "cosine": ("feature-clusters", "cosine_mean"),
    "empty": ("missing-rates", "cells_error"),
}

Record = Mapping[str, Any]
Found = Mapping[str, Any] | None
"""Mean, range and values over seeds; None where a seed has no such figure."""


def study_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each contender and budget, over the seeds that did not fail."""
    done = [record for record in records if FAILED not in record]
    return [_row(list(group)) for _, group in groupby(done, key=_who)]


def yardstick_row(found: Record) -> dict[str, Any]:
    """Real training stays in place of drawn ones, as a row."""
    nothing: dict[str, Any] = {"claimed": None, "proved": {}, "audited": None}
    private = privacy_over([nothing | {"contradicted": False, "withheld": []}])
    who = {"name": YARDSTICK, "base": YARDSTICK, "analysis": NONE, "epsilon": None}
    return {**who, "seeds": [], "cells": [], **private, **_figures_of([found])}


def failures(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The cells that failed, and why."""
    return [
        {**{key: record[key] for key in ("cell", "name", "epsilon", "seed")}, "why": record[FAILED]}
        for record in records
        if FAILED in record
    ]


def over(values: Sequence[float | None]) -> Found:
    """Mean and range over seeds; None where one has no figure, or one that is not finite."""
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    return spread(numbers) if len(numbers) == len(values) and numbers else None


def rows_under(rows: Sequence[Record], analysis: str, epsilon: float | None) -> list[Record]:
    """Of one analysis, at one budget where it has one."""
    budgets = (None,) if analysis == NONE else (epsilon,)
    return [row for row in rows if row["analysis"] == analysis and row["epsilon"] in budgets]


def _who(record: Record) -> tuple[str, float | None]:
    return record["name"], record["epsilon"]


def _row(cells: Sequence[Record]) -> dict[str, Any]:
    first, found = cells[0], [cell[STAGE] for cell in cells]
    one = CONTENDERS[first["name"]]
    return {
        "name": one.name,
        "base": one.base,
        "analysis": one.analysis,
        "epsilon": first["epsilon"],
        "seeds": [cell["seed"] for cell in cells],
        "cells": [cell["cell"] for cell in cells],
        **privacy_over([cell["privacy"] for cell in cells]),
        "audit_skipped": "",
        "warnings": [],
        **_figures_of(found),
        "seconds": {
            "training": over([cell["training"]["seconds"] for cell in cells]),
            "sampling": over([one["sampling_seconds"] for one in found]),
            "measuring": over([sum(one["measure_seconds"].values()) for one in found]),
        },
    }


def _figures_of(found: Sequence[Record]) -> dict[str, Any]:
    figures = [one["figures"] for one in found]
    keys = dict.fromkeys(key for one in figures for key, _ in _scalars(one))
    scalars = [dict(_scalars(one)) for one in figures]
    return {
        "figures": {key: over([one.get(key) for one in scalars]) for key in keys},
        "columns": {name: _by_column(figures, name) for name in BY_COLUMN},
    }


def _scalars(figures: Record) -> Iterator[tuple[str, float | None]]:
    """Every figure of every measure that is a number, as `measure.figure`."""
    for measure, found in figures.items():
        for figure, value in found.items():
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                yield f"{measure.partition(':')[0]}.{figure}", value


def _by_column(figures: Sequence[Record], name: str) -> dict[str, Found]:
    measure, figure = BY_COLUMN[name]
    columns = list(figures[0][measure]["features"])
    found = {c: over([f[measure]["features"][c][figure] for f in figures]) for c in columns}
    if name == "kl":  # the time between rows is a column, too
        elapsed = over([f["timing"]["gap_kl_real_other"] for f in figures])
        return {ELAPSED: elapsed, **found}
    return found
