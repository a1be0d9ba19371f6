"""What is shown: votes of each mode, and the pace at equal n."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from privet.reports.drawing import COLOUR, drawing


def tables(record: Mapping[str, Any]) -> Group:
    """For people."""
    votes = Table(title=f"votes, {record['images']} images, n = {record['n']:,}")
    for head in ("mode", "up to", "times fewer", "certified", "reference", "lost"):
        votes.add_column(head, justify="left" if head == "mode" else "right")
    for row in record["modes"]:
        votes.add_row(
            row["mode"],
            f"{row['radius_in_sigma']:g} sigma",
            f"{row['times_fewer']:.1f}",
            f"{100 * row['certified_accuracy']:.2f} %",
            f"{100 * row['reference_accuracy']:.2f} %",
            f"{row['points_lost']:.2f} points",
        )
    pace = Table(title="images in a minute, every image with n votes")
    for head in ("", "images / min", "Privet is faster by"):
        pace.add_column(head, justify="right" if head else "left")
    for row in record["pace"]:
        pace.add_row(
            row["contestant"],
            f"{row['images_per_minute']:.4g}",
            f"{row['privet_times_faster']:.1f}",
        )
    return Group(votes, Text(), pace)


def plot(record: Mapping[str, Any]) -> bytes:
    """How many times fewer votes, by radius."""
    with drawing() as sheet:
        for mode, role, mark in (("decision", "proved", "o"), ("curve", "accent", "s")):
            rows = [row for row in record["modes"] if row["mode"] == mode]
            radii = [row["radius_in_sigma"] for row in rows]
            fewer = [row["times_fewer"] for row in rows]
            sheet.axes.plot(radii, fewer, color=COLOUR[role], marker=mark, label=mode)
        sheet.axes.set(
            xlabel="radius, in sigma", ylabel=f"times fewer votes than {record['n']:,}",
            yscale="log", xlim=(0, None),
        )  # fmt: skip
        sheet.axes.legend(frameon=False)
    return sheet.svg
