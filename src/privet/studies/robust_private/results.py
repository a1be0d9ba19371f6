"""What the cells of a study say together: figures over seeds, and tests. From their records alone.

Test: Welch's two-tailed t-test over seeds, of the method that is best at a budget against each
other one with that budget. Unpaired: the seed is that of the first weights; networks differ
between methods, and sampling and noise are drawn in secret, independently for every training, so
the same seed makes two methods no pair. Not corrected for the number of tests, nor for choosing the
best by the same figures.
"""

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from scipy.stats import ttest_ind

from privet.studies.robust_private.statements import basis_of

TEST: Final = "Welch's two-tailed t-test over seeds, unpaired"
WHY: Final = (
    "unpaired, since a seed only fixes the first weights: networks differ between methods, and"
    " sampling and noise are drawn anew for every training; not corrected for the number of tests,"
    " nor for choosing the best by the same figures"
)
ENOUGH: Final = 2  # seeds
WORST: Final = "worst case"
PUBLIC: Final = "public"  # basis of what no private record had a part in

Record = Mapping[str, Any]
Values = Callable[[Record], Sequence[float]]


def rows_of(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each method and budget, over its seeds; in the order of the records."""
    return [_row(list(group)) for _, group in groupby(records, key=_who)]


def tests_of(rows: Sequence[Record], size: float) -> dict[str, Any]:
    """The best method at each budget against each other one: worst case of attacks of one size."""
    told = {"size": size, **begun_tests(rows)}
    if "skipped" in told:
        return told
    budgets = dict.fromkeys(row["epsilon"] for row in rows if row["epsilon"] is not None)
    for epsilon in budgets:
        told["rows"] += against_best(
            [row for row in rows if row["epsilon"] == epsilon],
            lambda row: under(row, WORST, size)["values"],
        )
    return told


def begun_tests(rows: Sequence[Record]) -> dict[str, Any]:
    """Which test, and why; no rows yet, and a reason where there are too few seeds for any."""
    told: dict[str, Any] = {"test": TEST, "why": WHY, "rows": []}
    least = min((len(row["seeds"]) for row in rows), default=0)
    skipped = f"a test needs {ENOUGH} seeds, and there is {least}"
    return told | ({"skipped": skipped} if least < ENOUGH else {})


def under(row: Record, attack: str, size: float) -> Record:
    """Accuracy of a row under one attack of one size, over seeds."""
    found: Record = row["attacks"][attack][row["sizes"].index(size)]
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and range over seeds."""
    return {
        "mean": statistics.fmean(values),
        "low": min(values),
        "high": max(values),
        "values": list(values),
    }


def _who(record: Record) -> tuple[str, float | None]:
    return record["name"], record["epsilon"]


def _row(cells: Sequence[Record]) -> dict[str, Any]:
    first, attacks = cells[0], [cell["attacks"] for cell in cells]
    return {
        "name": first["name"],
        "epsilon": first["epsilon"],
        "seeds": [cell["seed"] for cell in cells],
        "cells": [cell["cell"] for cell in cells],
        **privacy_over([cell["privacy"] for cell in cells]),
        "audit_skipped": next(
            (c["audit"]["why"] for c in cells if "why" in c.get("audit", {})), ""
        ),
        "sizes": attacks[0]["sizes"],
        "clean": spread([found["clean_accuracy"] for found in attacks]),
        "attacks": {
            name: over_seeds([by[name] for by in map(by_attack, attacks)])
            for name in by_attack(attacks[0])
        },
        "warnings": list(dict.fromkeys(note for found in attacks for note in found["warnings"])),
        **_certified([cell["certificates"] for cell in cells]),
        "published": _published([cell.get("published_certificate", {}) for cell in cells]),
    }


def by_attack(found: Record) -> dict[str, list[float]]:
    """Accuracies by size: each attack's, and against all of them, image by image."""
    single = {entry["attack"]: entry["accuracy"] for entry in found["attacks"]}
    return single | {WORST: found["robust_accuracy"]}


def over_seeds(curves: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Mean and range at each place of curves."""
    return [spread(values) for values in zip(*curves, strict=True)]


def privacy_over(figures: Sequence[Record]) -> dict[str, Any]:
    """What holds for all seeds: the largest epsilon; of audits the largest bound."""
    bases = {basis_of(one) for one in figures}
    return {
        "basis": bases.pop() if len(bases) == 1 else "none",
        "claimed": _largest([one["claimed"] for one in figures]),
        "proved": {
            adjacency: _largest([one["proved"].get(adjacency) for one in figures])
            for adjacency in ("add-remove", "replace-one")
        },
        "audited": _largest([one["audited"] for one in figures if one["audited"] is not None]),
        "contradicted": any(one["contradicted"] for one in figures),
        "withheld": list(dict.fromkeys(why for one in figures for why in one["withheld"])),
    }


def _largest(statements: Sequence[Any]) -> dict[str, Any] | None:
    """None if one of them is missing: then nothing holds for all."""
    if not statements or any(one is None for one in statements):
        return None
    return dict(max(statements, key=lambda one: one["epsilon"]))


def _certified(found: Sequence[Record]) -> dict[str, Any]:
    whys = [one["why"] for one in found if "why" in one]
    if whys:
        return {"certified": [], "certified_curve": [], "not_certified": whys[0]}
    asked, curve = (_by_radius([one[k] for one in found]) for k in ("certified_accuracy", "curve"))
    return {"certified": asked, "certified_curve": curve, "not_certified": ""}


def _by_radius(curves: Sequence[Sequence[Record]]) -> list[dict[str, Any]]:
    return [
        {"radius": points[0]["radius"], **spread([point["accuracy"] for point in points])}
        for points in zip(*curves, strict=True)
    ]


def _published(found: Sequence[Record]) -> dict[str, Any] | None:
    if any("claimed" not in one for one in found):
        return None
    return {
        "sizes": found[0]["sizes"],
        **{which: over_seeds([one[which] for one in found]) for which in ("claimed", "correct")},
        "largest_correct_size": max(one["largest_correct_size"] for one in found),
        "gaps": found[0]["gaps"],
    }


def against_best(rows: Sequence[Record], values: Values) -> list[dict[str, Any]]:
    """The row with the highest mean of its values against each other one."""
    best = max(rows, key=lambda row: statistics.fmean(values(row)))
    return [compared(best, row, values) for row in rows if row is not best]


def compared(best: Record, other: Record, values: Values) -> dict[str, Any]:
    """Two rows by their values over seeds."""
    ours, theirs = values(best), values(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of seeds that all agree: t says it
        t, p = ttest_ind(ours, theirs, equal_var=False)
    return {
        "epsilon": best["epsilon"],
        "best": best["name"],
        "best_basis": best["basis"],
        "other": other["name"],
        "other_basis": other["basis"],
        "points": 100 * (statistics.fmean(ours) - statistics.fmean(theirs)),
        "seeds": [len(ours), len(theirs)],
        "t": float(t) if math.isfinite(t) else None,
        "p": float(p) if math.isfinite(p) else None,
    }
