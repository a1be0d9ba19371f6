"""The results as tables."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from privet.studies.robust_private.results import WORST
from privet.studies.robust_private.tables import (
    NOTHING,
    Table,
    certificate_table,
    comparison_table,
    privacy_table,
    shown,
    who,
)
from privet.studies.transdenoiser.contenders import PUBLIC_DENOISER
from privet.studies.transdenoiser.results import CRAFTED, THROUGH, accuracy_at, certified_at

KINDS: Final = {
    CRAFTED: "Attacks on the classifier alone, then one noisy pass",
    THROUGH: "Attacks through denoiser and noise, on the smoothed classifier",
}
CSV_HEAD: Final = (
    "contender", "epsilon", "basis", "proved", "claimed", "measure", "attack", "at",
    "mean", "low", "high", "seeds",
)  # fmt: skip

Row = Mapping[str, Any]


def all_tables(results: Mapping[str, Any]) -> list[Table]:
    """Every table, most important first."""
    rows, norm = results["rows"], results["attack_norm"]
    at = f"Certified accuracy at l2 radius {results['radius']:g}"
    return [
        summary(results),
        gain_table(results["gains"], at),
        privacy_table(rows),
        certificate_table(rows, results["protocol"]),
        *(attack_table(rows, kind, norm) for kind in KINDS),
        *(norm_table(rows, kind) for kind in KINDS),
        comparison_table(results["tests"], at),
    ]


def summary(results: Mapping[str, Any], *, brief: bool = False) -> Table:
    """The main figures; if `brief`, means alone, which fit on a screen."""
    share = _mean if brief else shown
    radius, norm = results["radius"], results["attack_norm"]
    gains = {(one["best"], one["epsilon"]): one for one in results["gains"]["rows"]}
    return Table(
        title=f"Behind noise {results['protocol']['certifying']['scale']:g} on {results['data']}",
        head=[
            "contender",
            "ε",
            "basis",
            "no noise",
            "noise",
            "certified",
            "gain",
            "attacked",
            "EOT",
        ],
        rows=[
            [
                *who(row),
                row["basis"],
                share(row["quiet"]),
                share(row["noisy"]),
                _certified(row, radius, share),
                _points(gains.get((row["name"], row["epsilon"]))),
                *(share(accuracy_at(row, kind, WORST, norm)) for kind in KINDS),
            ]
            for row in results["rows"]
        ],
        note=(
            f"certified: at l2 radius {radius:g}; gain: in points over {PUBLIC_DENOISER}; attacked:"
            f" all attacks of l2 norm {norm:g} on the classifier alone; EOT: on the whole"
        ),
    )


def gain_table(gains: Mapping[str, Any], of: str) -> Table:
    """What the private records are worth: each contender against the public denoiser."""
    skipped = f"No test: {gains['skipped']}." if "skipped" in gains else f"{gains['test']}."
    return Table(
        title=f"{of}: gain over {PUBLIC_DENOISER}, which has ε 0",
        head=["contender", "ε", "basis", "points", "t", "p"],
        rows=[
            [
                row["best"],
                NOTHING if row["epsilon"] is None else f"{row['epsilon']:g}",
                row["best_basis"],
                f"{row['points']:+.1f}",
                NOTHING if row["t"] is None else f"{row['t']:.3g}",
                NOTHING if row["p"] is None else f"{row['p']:.2g}",
            ]
            for row in gains["rows"]
        ],
        note=f"{skipped} A row that gains nothing spends its ε for nothing.",
    )


def attack_table(rows: Sequence[Row], kind: str, norm: float) -> Table:
    """Accuracies after every attack of one norm."""
    attacks = list(rows[0][kind])
    return Table(
        title=f"{KINDS[kind]}: l2 norm {norm:g}",
        head=["contender", "ε", "basis", *attacks],
        rows=[
            [*who(row), row["basis"], *(shown(accuracy_at(row, kind, a, norm)) for a in attacks)]
            for row in rows
        ],
        note=f"Mean over seeds, and their range. {WORST}: images that hold against every attack.",
    )


def norm_table(rows: Sequence[Row], kind: str) -> Table:
    """The worst case by norm."""
    norms = rows[0]["sizes"]
    return Table(
        title=f"{KINDS[kind]}: {WORST}, by l2 norm",
        head=["contender", "ε", *(f"{norm:g}" for norm in norms)],
        rows=[[*who(r), *(shown(accuracy_at(r, kind, WORST, n)) for n in norms)] for r in rows],
    )


def as_csv(rows: Sequence[Row]) -> str:
    """Every figure in a line of its own; accuracies are shares."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for row in rows:
        stated = (_epsilon(row["proved"]["add-remove"]), _epsilon(row["claimed"]))
        for measure, attack, at, found in _figures(row):
            means = [f"{found[name]:.6f}" for name in ("mean", "low", "high")]
            writer.writerow(
                [
                    *who(row),
                    row["basis"],
                    *stated,
                    measure,
                    attack,
                    at,
                    *means,
                    len(found["values"]),
                ]
            )
    return text.getvalue()


def _figures(row: Row) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    yield "no noise", "", "", row["quiet"]
    yield "noise", "", "", row["noisy"]
    for point in row["certified"]:
        yield "certified", "", f"{point['radius']:g}", point
    for kind in KINDS:
        for attack, curve in row[kind].items():
            for norm, found in zip(row["sizes"], curve, strict=True):
                yield kind, attack, f"{norm:g}", found


def _certified(row: Row, radius: float, share: Callable[[Row], str]) -> str:
    found = certified_at(row, radius)
    return NOTHING if found is None else share(found)


def _mean(found: Row) -> str:
    return f"{100 * found['mean']:.1f}"


def _points(gain: Mapping[str, Any] | None) -> str:
    return NOTHING if gain is None else f"{gain['points']:+.1f}"


def _epsilon(statement: Mapping[str, Any] | None) -> str:
    return "" if statement is None else f"{statement['epsilon']:g}"
