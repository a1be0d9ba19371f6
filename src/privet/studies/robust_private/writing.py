"""The results of a study onto disk: figures, tables, plots and the page."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from privet.files import write_atomically, write_json
from privet.ledger import Ledger
from privet.studies.robust_private.page import study_page
from privet.studies.robust_private.plots import all_plots
from privet.studies.robust_private.protocol import Protocol
from privet.studies.robust_private.public import together
from privet.studies.robust_private.results import rows_of, tests_of
from privet.studies.robust_private.study import every_record
from privet.studies.robust_private.tables import Table, all_tables, gaps_of

TITLE: Final = "Private and robust classifiers"


def results_of(
    records: Sequence[Mapping[str, Any]],
    *,
    protocol: Protocol,
    attack_size: float,
    epsilon: float,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is shown; `told` are facts about the study as a whole."""
    rows = rows_of(records)
    return {
        "what": "private and robust classifiers: accuracy under attack, certificates, privacy",
        **told,
        "protocol": protocol.to_json(),
        "attack_size": attack_size,
        "epsilon": epsilon,
        "rows": rows,
        "tests": tests_of(rows, attack_size),
    }


def leaked(folder: Path, ledger: Ledger, data: str) -> dict[str, Any]:
    """What all cells leak together that were ever begun on these records in this folder."""
    ours = [r for r in every_record(folder) if r["asked"]["data"] == data]
    done = {r["cell"]: r["privacy"] for r in ours if "privacy" in r}
    runs = ledger.account(data).runs
    return together(done, sum(run.status == "open" for run in runs))


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, table.md, the plots and index.html."""
    write_study(folder, TITLE, results, all_tables(results), all_plots(results))


def write_study(
    folder: Path,
    title: str,
    results: Mapping[str, Any],
    tables: Sequence[Table],
    plots: Mapping[str, tuple[bytes, str]],
    wide: Collection[str] = (),
) -> None:
    """The same for the tables and plots that are given; `wide`: see `study_page`."""
    write_json(folder / "results.json", results)
    write_atomically(folder / "table.md", _markdown(title, results, tables).encode())
    for name, (svg, _) in plots.items():
        write_atomically(folder / f"{name}.svg", svg)
    page = study_page(title, results, tables, plots, wide)
    write_atomically(folder / "index.html", page.encode())


def _markdown(title: str, results: Mapping[str, Any], tables: Sequence[Table]) -> str:
    parts = [f"# {title} on {results['data']}\n"]
    parts += [f"{results['together']['note']}\n", *(table.markdown() for table in tables)]
    for name, gaps in gaps_of(results["rows"]).items():
        missing = "\n".join(f"- {gap}" for gap in gaps)
        parts.append(f"## What is missing: {name}\n\n{missing}\n")
    return "\n".join(parts)
