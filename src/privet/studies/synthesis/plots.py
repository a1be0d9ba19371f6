"""The results as plots. Real records are blue, synthetic ones amber; the yardstick is dashed.

Grids have a column for each contender and a row for each analysis: without privacy above, with a
proof below it, as published last. Their panels are of the first seed at one budget.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from privet.reports.drawing import COLOUR, Panels, panels
from privet.studies.robust_private.plots import against_epsilon
from privet.studies.robust_private.study import CELLS
from privet.studies.synthesis.contenders import (
    BASELINES,
    CONTENDERS,
    HERO,
    LADDER,
    NONE,
    PAPER,
    REFERENCE,
    SINGLE,
    SOUND,
)
from privet.studies.synthesis.fidelity import SEVEN, Fidelity
from privet.studies.synthesis.measuring import KEPT, STAGE
from privet.studies.synthesis.results import Found, rows_under
from privet.synthesis.evaluation.marks import MADE, REAL, YARDSTICK

ROWS: Final = {NONE: "no privacy", SOUND: "proved", PAPER: "claimed"}
BY_COLUMN: Final = {
    "kl": "KL(real ‖ synthetic), nats",
    "distance": "cluster distance",
    "cosine": "cluster cosine",
}
PANEL: Final = (1.25, 1.2)  # inches
LEGEND: Final = 0.35
LEAST_ACROSS: Final = 3  # panels: narrower, the legend would not fit
BINS: Final = 30
BEYOND: Final = 1.3  # of the 99th percentile of real stays: what is more stands in the last bin
LOG_FROM: Final = 50.0  # times from the least to the largest: then the axis is logarithmic
ACROSS: Final = 4  # panels of the seven in a row
COLUMNS_ACROSS: Final = 5  # of single columns
LEAST_KL: Final = 1e-4  # where its axis begins
GROUPS: Final = {
    "igamt": (MADE, (HERO,)),
    "igamt without some parts": ("#c9a36b", (*LADDER, *SINGLE)),
    "baselines": (REAL, BASELINES),
    "reference": (YARDSTICK, (REFERENCE,)),
}
"""Colours of bars, and whose."""
WIDE: Final = (
    "pca",
    "missing",
    "gaps",
    *(
        f"{what}_{analysis}"
        for what in ("trajectories", "seven", *(f"{name}_by_column" for name in BY_COLUMN))
        for analysis in ROWS
    ),
)

Row = Mapping[str, Any]
Kept = Mapping[str, Any]
"""What a cell left for plots (`measuring`)."""
Draw = Callable[[Axes, Kept], None]


def all_plots(results: Mapping[str, Any], folder: Path) -> dict[str, tuple[bytes, str]]:
    """SVG files by name, each with what it shows."""
    rows, epsilon = results["rows"], results["epsilon"]
    grid = {a: rows_under(rows, a, epsilon) for a in ROWS}
    grid = {analysis: group for analysis, group in grid.items() if group}
    if not grid:
        return {}
    kept = {row["name"]: _kept(folder, row) for group in grid.values() for row in group}
    found = {
        "seven_" + a: (seven(group, results["yardstick"]), _seven_said(a, epsilon))
        for a, group in grid.items()
    }
    found["pca"] = (planes(grid, kept), _pca_said(epsilon))
    found["missing"] = (
        histograms(grid, kept, "empty", "empty cells of a stay, mean over columns"),
        f"Empty cells of a stay, averaged over columns, {_of_stays(epsilon)}",
    )
    found["gaps"] = (
        histograms(grid, kept, "gap", f"mean time between rows, {results['time_unit']}"),
        f"Time between rows, averaged over a stay, {_of_stays(epsilon)}",
    )
    columns = results["protocol"]["trajectories"]
    for analysis, group in grid.items():
        found[f"trajectories_{analysis}"] = (
            trajectories(group, kept, columns),
            f"Means by row of a stay, {ROWS[analysis]}, ε {epsilon:g}: real and synthetic.",
        )
        for what, said in BY_COLUMN.items():
            found[f"{what}_by_column_{analysis}"] = (
                by_column(group, results["yardstick"], what),
                f"{said} of each column, {ROWS[analysis]}, ε {epsilon:g}.",
            )
    return found | _sweeps(results)


def seven(rows: Sequence[Row], yardstick: Row) -> bytes:
    """The seven measures, a panel each, a bar for each contender."""
    titles = {_headed(one): one for one in SEVEN}
    figures = {title: {row["name"]: one.of(row) for row in rows} for title, one in titles.items()}
    real = {title: one.of(yardstick) for title, one in titles.items()}
    return _bars(figures, real)


def by_column(rows: Sequence[Row], yardstick: Row, what: str) -> bytes:
    """One figure, a panel for each column, a bar for each contender."""
    columns = list(yardstick["columns"][what])
    figures = {c: {row["name"]: row["columns"][what].get(c) for row in rows} for c in columns}
    scale = LEAST_KL if what == "kl" else None
    return _bars(figures, yardstick["columns"][what], across=COLUMNS_ACROSS, log_from=scale)


def planes(grid: Mapping[str, Sequence[Row]], kept: Mapping[str, Kept]) -> bytes:
    """Real and synthetic stays in the principal plane of real ones; the same axes for all."""
    real = np.concatenate([one["real_plane"] for one in kept.values()])
    low, high = real.min(axis=0), real.max(axis=0)
    margin = 0.2 * (high - low)
    edges = low - margin, high + margin

    def draw(axes: Axes, one: Kept) -> None:
        for which, colour in (("real", REAL), ("other", MADE)):
            x, y = one[f"{which}_plane"].T
            axes.scatter(x, y, s=3, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        axes.set(xlim=(edges[0][0], edges[1][0]), ylim=(edges[0][1], edges[1][1]))
        axes.set(xticks=[], yticks=[])
        out = ((one["other_plane"] < edges[0]) | (one["other_plane"] > edges[1])).any(axis=1)
        if out.any():
            _note(axes, f"{100 * out.mean():.0f} % outside")

    return _grid(grid, kept, draw, "first principal axis of real stays")


def histograms(
    grid: Mapping[str, Sequence[Row]], kept: Mapping[str, Kept], what: str, label: str
) -> bytes:
    """Histograms of a number of each stay; the same edges for all, the rest in the last bin."""
    real = np.concatenate([one[f"real_{what}"] for one in kept.values()])
    top = max(BEYOND * float(np.quantile(real, 0.99)), 1e-6)
    edges = np.linspace(0.0, top, BINS + 1)

    def draw(axes: Axes, one: Kept) -> None:
        shares = [_shares(one[f"{which}_{what}"], edges) for which in ("real", "other")]
        axes.stairs(shares[0], edges, color=REAL, alpha=0.3, fill=True)
        axes.stairs(shares[1], edges, color=MADE, linewidth=1.2)
        axes.set(xlim=(0, top), ylim=(0, 1.15 * max(map(max, shares))), yticks=[])
        axes.tick_params(labelsize=7)

    return _grid(grid, kept, draw, label)


def trajectories(rows: Sequence[Row], kept: Mapping[str, Kept], columns: Sequence[str]) -> bytes:
    """Means by row of a stay: a row of panels for each column, a column for each contender."""
    last = max(_last(one[f"real_mean_{c}"]) for one in kept.values() for c in columns)
    across = max(LEAST_ACROSS, len(rows))
    with panels(len(columns), across, *PANEL, LEGEND) as sheet:
        for i, column in enumerate(columns):
            for j, row in enumerate(rows):
                axes, one = sheet.axes[i][j], kept[row["name"]]
                for which, colour, dash in (("real", REAL, "-"), ("other", MADE, "--")):
                    means = one[f"{which}_mean_{column}"]
                    axes.plot(1 + np.arange(len(means)), means, dash, color=colour, linewidth=1.2)
                axes.tick_params(labelsize=6.5)
                axes.set_xlim(0.5, last + 0.5)
                if i == 0:
                    _title(axes, row["base"])
                if j == 0:
                    axes.set_ylabel(column)
            _leave_empty(sheet.axes[i][len(rows) :])
            _same_height(sheet.axes[i][: len(rows)])
        _legend(sheet, "row of the stay")
    return sheet.svg


def _grid(
    grid: Mapping[str, Sequence[Row]], kept: Mapping[str, Kept], draw: Draw, label: str
) -> bytes:
    """A panel for each contender and analysis."""
    there = {row["base"] for group in grid.values() for row in group}
    bases = [name for name, one in CONTENDERS.items() if name == one.base and name in there]
    across = max(LEAST_ACROSS, len(bases))
    with panels(len(grid), across, *PANEL, LEGEND) as sheet:
        for i, (analysis, group) in enumerate(grid.items()):
            _leave_empty(sheet.axes[i][len(bases) :])
            by_base = {row["base"]: row for row in group}
            for j, base in enumerate(bases):
                axes = sheet.axes[i][j]
                if i == 0:
                    _title(axes, base)
                if j == 0:
                    axes.set_ylabel(ROWS[analysis])
                if base in by_base:
                    draw(axes, kept[by_base[base]["name"]])
                else:
                    _absent(axes)
        _legend(sheet, label)
    return sheet.svg


def _bars(
    figures: Mapping[str, Mapping[str, Found]],
    real: Mapping[str, Found],
    *,
    across: int = ACROSS,
    log_from: float | None = None,
) -> bytes:
    """A panel for each title; bars of means, the range over seeds, the yardstick dashed.

    With `log_from` all panels have one logarithmic axis that begins there.
    """
    names = list(next(iter(figures.values())))
    most = max((one["high"] for by in figures.values() for one in by.values() if one), default=1.0)
    down = -(-len(figures) // across)
    with panels(down, across, 9.2 / across, 0.45 + 0.15 * len(names), LEGEND) as sheet:
        flat = [axes for line in sheet.axes for axes in line]
        for place, (axes, (title, found)) in enumerate(zip(flat, figures.items(), strict=False)):
            _panel_of_bars(axes, found, real.get(title), named=place % across == 0)
            axes.set_title(title, fontsize=8)
            if log_from is not None:
                axes.set(xscale="log", xlim=(log_from, max(2 * most, 10 * log_from)))
        _leave_empty(flat[len(figures) :])
        _legend_of_bars(sheet, names)
    return sheet.svg


def _legend_of_bars(sheet: Panels, names: Sequence[str]) -> None:
    bases = {name.partition(":")[0] for name in names}
    handles: list[Any] = [
        Patch(color=colour, label=said)
        for said, (colour, whose) in GROUPS.items()
        if bases & set(whose)
    ]
    handles.append(_line("--", COLOUR["ink"], "real training records in their place"))
    sheet.figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False
    )


def _panel_of_bars(axes: Axes, found: Mapping[str, Found], real: Found, *, named: bool) -> None:
    places = np.arange(len(found))[::-1]
    known = [(p, name, one) for p, (name, one) in zip(places, found.items(), strict=True) if one]
    for place, name, one in known:
        error = [[max(0.0, one["mean"] - one["low"])], [max(0.0, one["high"] - one["mean"])]]
        axes.barh(place, one["mean"], 0.7, color=_colour(name), alpha=0.85)
        axes.errorbar(
            one["mean"], place, xerr=error, fmt="none", ecolor=COLOUR["ink"], elinewidth=0.9,
            capsize=2,
        )  # fmt: skip
    for place, (_, missing) in zip(places, found.items(), strict=True):
        if missing is None:
            axes.text(0.02, place, "no figure", fontsize=6.5, va="center",
                      color=COLOUR["muted"], transform=axes.get_yaxis_transform())  # fmt: skip
    if real is not None:
        axes.axvline(real["mean"], linestyle="--", color=COLOUR["ink"], linewidth=1.0)
    _scale(axes, [one["mean"] for _, _, one in known])
    axes.set_yticks(places, list(found) if named else [""] * len(found), fontsize=7)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=False, axis="y")


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Logarithmic where bars would vanish beside others."""
    if len(values) > 1 and min(values) > 0 and max(values) > LOG_FROM * min(values):
        axes.set_xscale("log")


