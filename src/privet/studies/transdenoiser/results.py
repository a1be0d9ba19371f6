"""What the cells say together: figures over seeds, gains over the public denoiser, and tests.

From their records alone. The main figure is certified accuracy at one radius. Two tests, both as
in `robust_private.results`: the best contender at a budget against each other one with that budget,
and each private contender against the public denoiser, which costs no privacy. The classifier is
one and the same for all: what is tested is the training in front of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from privet.studies.robust_private.results import (
    PUBLIC,
    Record,
    against_best,
    begun_tests,
    by_attack,
    compared,
    over_seeds,
    rows_of,
    spread,
)
from privet.studies.transdenoiser.contenders import CLASSIFIER, PUBLIC_DENOISER, PUBLIC_HALF

USUAL_NORM: Final = 2.0
USUAL_RADIUS: Final = 0.25
CRAFTED: Final = "crafted"
THROUGH: Final = "attacks"


def study_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each contender and budget, over its seeds."""
    by_cell = {record["cell"]: record for record in records}
    return [row | _besides([by_cell[name] for name in row["cells"]]) for row in rows_of(records)]


def certified_at(row: Record, radius: float) -> Mapping[str, Any] | None:
    """Certified accuracy of a row at a radius, over seeds; None if it has no certificates."""
    found = [point for point in row["certified"] if point["radius"] == radius]
    return found[0] if found else None


def accuracy_at(row: Record, kind: str, attack: str, size: float) -> Mapping[str, Any]:
    """Accuracy of a row after attacks of one kind, `CRAFTED` or `THROUGH`, at one norm."""
    found: Mapping[str, Any] = row[kind][attack][row["sizes"].index(size)]
    return found


def tests_of(rows: Sequence[Record], radius: float) -> dict[str, Any]:
    """The best contender at each budget against each other one: certified accuracy."""
    asked = _testable(rows, radius)
    told = {"radius": radius, **begun_tests(asked)}
    budgets = dict.fromkeys(row["epsilon"] for row in asked if row["epsilon"] is not None)
    for epsilon in budgets if "skipped" not in told else ():
        at = [row for row in asked if row["epsilon"] == epsilon]
        told["rows"] += against_best(at, lambda row: _certified(row, radius))
    return told


def gains_of(rows: Sequence[Record], radius: float) -> dict[str, Any]:
    """Every contender that private records had a part in against the public denoiser."""
    asked = _testable(rows, radius)
    told = {"radius": radius, **begun_tests(asked)}
    public = [row for row in asked if row["name"] == PUBLIC_DENOISER]
    private = [row for row in asked if row["basis"] != PUBLIC]
    told["rows"] = [
        _gain(row, public[0], radius, tested="skipped" not in told) for row in private if public
    ]
    return told


def _besides(cells: Sequence[Record]) -> dict[str, Any]:
    """What only this study measures; and the basis of what no private record had a part in."""
    crafted = [cell[CRAFTED] for cell in cells]
    curves = [by_attack(found) for found in crafted]
    besides = {
        "quiet": spread([found["quiet_accuracy"] for found in crafted]),
        "noisy": spread([found["clean_accuracy"] for found in crafted]),
        "scale": crafted[0]["scale"],
        CRAFTED: {name: over_seeds([curve[name] for curve in curves]) for name in curves[0]},
    }
    public = all(cell["asked"]["data"].endswith(f"/{PUBLIC_HALF}") for cell in cells)
    return besides | ({"basis": PUBLIC} if public else {})


def _testable(rows: Sequence[Record], radius: float) -> list[Record]:
    """All but the classifier, of which there is one, and those without certificates."""
    return [r for r in rows if r["name"] != CLASSIFIER and certified_at(r, radius) is not None]


def _certified(row: Record, radius: float) -> Sequence[float]:
    found = certified_at(row, radius)
    assert found is not None
    values: Sequence[float] = found["values"]
    return values


def _gain(row: Record, public: Record, radius: float, *, tested: bool) -> dict[str, Any]:
    told = compared(row, public, lambda one: _certified(one, radius))
    return told if tested else told | {"t": None, "p": None}
