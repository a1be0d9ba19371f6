"""The results of the study onto disk: figures, tables, plots and the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from privet.files import write_atomically
from privet.studies.robust_private.protocol import Protocol
from privet.studies.robust_private.writing import write_study
from privet.studies.transdenoiser.plots import all_plots
from privet.studies.transdenoiser.results import gains_of, study_rows, tests_of
from privet.studies.transdenoiser.tables import all_tables, as_csv

TITLE: Final = "A private denoiser before a fixed classifier"


def results_of(
    records: Sequence[Mapping[str, Any]],
    *,
    protocol: Protocol,
    attack_norm: float,
    epsilon: float,
    radius: float,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is shown; `told` are facts about the study as a whole."""
    rows = study_rows(records)
    return {
        "what": "denoisers before a fixed classifier: certificates, attacks, privacy",
        **told,
        "protocol": protocol.to_json(),
        "attack_norm": attack_norm,
        "epsilon": epsilon,
        "radius": radius,
        "rows": rows,
        "gains": gains_of(rows, radius),
        "tests": tests_of(rows, radius),
    }


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    """results.json, table.md, figures.csv, the plots and index.html."""
    write_study(folder, TITLE, results, all_tables(results), all_plots(results))
    write_atomically(folder / "figures.csv", as_csv(results["rows"]).encode())
