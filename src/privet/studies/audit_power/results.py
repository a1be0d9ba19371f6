"""What is shown: power, false alarms, and the subjects."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from privet.reports.figures import at_least


def tables(record: Mapping[str, Any]) -> Group:
    """For people."""
    return Group(_power(record), Text(), _alarms(record), Text(), _subjects(record))


def _power(record: Mapping[str, Any]) -> Table:
    table = Table(title="exact Gaussian mechanism: mean bound at 95 %", box=None)
    rows: dict[tuple[str, int], dict[float, str]] = {}
    for row in record["power"]:
        size = row.get("runs_in_each_world") or row["canaries"]
        rows.setdefault((row["estimator"], size), {})[row["epsilon"]] = (
            f"{at_least(row['found'])} ({100 * row['share']:.0f} %)"
        )
    epsilons = sorted({row["epsilon"] for row in record["power"]})
    for head in ("estimator", "runs or canaries", *(f"ε = {epsilon:g}" for epsilon in epsilons)):
        table.add_column(head, justify="left" if head == "estimator" else "right")
    for (name, size), found in rows.items():
        table.add_row(name, f"{size:,}", *(found[epsilon] for epsilon in epsilons))
    return table


def _alarms(record: Mapping[str, Any]) -> Table:
    table = Table(title="false alarms at 95 %", box=None)
    for head in ("of", "estimator", "score", "true ε", "alarms", "trials"):
        table.add_column(head)
    for row in record["false_alarms"]:
        table.add_row(
            row["of"], row["estimator"], row.get("statistic", "ideal"), f"{row['epsilon']:.3g}",
            str(row["alarms"]), str(row["trials"]),
        )  # fmt: skip
    return table


def _subjects(record: Mapping[str, Any]) -> Table:
    table = Table(title="subjects: lower bound at 99.9 %, * where it refutes the claim", box=None)
    for head in ("subject", "claimed", "runs", "told", "learned", "seconds"):
        table.add_column(head, justify="left" if head == "subject" else "right")
    for row in record["subjects"]:
        shown = [
            at_least(row[how]["epsilon"]) + ("*" if row[how]["refuted"] else " ")
            for how in ("told", "learned")
        ]
        seconds = row["told"]["seconds"] + row["learned"]["seconds"]
        table.add_row(
            row["name"], f"{row['claimed']:.3g}", f"{row['runs']:,}", *shown, f"{seconds:.1f}"
        )
    return table
