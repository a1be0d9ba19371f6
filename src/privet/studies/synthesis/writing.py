"""The results of the study onto disk: figures, tables, plots and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from privet.files import write_atomically
from privet.studies.robust_private.writing import write_study
from privet.studies.synthesis.claims import checked, rankings
from privet.studies.synthesis.contest import contest
from privet.studies.synthesis.measuring import Laboratory
from privet.studies.synthesis.plots import WIDE, all_plots
from privet.studies.synthesis.results import failures, study_rows, yardstick_row
from privet.studies.synthesis.tables import all_tables, as_csv

TITLE: Final = "Synthetic health records"


def results_of(
    records: Sequence[Mapping[str, Any]],
    *,
    laboratory: Laboratory,
    yardstick: Mapping[str, Any],
    epsilon: float,
    left_out: Mapping[str, str],
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is shown; `told` are facts about the study as a whole."""
    studied, rows, real = laboratory.studied, study_rows(records), yardstick_row(yardstick)
    return {
        "what": "synthetic health records: fidelity to held-out patients, and privacy",
        **told,
        "records": {
            **studied.facts,
            "train": len(studied.train),
            "test": len(studied.test),
        },
        "protocol": laboratory.protocol,
        "epsilon": epsilon,
        "label": studied.shown.label,
        "shown": asdict(studied.shown),
        "time_unit": studied.train.schema.time_unit,
        "rows": rows,
        "yardstick": real,
        "contest": contest(rows, epsilon),
        "claims": checked(rows, real, epsilon, studied.shown),
        "rankings": rankings(rows, epsilon),
        "failed": failures(records),
        "left_out": dict(left_out),
    }


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, table.md, figures.csv, the plots and index.html."""
    plots = all_plots(results, folder)
    write_study(folder, TITLE, results, all_tables(results), plots, wide=WIDE)
    write_atomically(folder / "figures.csv", as_csv(results).encode())