def _sweeps(results: Mapping[str, Any]) -> dict[str, tuple[bytes, str]]:
    """Cluster distance and cosine against epsilon; nothing where there is one budget."""
    rows, found = results["rows"], {}
    budgets = {row["epsilon"] for row in rows if row["epsilon"] is not None}
    for analysis in (SOUND, PAPER):
        group = [row for row in rows if row["analysis"] == analysis]
        for name, key in (("distance", SEVEN[0].key), ("cosine", SEVEN[1].key)):
            known = [row for row in group if row["figures"].get(key) is not None]
            if len(budgets) > 1 and known:
                drawn = [*known, results["yardstick"]]
                found[f"{name}_by_epsilon_{analysis}"] = (
                    against_epsilon(drawn, _figure(key), f"cluster {name}", shares=False),
                    f"Cluster {name} against ε, {ROWS[analysis]}.",
                )
    return found


def _figure(key: str) -> Callable[[Row], Mapping[str, Any]]:
    def found(row: Row) -> Mapping[str, Any]:
        figure: Mapping[str, Any] = row["figures"][key]
        return figure

    return found


def _kept(folder: Path, row: Row) -> dict[str, Any]:
    """Of the first seed."""
    with np.load(folder / CELLS / row["cells"][0] / f"{STAGE}.npz") as file:
        return {name: file[name] for name in file.files}


