"""The results of the study onto disk: figures, tables, plots and the page."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from privet.files import write_atomically
from privet.ledger import Ledger
from privet.studies.lifelong.plots import all_plots
from privet.studies.lifelong.results import study_rows, tests_of
from privet.studies.lifelong.streams import Wanted
from privet.studies.lifelong.tables import all_tables
from privet.studies.robust_private.public import together
from privet.studies.robust_private.study import every_record
from privet.studies.robust_private.writing import write_study

TITLE: Final = "Tasks one after another"
CSV_HEAD: Final = ("stream", "contender", "epsilon", "basis", "seed", "after", "measure", "value")


def results_of(
    records: Sequence[Mapping[str, Any]],
    *,
    streams: Sequence[Wanted],
    epsilon: float,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is shown; `told` are facts about the study as a whole."""
    rows = study_rows(records)
    return {
        "what": "tasks one after another: accuracy, forgetting, privacy of a unit's lifetime",
        **told,
        "protocol": {one.label: one.asked() for one in streams},
        "machine": records[0]["training"]["machine"],
        "settings": {record["cell"]: record["asked"]["settings"] for record in records},
        "epsilon": epsilon,
        "rows": rows,
        "tests": tests_of(rows),
    }


def leaked(folder: Path, ledger: Ledger, streams: Sequence[Wanted]) -> dict[str, Any]:
    """What all cells leak together that were ever begun on these streams in this folder."""
    labels = {one.label for one in streams}
    ours = [r for r in every_record(folder) if r["asked"]["data"] in labels]
    done = {r["cell"]: r["privacy"] for r in ours if "privacy" in r}
    runs = [run for name in ledger.names() for run in ledger.account(name).runs]
    # Tasks of shared streams know each other's runs: each counts once.
    return together(done, len({run.id for run in runs if run.status == "open"}))


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, table.md, figures.csv, the plots and index.html."""
    write_study(folder, TITLE, results, all_tables(results), all_plots(results))
    write_atomically(folder / "figures.csv", as_csv(results["rows"]).encode())


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every point of every curve of every seed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for row in rows:
        for measure, curve in (("accuracy", "curve"), ("forgetting", "forgetting_curve")):
            for after, point in enumerate(row[curve], start=1):
                for seed, value in zip(row["seeds"], point["values"], strict=True):
                    budget = "" if row["epsilon"] is None else row["epsilon"]
                    who = (row["stream"], row["name"], budget, row["basis"])
                    writer.writerow([*who, seed, after, measure, f"{value:.6f}"])
    return buffer.getvalue()
