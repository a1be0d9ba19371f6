"""The results as tables: for a terminal, for Markdown and for the page, from one description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from rich.table import Table as Screen

from privet.reports.figures import at_least, at_most
from privet.studies.robust_private.protocol import on_both_scales
from privet.studies.robust_private.results import PUBLIC, WORST, under

NOTHING: Final = "-"
WHOLE: Final = 20  # letters of a name that a terminal has room for

Row = Mapping[str, Any]


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """A title, a head, rows of text, and what must be known to read them."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """For table.md."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        body = "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines)
        note = f"\n{self.note}\n" if self.note else ""
        return f"## {self.title}\n\n{body}\n{note}"

    def screen(self) -> Screen:
        """For a terminal."""
        table = Screen(
            title=self.title,
            title_justify="left",
            caption=self.note or None,
            collapse_padding=True,  # many columns fit on a narrow screen
        )
        names = max((len(row[0]) for row in self.rows), default=0)
        for i, head in enumerate(self.head):
            table.add_column(
                head,
                justify="right" if i else "left",
                overflow="fold",
                no_wrap=not i and names <= WHOLE,
            )
        for row in self.rows:
            table.add_row(*row)
        return table


def all_tables(results: Mapping[str, Any]) -> list[Table]:
    """Every table, most important first."""
    rows, size = results["rows"], results["attack_size"]
    tables = [
        attack_table(rows, size),
        privacy_table(rows),
        size_table(rows),
        certificate_table(rows, results["protocol"]),
        comparison_table(results["tests"], f"Worst case at size {on_both_scales(size)}"),
    ]
    return [*tables, *([published_table(rows)] if any(r["published"] for r in rows) else [])]


def summary(results: Mapping[str, Any]) -> Table:
    """What fits on a screen."""
    rows, size = results["rows"], results["attack_size"]
    return Table(
        title=f"Accuracy; under attack: the worst of all, size {on_both_scales(size)}",
        head=["method", "ε", "basis", "no attack", "under attack", "certified"],
        rows=[
            [
                *who(row),
                row["basis"],
                shown(row["clean"]),
                shown(under(row, WORST, size)),
                next(iter(_certified(row, 1))),
            ]
            for row in rows
        ],
        note=f"certified: at l2 radius {results['protocol']['certifying']['radii'][0]:g}",
    )


def attack_table(rows: Sequence[Row], size: float) -> Table:
    """Accuracies under every attack of one size."""
    attacks = list(rows[0]["attacks"])
    return Table(
        title=f"Accuracy under attacks of l-infinity size {on_both_scales(size)}",
        head=["method", "ε", "basis", "no attack", *attacks],
        rows=[
            [
                *who(row),
                row["basis"],
                shown(row["clean"]),
                *(shown(under(row, name, size)) for name in attacks),
            ]
            for row in rows
        ],
        note=f"Mean over seeds, and their range. {WORST}: images that hold against every attack.",
    )


def privacy_table(rows: Sequence[Row]) -> Table:
    """Claimed, proved and audited epsilon."""
    return Table(
        title="Privacy",
        head=["method", "ε", "claimed", "proved, add/remove", "proved, replace one", "audited"],
        rows=[
            [
                *who(row),
                _epsilon(row["claimed"], adjacency=True),
                _epsilon(row["proved"]["add-remove"]),
                _epsilon(row["proved"]["replace-one"]),
                _audited(row),
            ]
            for row in rows
        ],
        note="ε is what was asked for. Of one release; the largest over seeds."
        + _reasons("audited", {row["name"]: row["audit_skipped"] for row in rows}),
    )


def size_table(rows: Sequence[Row]) -> Table:
    """The worst case by size."""
    sizes = rows[0]["sizes"]
    return Table(
        title="Worst case over all attacks, by l-infinity size",
        head=["method", "ε", *(on_both_scales(size) for size in sizes)],
        rows=[[*who(row), *(shown(under(row, WORST, size)) for size in sizes)] for row in rows],
    )


