"""Figures of attacks, certificates and audits: they must be possible.

No offline check can repeat a measurement. What it can see: shares that no number of examples gives,
an accuracy that rises where it can only fall, a radius that so many votes cannot prove, and figures
on records that were not public.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from privet.certification import make_noise
from privet.guarantee import Adjacency, Basis
from privet.verification.finding import Finding

Row = Mapping[str, Any]

WORST: Final = "worst case"
EXACT: Final = 1e-9
_NOISES: Final = ("gaussian", "laplace", "uniform")  # the last word of a noise's name


def check_measured(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Certified accuracies, accuracies under attack, audited bounds, where there are any."""
    checks: tuple[tuple[str, Callable[[Sequence[Row]], Iterable[str]]], ...] = (
        ("robustness", _robustness),
        ("attacks", _attacks),
        ("audit", _audit),
    )
    for part, contradictions in checks:
        rows = trust.get(part) or ()
        if rows:
            yield Finding.of(
                f"{part} figures",
                [*_leaks(trust, rows), *contradictions(rows)],
                otherwise=f"{len(rows)}, none impossible",
            )


def _leaks(trust: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    data = trust["data"]
    if not data["test_is_public"] and any(row.get("data") == data["name"] for row in rows):
        yield "measured on private test records"


def _robustness(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield from _impossible_share(row["certified_accuracy"], row["images"])
        if not (0 < row["alpha"] < 1 and row["n"] >= 1):
            yield f"alpha {row['alpha']} and n {row['n']}"
        elif row["certified_accuracy"] > 0 and row["radius"] > _most(row) * (1 + EXACT):
            yield f"radius {row['radius']:g}, where {row['n']} votes prove at most {_most(row):.4g}"
    for run in _runs(rows, "run"):
        yield from _rising(run, "radius", "certified_accuracy")


def _most(row: Row) -> float:
    """The radius that unanimous votes prove: p = alpha^(1/n) by Clopper and Pearson.

    `scale` is what counts at the input, wherever the noise is. In another norm it is no larger.
    """
    kind = str(row["noise"]).rpartition(" ")[2]
    if kind not in _NOISES:
        return math.inf
    return make_noise(kind, row["scale"]).radius(row["alpha"] ** (1.0 / row["n"]))


def _attacks(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield from _impossible_share(row["accuracy"], row["examples"])
        if row["accuracy"] > row["clean_accuracy"] + EXACT:
            yield f"{row['attack']}: more accurate under attack than without"
    for run in _runs(rows, "run", "attack"):
        yield from _rising(run, "size", "accuracy")
    for found in _runs(rows, "run", "size"):
        worst = [row["accuracy"] for row in found if row["attack"] == WORST]
        if worst and min(row["accuracy"] for row in found) < worst[0] - EXACT:
            yield f"size {found[0]['size']:g}: an attack does worse than the worst case"


def _audit(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        epsilon, delta, confidence = row["epsilon"], row["delta"], row["confidence"]
        if not (epsilon >= 0 and 0 <= delta < 1 and 0.5 <= confidence < 1):
            yield f"epsilon {epsilon}, delta {delta}, confidence {confidence}"
        if row["basis"] != Basis.AUDITED or row["adjacency"] not in list(Adjacency):
            yield f"basis {row['basis']}, neighbours {row['adjacency']}"
        if not isinstance(row["refutes"], bool):
            yield f"refutes: {row['refutes']!r}"
        if not (row["canaries"] >= 1 and row["runs"] >= 1):
            yield f"{row['canaries']} canaries in {row['runs']} runs"


def _impossible_share(share: float, count: int) -> Iterator[str]:
    if not (0 <= share <= 1 and count >= 1 and abs(share * count - round(share * count)) < 1e-6):
        yield f"{share} is no share of {count} examples"


def _rising(run: Sequence[Row], along: str, what: str) -> Iterator[str]:
    ordered = sorted(run, key=lambda row: float(row[along]))
    for lesser, greater in pairwise(ordered):
        if greater[what] > lesser[what] + EXACT:
            yield f"{what} rises from {along} {lesser[along]:g} to {greater[along]:g}"


def _runs(rows: Sequence[Row], *names: str) -> Iterator[list[Row]]:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    return (list(run) for _, run in groupby(sorted(rows, key=key), key))
