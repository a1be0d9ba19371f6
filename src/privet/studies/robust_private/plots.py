"""The results as plots. A line for each method, its seeds' range as bars.

Filled marks and full lines are proved, hollow marks and dashes claimed; a dotted line has no
epsilon. Marks differ as well as colours, so nothing depends on telling colours apart.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from matplotlib.ticker import PercentFormatter

from privet.reports.drawing import COLOUR, Drawing, drawing
from privet.studies.robust_private.protocol import PAPERS_SCALE, on_both_scales
from privet.studies.robust_private.results import WORST, under

_ROLES: Final = ("accent", "contradicted", "proved", "claimed", "audited", "withheld")
_MARKS: Final = "osD^vPX<>"
SIZE: Final = (5.2, 3.6)  # inches, without the legend
_LEGEND_LINE: Final = 0.18
_LINES: Final = {"proved": "-", "claimed": "--", "public": "-.", "none": ":"}

Row = Mapping[str, Any]


def all_plots(results: Mapping[str, Any]) -> dict[str, tuple[bytes, str]]:
    """SVG files by name, each with what it shows."""
    rows, size, epsilon = results["rows"], results["attack_size"], results["epsilon"]
    at = on_both_scales(size)
    found = {
        "accuracy_by_epsilon": (
            by_epsilon(rows, size),
            f"Accuracy under the worst of all attacks of l-infinity size {at}, by epsilon.",
        ),
        "accuracy_by_size": (
            by_size(rows, epsilon),
            f"Accuracy under the worst of all attacks, by size, at epsilon {epsilon:g}.",
        ),
        "certified_by_radius": (
            by_radius(rows, epsilon),
            f"Certified accuracy by l2 radius, at epsilon {epsilon:g}; Gaussian smoothing.",
        ),
    }
    for attack in rows[0]["attacks"]:
        if attack != WORST:
            found[f"accuracy_by_epsilon_{attack}"] = (
                by_epsilon(rows, size, attack),
                f"Accuracy under {attack} of l-infinity size {at}, by epsilon.",
            )
    if any(row["published"] for row in rows):
        found["published_certificates"] = (
            published(rows, epsilon),
            f"What papers certify by their own rules at epsilon {epsilon:g}, and what is correct.",
        )
    return found


def by_epsilon(rows: Sequence[Row], size: float, attack: str = WORST) -> bytes:
    """Accuracy under attacks of one size, against epsilon."""
    return against_epsilon(rows, lambda row: under(row, attack, size), f"accuracy, {attack}")


def against_epsilon(
    rows: Sequence[Row],
    measure: Callable[[Row], Mapping[str, Any]],
    said: str,
    only: Collection[str] | None = None,
    *,
    shares: bool = True,
) -> bytes:
    """A measure of rows against epsilon; of those methods `only`, if given; shares as percents."""
    budgets = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    with drawing(*SIZE) as sheet:
        for name, group in by_name(rows).items():
            if only is not None and name not in only:
                continue
            look = look_of(name, rows, group)
            found = [measure(row) for row in group]
            if group[0]["epsilon"] is not None:
                draw_line(sheet, [row["epsilon"] for row in group], found, look)
            elif len(budgets) > 1:
                draw_line(sheet, [budgets[0], budgets[-1]], found * 2, look)
            else:
                sheet.axes.axhline(found[0]["mean"], **look | {"marker": ""})
        sheet.axes.set(xlabel="ε, asked for", ylabel=said)
        if shares:
            sheet.axes.set_ylim(0, 1.02)
        if budgets:
            sheet.axes.set_xscale("log")
            sheet.axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
            sheet.axes.set_xticks([], minor=True)
        finish(sheet, shares=shares)
    return sheet.svg


def by_size(rows: Sequence[Row], epsilon: float) -> bytes:
    """The worst case against the size of attacks; both scales."""
    with drawing(*SIZE) as sheet:
        for row in rows_at(rows, epsilon):
            found = [row["clean"], *row["attacks"][WORST]]
            draw_line(sheet, [0.0, *row["sizes"]], found, look_of(row["name"], rows, [row]))
        sheet.axes.set(
            xlabel="l-infinity size, inputs in [0, 1]", ylabel=f"accuracy, {WORST}",
            xlim=(0, None), ylim=(0, 1.02),
        )  # fmt: skip
        papers = sheet.axes.secondary_xaxis("top", functions=(_to_papers, _from_papers))
        papers.set_xlabel("the same on [-1, 1]")
        finish(sheet)
    return sheet.svg


def by_radius(rows: Sequence[Row], epsilon: float, only: Collection[str] | None = None) -> bytes:
    """Certified accuracy against the radius: curves, bands for seeds, marks where it was asked."""
    with drawing(*SIZE) as sheet:
        for row in rows_at(rows, epsilon, only):
            look, curve = look_of(row["name"], rows, [row]), row["certified_curve"]
            if row["not_certified"]:
                look |= {"label": f"{look['label']}: not certified"}
            radii, low, high, mean = (
                [point[which] for point in curve] for which in ("radius", "low", "high", "mean")
            )
            sheet.axes.fill_between(radii, low, high, color=look["color"], alpha=0.15, linewidth=0)
            sheet.axes.plot(radii, mean, **look | {"marker": "", "label": None})
            asked = [point["radius"] for point in row["certified"]]
            draw_line(sheet, asked, row["certified"], look | {"linestyle": "none"})
        sheet.axes.set(
            xlabel="l2 radius", ylabel="certified accuracy", xlim=(0, None), ylim=(0, 1.02)
        )
        finish(sheet)
    return sheet.svg


def published(rows: Sequence[Row], epsilon: float) -> bytes:
    """The certified curves of papers, as claimed and as they are."""
    with drawing(*SIZE) as sheet:
        for row in rows_at(rows, epsilon):
            for rule, line in (("claimed", "--"), ("correct", "-")):
                if row["published"]:
                    look = look_of(row["name"], rows, [row]) | {
                        "linestyle": line,
                        "label": f"{row['name']}, {rule}",
                        "markerfacecolor": "none" if rule == "claimed" else None,
                    }
                    draw_line(sheet, row["published"]["sizes"], row["published"][rule], look)
        sheet.axes.set(
            xlabel="l-infinity size, inputs in [0, 1]", ylabel="certified accuracy",
            xlim=(0, None), ylim=(0, 1.02),
        )  # fmt: skip
        finish(sheet)
    return sheet.svg


def _to_papers(size: Any) -> Any:
    return PAPERS_SCALE * size


def _from_papers(size: Any) -> Any:
    return size / PAPERS_SCALE


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each method, by epsilon."""
    names = dict.fromkeys(row["name"] for row in rows)
    return {
        name: sorted((r for r in rows if r["name"] == name), key=lambda r: r["epsilon"] or 0.0)
        for name in names
    }