def certificate_table(rows: Sequence[Row], protocol: Mapping[str, Any]) -> Table:
    """Certified accuracy by radius."""
    terms = protocol["certifying"]
    return Table(
        title="Certified accuracy, by l2 radius",
        head=["method", "ε", *(f"{radius:g}" for radius in terms["radii"])],
        rows=[[*who(row), *_certified(row, len(terms["radii"]))] for row in rows],
        note=(
            f"Of the classifier smoothed by Gaussian noise {terms['scale']:g}, inputs in [0, 1]; "
            f"{terms['n']} votes, Clopper-Pearson, alpha {terms['alpha']:g} for each image. "
            f"So many votes prove radii up to {protocol['reach']:.3g}."
        )
        + _reasons("certified", {row["name"]: row["not_certified"] for row in rows}),
    )


def comparison_table(tests: Mapping[str, Any], of: str) -> Table:
    """The best method against the others; `of` says by what."""
    return Table(
        title=f"{of}: the best method against others",
        head=["ε", "best", "other", "points", "t", "p"],
        rows=[
            [
                NOTHING if row["epsilon"] is None else f"{row['epsilon']:g}",
                f"{row['best']} ({row['best_basis']})",
                f"{row['other']} ({row['other_basis']})",
                f"{row['points']:+.1f}",
                NOTHING if row["t"] is None else f"{row['t']:.3g}",
                NOTHING if row["p"] is None else f"{row['p']:.2g}",
            ]
            for row in tests["rows"]
        ],
        note=f"No test: {tests['skipped']}." if "skipped" in tests else _sentence(tests),
    )


def published_table(rows: Sequence[Row]) -> Table:
    """What papers certify by their own rules, and what is correct."""
    told = [row for row in rows if row["published"]]
    sizes = told[0]["published"]["sizes"]
    return Table(
        title="Certified accuracy by the methods' own rules, by l-infinity size",
        head=["method", "ε", "rule", *(on_both_scales(size) for size in sizes)],
        rows=[
            [*who(row), rule, *(shown(value) for value in row["published"][rule])]
            for row in told
            for rule in ("claimed", "correct")
        ],
        note="At clean inputs. claimed: as published; correct: by the noise that is drawn.",
    )


def gaps_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    """What the proofs behind claims miss, by method."""
    claimed = {row["name"]: row["claimed"]["gaps"] for row in rows if row["claimed"]}
    rules = {
        f"{row['name']}, its certificate": row["published"]["gaps"]
        for row in rows
        if row.get("published")
    }
    return {name: gaps for name, gaps in (claimed | rules).items() if gaps}


def who(row: Row) -> list[str]:
    """Name and epsilon; what was trained on public records alone has zero."""
    if row["basis"] == PUBLIC:
        return [row["name"], "0"]
    return [row["name"], NOTHING if row["epsilon"] is None else f"{row['epsilon']:g}"]


def shown(found: Mapping[str, Any]) -> str:
    """Percents: the mean, and the range over seeds."""
    mean, low, high = (100 * found[name] for name in ("mean", "low", "high"))
    return f"{mean:.1f}" if len(found["values"]) == 1 else f"{mean:.1f} ({low:.1f} to {high:.1f})"


def _epsilon(statement: Mapping[str, Any] | None, *, adjacency: bool = False) -> str:
    if statement is None:
        return NOTHING
    at = f" at δ {at_most(statement['delta'])}" if statement["delta"] else ""
    between = f", {statement['adjacency']}" if adjacency else ""
    return f"{at_most(statement['epsilon'])}{at}{between}"


def _audited(row: Row) -> str:
    found = row["audited"]
    if found is None:
        return NOTHING
    contradicted = " CONTRADICTED" if row["contradicted"] else ""
    return f"≥ {at_least(found['epsilon'])}, {found['adjacency']}{contradicted}"


def _certified(row: Row, radii: int) -> list[str]:
    if row["not_certified"]:
        return [NOTHING] * radii
    return [shown(value) for value in row["certified"]]


def _reasons(what: str, by_name: Mapping[str, str]) -> str:
    """Why figures are missing."""
    return "".join(f" Not {what}: {name}, {why}." for name, why in by_name.items() if why)


def _sentence(tests: Mapping[str, Any]) -> str:
    return f"{tests['test']}: {tests['why']}."


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|")
