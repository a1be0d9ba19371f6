"""The results as plots: curves over tasks, and accuracy against epsilon. Looks are the studies'."""

from collections.abc import Mapping, Sequence
from typing import Any

from privet.reports.drawing import Drawing, drawing
from privet.studies.lifelong.results import rows_of_stream, streams_in
from privet.studies.robust_private.plots import (
    SIZE,
    against_epsilon,
    draw_line,
    finish,
    look_of,
    rows_at,
)

Row = Mapping[str, Any]


def all_plots(results: Mapping[str, Any]) -> dict[str, tuple[bytes, str]]:
    """SVG files by name, each with what it shows."""
    found = {}
    for stream in streams_in(results["rows"]):
        rows, epsilon = rows_of_stream(results["rows"], stream), results["epsilon"]
        name = stream.replace("/", "-").replace(":", "-")
        at = f"{stream}, at epsilon {epsilon:g}"
        found[f"accuracy-{name}"] = (
            over_tasks(rows, epsilon, "curve", "average accuracy"),
            f"Average accuracy after every task, {at}.",
        )
        found[f"forgetting-{name}"] = (
            over_tasks(rows, epsilon, "forgetting_curve", "average forgetting"),
            f"Average forgetting after every task, {at}.",
        )
        if len({row["epsilon"] for row in rows} - {None}) > 1:
            found[f"epsilon-{name}"] = (
                against_epsilon(rows, lambda row: row["accuracy"], "average accuracy, last"),
                f"Average accuracy after the last task, by epsilon, {stream}.",
            )
    return found


def over_tasks(rows: Sequence[Row], epsilon: float, which: str, said: str) -> bytes:
    """A curve for each contender; one figure for all tasks is a level line."""
    with drawing(*SIZE) as sheet:
        most = max(row["tasks"] for row in rows)
        for row in rows_at(rows, epsilon):
            look = look_of(row["name"], rows, [row])
            if row["tasks"] == most:
                draw_line(sheet, list(range(1, most + 1)), row[which], look)
            elif which == "curve":
                sheet.axes.axhline(row[which][-1]["mean"], **look | {"marker": ""})
        _axes(sheet, most, said, share=which == "curve")
    return sheet.svg


def _axes(sheet: Drawing, most: int, said: str, *, share: bool) -> None:
    sheet.axes.set(xlabel="tasks learned", ylabel=said, xlim=(0.5, most + 0.5))
    sheet.axes.set_xticks(range(1, most + 1, 1 if most <= 10 else 2))
    if share:
        sheet.axes.set_ylim(0, 1.02)
    finish(sheet)
