"""One page with everything: plots, tables, what is proved and what is only claimed."""

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from privet.reports.figures import label, value_text
from privet.reports.look import badge, page
from privet.studies.robust_private.results import PUBLIC
from privet.studies.robust_private.tables import Table, gaps_of

BASES: Final = {
    "proved": "follows from the definition of differential privacy and from what the program does",
    "claimed": "a paper's theorem, whose gaps are listed below; not proved",
    "audited": "a lower bound that was measured; the truth is at least this",
}


def study_page(
    title: str,
    results: Mapping[str, Any],
    tables: Sequence[Table],
    plots: Mapping[str, tuple[bytes, str]],
    wide: Collection[str] = (),
) -> str:
    """The page; it loads nothing from anywhere. `wide` plots have a line of their own."""
    titled = f"{title} on {results['data']}"
    parts = [
        _head(titled, results["together"]["note"]),
        _plots(plots, wide, public=any(row["basis"] == PUBLIC for row in results["rows"])),
        *(_table(table) for table in tables),
        _bases(),
        _gaps(gaps_of(results["rows"])),
        _facts("How it was measured", results["protocol"]),
        _facts("What was run", {k: results[k] for k in ("data", "seeds", "delta", "command")}),
    ]
    return page(titled, Markup("\n").join(parts))


def _head(title: str, note: str) -> Markup:
    return Markup(
        '<header><p class="eyebrow"><b>Privet</b> study</p><h1>{}</h1>'
        '<div class="headline withheld"><p>{}</p></div></header>'
    ).format(title, note)


def _plots(
    plots: Mapping[str, tuple[bytes, str]], wide: Collection[str], *, public: bool
) -> Markup:
    def look(own_line: bool) -> tuple[str, str]:
        return (" wide", "max-width: 100%") if own_line else ("", "width: 100%")

    figures = [
        Markup(
            '<figure class="panel{}"><img style="{}" alt="{}" '
            'src="data:image/svg+xml;base64,{}"><figcaption>{}</figcaption></figure>'
        ).format(*look(name in wide), said, base64.b64encode(svg).decode(), said)
        for name, (svg, said) in plots.items()
    ]
    note = (
        "Filled marks and full lines: proved. Hollow marks and dashes: claimed. Dotted: no ε. "
        "Bars are the range over seeds."
    )
    if public:
        note += " Dashes and dots: trained on public records alone."
    return Markup(
        '<section><h2>Figures</h2><div class="plots">{}</div><p class="note">{}</p></section>'
    ).format(Markup("").join(figures), note)


def _table(table: Table) -> Markup:
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(cell) for cell in table.head)
    rows = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(_cell(text) for text in row))
        for row in table.rows
    )
    return Markup(
        '<section><h2>{}</h2><div class="scroll"><table class="rows"><thead><tr>{}</tr></thead>'
        '<tbody>{}</tbody></table></div><p class="note">{}</p></section>'
    ).format(table.title, head, rows, table.note)


def _cell(text: str) -> Markup:
    if text in (*BASES, "contradicted"):
        return Markup("<td>{}</td>").format(badge(text))
    return Markup('<td class="number">{}</td>').format(text)


def _bases() -> Markup:
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td>{}</td></tr>').format(badge(basis), said)
        for basis, said in BASES.items()
    )
    return Markup(
        '<section><h2>What the words mean</h2><table class="facts"><tbody>{}</tbody></table>'
        "</section>"
    ).format(rows)


def _gaps(gaps: Mapping[str, Sequence[str]]) -> Markup:
    if not gaps:
        return Markup("")
    lists = Markup("").join(
        Markup("<h3>{}</h3><ul>{}</ul>").format(
            name, Markup("").join(Markup("<li>{}</li>").format(gap) for gap in missing)
        )
        for name, missing in gaps.items()
    )
    return Markup("<section><h2>What the claims miss</h2>{}</section>").format(lists)


def _facts(title: str, facts: Mapping[str, Any]) -> Markup:
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td>{}</td></tr>').format(label(name), value_text(value))
        for name, value in facts.items()
    )
    return Markup(
        '<section><h2>{}</h2><table class="facts"><tbody>{}</tbody></table></section>'
    ).format(title, rows)