def _shares(values: Any, edges: Any) -> Any:
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return counts / max(len(values), 1)


def _leave_empty(several: Sequence[Axes]) -> None:
    for axes in several:
        axes.set_axis_off()


def _same_height(line: Sequence[Axes]) -> None:
    """One scale for a row of panels; its numbers once."""
    ends = [axes.get_ylim() for axes in line]
    for place, axes in enumerate(line):
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        if place:
            axes.set_yticklabels([])


def _legend(sheet: Panels, label: str) -> None:
    """Below all panels, under what stands on their lower axes."""
    handles = [Patch(color=REAL, label="real, held out"), Patch(color=MADE, label="synthetic")]
    sheet.figure.legend(
        handles=handles, title=label, loc="outside lower center", ncols=2, frameon=False
    )


def _line(dash: Literal["-", "--"], colour: str, said: str) -> Line2D:
    return Line2D([], [], linestyle=dash, color=colour, label=said)


def _title(axes: Axes, base: str) -> None:
    axes.set_title(base, fontsize=8.5, fontweight="bold" if base == HERO else "normal")


def _note(axes: Axes, said: str) -> None:
    axes.text(0.97, 0.03, said, fontsize=6.5, ha="right", color=COLOUR["muted"],
              transform=axes.transAxes)  # fmt: skip


def _absent(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(0.5, 0.5, "–", ha="center", va="center", transform=axes.transAxes)


def _colour(name: str) -> str:
    base = name.partition(":")[0]
    return next(colour for colour, whose in GROUPS.values() if base in whose)


def _last(means: Any) -> int:
    """The last row that has a mean."""
    return int(1 + np.flatnonzero(np.isfinite(means)).max(initial=0))


def _headed(one: Fidelity) -> str:
    unit = f", {one.unit}" if one.unit else ""
    return f"{one.name}{unit} {'↑' if one.higher else '↓'}"


def _of_stays(epsilon: float) -> str:
    return (
        f"of at most {KEPT:,} stays of either side, at ε {epsilon:g}. The last bin has all that"
        " is more."
    )


def _seven_said(analysis: str, epsilon: float) -> str:
    budget = "" if analysis == NONE else f", ε {epsilon:g}"
    return f"The seven measures: {ROWS[analysis]}{budget}. ↓ less is better, ↑ more is better."


def _pca_said(epsilon: float) -> str:
    return (
        "Stays in the principal plane of real ones, fitted on held-out records alone; rows:"
        f" {', '.join(ROWS.values())}; ε {epsilon:g}."
    )
