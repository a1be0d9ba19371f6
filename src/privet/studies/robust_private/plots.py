"""The results as plots. A line for each method, its seeds' range as bars.

Filled marks and full lines are proved, hollow marks and dashes claimed; a dotted line has no
epsilon. Marks differ as well as colours, so nothing depends on telling colours apart.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.ticker import PercentFormatter

from privet.reports.drawing import COLOUR, Drawing, drawing
from privet.studies.robust_private.protocol import PAPERS_SCALE, on_both_scales
from privet.studies.robust_private.results import WORST, under

_ROLES: Final = ("accent", "contradicted", "proved", "claimed", "audited", "withheld")
_MARKS: Final = "osD^vPX<>"
_SIZE: Final = (5.2, 3.6)  # inches, without the legend
_LEGEND_LINE: Final = 0.18
_LINES: Final = {"proved": "-", "claimed": "--", "none": ":"}

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
    budgets = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    with drawing(*_SIZE) as sheet:
        for name, group in _by_name(rows).items():
            look = _look(name, rows, group)
            found = [under(row, attack, size) for row in group]
            if group[0]["epsilon"] is not None:
                _line(sheet, [row["epsilon"] for row in group], found, look)
            elif len(budgets) > 1:
                _line(sheet, [budgets[0], budgets[-1]], found * 2, look)
            else:
                sheet.axes.axhline(found[0]["mean"], **look | {"marker": ""})
        sheet.axes.set(xlabel="ε, asked for", ylabel=f"accuracy, {attack}", ylim=(0, 1.02))
        if budgets:
            sheet.axes.set_xscale("log")
            sheet.axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
            sheet.axes.set_xticks([], minor=True)
        _finish(sheet)
    return sheet.svg


def by_size(rows: Sequence[Row], epsilon: float) -> bytes:
    """The worst case against the size of attacks; both scales."""
    with drawing(*_SIZE) as sheet:
        for row in _at(rows, epsilon):
            found = [row["clean"], *row["attacks"][WORST]]
            _line(sheet, [0.0, *row["sizes"]], found, _look(row["name"], rows, [row]))
        sheet.axes.set(
            xlabel="l-infinity size, inputs in [0, 1]", ylabel=f"accuracy, {WORST}",
            xlim=(0, None), ylim=(0, 1.02),
        )  # fmt: skip
        papers = sheet.axes.secondary_xaxis("top", functions=(_to_papers, _from_papers))
        papers.set_xlabel("the same on [-1, 1]")
        _finish(sheet)
    return sheet.svg


def by_radius(rows: Sequence[Row], epsilon: float) -> bytes:
    """Certified accuracy against the radius: curves, bands for seeds, marks where it was asked."""
    with drawing(*_SIZE) as sheet:
        for row in _at(rows, epsilon):
            look, curve = _look(row["name"], rows, [row]), row["certified_curve"]
            if row["not_certified"]:
                look |= {"label": f"{look['label']}: not certified"}
            radii, low, high, mean = (
                [point[which] for point in curve] for which in ("radius", "low", "high", "mean")
            )
            sheet.axes.fill_between(radii, low, high, color=look["color"], alpha=0.15, linewidth=0)
            sheet.axes.plot(radii, mean, **look | {"marker": "", "label": None})
            asked = [point["radius"] for point in row["certified"]]
            _line(sheet, asked, row["certified"], look | {"linestyle": "none"})
        sheet.axes.set(
            xlabel="l2 radius", ylabel="certified accuracy", xlim=(0, None), ylim=(0, 1.02)
        )
        _finish(sheet)
    return sheet.svg


def published(rows: Sequence[Row], epsilon: float) -> bytes:
    """The certified curves of papers, as claimed and as they are."""
    with drawing(*_SIZE) as sheet:
        for row in _at(rows, epsilon):
            for rule, line in (("claimed", "--"), ("correct", "-")):
                if row["published"]:
                    look = _look(row["name"], rows, [row]) | {
                        "linestyle": line,
                        "label": f"{row['name']}, {rule}",
                        "markerfacecolor": "none" if rule == "claimed" else None,
                    }
                    _line(sheet, row["published"]["sizes"], row["published"][rule], look)
        sheet.axes.set(
            xlabel="l-infinity size, inputs in [0, 1]", ylabel="certified accuracy",
            xlim=(0, None), ylim=(0, 1.02),
        )  # fmt: skip
        _finish(sheet)
    return sheet.svg


def _to_papers(size: Any) -> Any:
    return PAPERS_SCALE * size


def _from_papers(size: Any) -> Any:
    return size / PAPERS_SCALE


def _by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row["name"] for row in rows)
    return {
        name: sorted((r for r in rows if r["name"] == name), key=lambda r: r["epsilon"] or 0.0)
        for name in names
    }


def _at(rows: Sequence[Row], epsilon: float) -> list[Row]:
    """Those at this budget, and those without any."""
    return [row for row in rows if row["epsilon"] in (epsilon, None)]


def _look(name: str, rows: Sequence[Row], group: Sequence[Row]) -> dict[str, Any]:
    """The same for a method in every plot; its basis decides on line and mark."""
    place = list(_by_name(rows)).index(name)
    bases = {row["basis"] for row in group}
    basis = bases.pop() if len(bases) == 1 else "none"
    said = basis if basis != "none" else "no ε"
    return {
        "label": f"{name} ({said})",
        "color": COLOUR[_ROLES[place % len(_ROLES)]],
        "marker": _MARKS[place % len(_MARKS)],
        "markersize": 4.5,
        "markerfacecolor": None if basis == "proved" else "none",
        "linestyle": _LINES[basis],
    }


def _line(
    sheet: Drawing, x: Sequence[float], found: Sequence[Mapping[str, Any]], look: dict[str, Any]
) -> None:
    means = [one["mean"] for one in found]
    below = [one["mean"] - one["low"] for one in found]
    above = [one["high"] - one["mean"] for one in found]
    bars = [[max(0.0, value) for value in side] for side in (below, above)]
    sheet.axes.errorbar(x, means, yerr=bars, capsize=2, elinewidth=0.9, **look)


def _finish(sheet: Drawing) -> None:
    sheet.axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    lines = math.ceil(len(sheet.axes.get_legend_handles_labels()[1]) / 2)
    sheet.figure.set_figheight(sheet.figure.get_figheight() + _LEGEND_LINE * lines)
    sheet.figure.legend(loc="outside lower center", ncols=2, frameon=False)
