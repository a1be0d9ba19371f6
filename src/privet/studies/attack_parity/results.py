"""What is shown and kept: a table, a plot, ratios."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from privet.reports.drawing import COLOUR, drawing

WITHIN: Final = 0.01  # of accuracy: the margin in which attacks count as equally strong
_FIGURES: Final = (
    "mean_norm",
    "median_s",
    "images_per_s",
    "times_faster_than_fastest_peer",
    "times_faster_than_fastest_as_strong",
)
# Colour and mark: nothing depends on telling colours apart.
_MARKS: Final = {
    "torchattacks": ("claimed", "^"),
    "foolbox": ("contradicted", "v"),
    "art": ("audited", "s"),
}


def with_ratios(rows: Sequence[dict[str, Any]], ours: str) -> list[dict[str, Any]]:
    """Each cell beside the fastest peer, the fastest that is as strong, and Privet's accuracy."""
    told = []
    for _, group in groupby(rows, key=_contest_of):
        members = list(group)
        accuracy = next(r["robust_accuracy"] for r in members if r["contestant"] == ours)
        peers = [r for r in members if r["contestant"] != ours and r["median_s"]]
        strong = [r for r in peers if r["robust_accuracy"] <= accuracy + WITHIN]
        for row in members:
            theirs = row["robust_accuracy"]
            told.append(
                {
                    **row,
                    "times_faster_than_fastest_peer": _faster(row, peers),
                    "times_faster_than_fastest_as_strong": _faster(row, strong),
                    "times_less_cpu_than_least": _faster(row, peers, "median_cpu_s"),
                    "privet_above_by": None if theirs is None else accuracy - theirs,
                }
            )
    return told


def _faster(
    row: dict[str, Any], others: Sequence[dict[str, Any]], clock: str = "median_s"
) -> float | None:
    best = min((other[clock] for other in others), default=None)
    return best / row[clock] if best and row[clock] else None


def _contest_of(row: dict[str, Any]) -> tuple[str, str]:
    return row["attack"], row["norm"]


def lost(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Peers that are stronger by more than `WITHIN`."""
    return [
        f"{row['contestant']}'s {row['attack']} ({row['norm']}) is stronger by "
        f"{100 * row['privet_above_by']:.1f} points"
        for row in rows
        if (row["privet_above_by"] or 0.0) > WITHIN + 1e-9
    ]


def parity_table(rows: Sequence[dict[str, Any]], ours: str) -> Group:
    """For people: a small table for each attack and norm; a reason where there is no figure."""
    parts: list[RenderableType] = []
    for (attack, norm), group in groupby(rows, key=_contest_of):
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        heads = (
            "",
            "accuracy",
            "mean norm",
            "seconds",
            "images/s",
            "fastest\n/ it",
            "as strong\n/ it",
        )
        for i, head in enumerate(heads):
            table.add_column(head, no_wrap=True, justify="right" if i else "left", min_width=5)
        table.add_column("note", overflow="fold")
        members = list(group)
        for row in members:
            table.add_row(*_shown(row), style="bold" if row["contestant"] == ours else None)
        parts += [
            Text(f"{attack}, {norm} {members[0]['size']:g}", style="underline"),
            table,
            Text(),
        ]
    return Group(*parts)


def _shown(row: dict[str, Any]) -> list[str]:
    accuracy, outside = row["robust_accuracy"], row["outside"]
    notes = [row["why"], f"{outside} inputs outside of ball or box" if outside else ""]
    return [
        row["contestant"],
        "-" if accuracy is None else f"{100 * accuracy:.1f} %",
        *("-" if row[name] is None else f"{row[name]:.3g}" for name in _FIGURES),
        "; ".join(note for note in notes if note),
    ]


def parity_plot(rows: Sequence[dict[str, Any]], ours: str) -> bytes:
    """Each peer's attack: how many times slower than Privet's, and how much weaker."""
    mine = {_contest_of(r): r["median_s"] for r in rows if r["contestant"] == ours}
    with drawing(7.0, 4.2) as sheet:
        axes = sheet.axes
        for name, (role, mark) in _MARKS.items():
            met = [
                (r["median_s"] / mine[_contest_of(r)], -100 * r["privet_above_by"], r)
                for r in rows
                if r["contestant"] == name and r["median_s"] and r["privet_above_by"] is not None
            ]
            if met:
                axes.scatter(
                    [x for x, _, _ in met], [y for _, y, _ in met],
                    label=name, color=COLOUR[role], marker=mark, s=22,
                )  # fmt: skip
            for x, y, r in met:
                axes.annotate(
                    f"{r['attack']} {r['norm']}", (x, y), (4, 3), "data",
                    textcoords="offset points", fontsize=6, color=COLOUR["muted"],
                )  # fmt: skip
        axes.axvline(1, color=COLOUR["accent"], linewidth=1)
        axes.axhline(0, color=COLOUR["accent"], linewidth=1)
        axes.set(
            xscale="log",
            xlabel="times as long as Privet",
            ylabel="accuracy left, points above Privet's",
        )
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        if axes.get_legend_handles_labels()[0]:
            sheet.figure.legend(loc="outside right upper", frameon=False)
    return sheet.svg