def rows_at(rows: Sequence[Row], epsilon: float, only: Collection[str] | None = None) -> list[Row]:
    """Those at this budget, and those without any; of those methods `only`, if given."""
    found = [row for row in rows if row["epsilon"] in (epsilon, None)]
    return [row for row in found if only is None or row["name"] in only]


def look_of(name: str, rows: Sequence[Row], group: Sequence[Row]) -> dict[str, Any]:
    """The same for a method in every plot; its basis decides on line and mark."""
    place = list(by_name(rows)).index(name)
    bases = {row["basis"] for row in group}
    basis = bases.pop() if len(bases) == 1 else "none"
    said = {"none": "no ε", "public": "public, ε 0"}.get(basis, basis)
    return {
        "label": f"{name} ({said})",
        "color": COLOUR[_ROLES[place % len(_ROLES)]],
        "marker": _MARKS[place % len(_MARKS)],
        "markersize": 4.5,
        "markerfacecolor": None if basis in ("proved", "public") else "none",
        "linestyle": _LINES[basis],
    }


def draw_line(
    sheet: Drawing, x: Sequence[float], found: Sequence[Mapping[str, Any]], look: dict[str, Any]
) -> None:
    """Means, and the range over seeds as bars."""
    means = [one["mean"] for one in found]
    below = [one["mean"] - one["low"] for one in found]
    above = [one["high"] - one["mean"] for one in found]
    bars = [[max(0.0, value) for value in side] for side in (below, above)]
    sheet.axes.errorbar(x, means, yerr=bars, capsize=2, elinewidth=0.9, **look)


def finish(sheet: Drawing, *, shares: bool = True) -> None:
    """Shares as percents, and the legend below."""
    if shares:
        sheet.axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    lines = math.ceil(len(sheet.axes.get_legend_handles_labels()[1]) / 2)
    sheet.figure.set_figheight(sheet.figure.get_figheight() + _LEGEND_LINE * lines)
    sheet.figure.legend(loc="outside lower center", ncols=2, frameon=False)
