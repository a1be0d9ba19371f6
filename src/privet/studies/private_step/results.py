"""What is shown and kept: a table, a plot, a record."""

import io
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from privet.reports.drawing import COLOUR, NO_METADATA, STYLE
from privet.studies.private_step.contestants import ALWAYS, CONTESTANTS
from privet.studies.private_step.growth import COSTS, Growth, exponents
from privet.studies.private_step.parity import Agreement
from privet.studies.private_step.timing import Cell

OPACUS: Final = ("opacus-hooks", "opacus-ghost")
OTHER_OUTPUTS: Final = 1e-3  # by which another model's outputs differ at least
_FIGURES: Final = {
    "ms": "median_ms",
    "best": "best_ms",
    "x plain": "over_plain",
    "x plain\n-best": "over_plain_best",
    "Opacus\n/ it": "times_faster_than_opacus",
}
# Colour and mark: nothing depends on telling colours apart.
_LINES: Final = {
    "plain": ("muted", "o", "-"),
    "plain-best": ("ink", "s", "--"),
    "privet": ("accent", "D", "-"),
    "opacus-hooks": ("claimed", "^", "-"),
    "opacus-ghost": ("contradicted", "v", "--"),
    "vmap": ("audited", "x", ":"),
}


def with_ratios(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """The cells as JSON, each with its ratios to the others of its group; ratios of medians."""
    rows = []
    for _, group in groupby(cells, key=_task_of):
        members = list(group)
        median = {cell.contestant: cell.median for cell in members}
        best_opacus = min((m for name in OPACUS if (m := median.get(name))), default=None)
        rows += [
            {
                **cell.to_json(),
                "over_plain": _ratio(cell.median, median.get("plain")),
                "over_plain_best": _ratio(cell.median, median.get("plain-best")),
                "times_faster_than_opacus": _ratio(best_opacus, cell.median),
            }
            for cell in members
        ]
    return rows


def _task_of(cell: Cell) -> tuple[str, int]:
    return cell.model, cell.batch


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def step_table(cells: Sequence[Cell], checked: Iterable[Agreement] = ()) -> Group:
    """For people: a small table for each model and batch; a reason where there is no time."""
    others = {
        (a.model, a.contestant) for a in checked if (a.outputs_difference or 0.0) > OTHER_OUTPUTS
    }
    parts: list[RenderableType] = []
    for (model, batch), rows in groupby(with_ratios(cells), key=lambda r: (r["model"], r["batch"])):
        table = _table(("", *_FIGURES, "memory"), "note")
        for row in rows:
            odd = (model, row["contestant"]) in others
            notes = (row["why"] or row["variant"], "not the same model" if odd else "")
            table.add_row(
                row["contestant"],
                *(_figure(row[figure]) for figure in _FIGURES.values()),
                megabytes(row["peak_bytes"]),
                "; ".join(note for note in notes if note),
                style="bold" if row["contestant"] == "privet" else None,
            )
        parts += [Text(f"{model}, batch {batch}", style="underline"), table, Text()]
    return Group(*parts)


def _table(heads: Iterable[str], last: str) -> Table:
    """Names first, figures to the right, words last, where they may go on below themselves."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, head in enumerate(heads):
        table.add_column(head, no_wrap=True, justify="right" if i else "left", min_width=5)
    table.add_column(last, overflow="fold")
    return table


def growth_table(found: Iterable[Growth]) -> Group:
    """Exponents, and the costs they come from: a small table for each sweep."""
    parts: list[RenderableType] = []
    for growth in found:
        table = _table(("cost of", "exponent", "at the end"), "from ... to")
        for contestant in ALWAYS:
            for cost in COSTS:
                points = growth.points(contestant, cost)
                slopes = exponents(points)
                shown = [f"{slopes[k]:.2f}" for k in ("fitted", "last")] if slopes else ["-", "-"]
                ends = [f"{_short(size)}: {_cost(value, cost)}" for size, value in points]
                name = "time" if cost == "seconds" else "memory"
                span = " ... ".join([ends[0], ends[-1]] if len(ends) > 1 else ends)
                table.add_row(f"{contestant}, {name}", *shown, span)
        title = f"{growth.sweep.model}, by {growth.sweep.along}"
        parts += [Text(title, style="underline"), table, Text()]
    return Group(*parts)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def megabytes(size: int | None) -> str:
    """In units of 2^20 bytes."""
    return "-" if size is None else f"{_figure(size / 2**20)} MB"


def _cost(value: float, cost: str) -> str:
    return f"{_figure(1000 * value)} ms" if cost == "seconds" else megabytes(int(value))


def step_plot(cells: Sequence[Cell]) -> bytes:
    """Milliseconds by batch, one panel for each model, as an SVG file."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    with style.context(["default", STYLE]):
        figure = _figure_of(len(models), 1)
        for axes, model in zip(figure.axes, models, strict=True):
            for name in CONTESTANTS:
                points = [
                    (cell.batch, 1000 * cell.median)
                    for cell in cells
                    if (cell.model, cell.contestant) == (model, name) and cell.median is not None
                ]
                _line(axes, name, points, label=name)
            _scaled(axes, {cell.batch for cell in cells if cell.model == model})
            axes.set(title=model, xlabel="batch", ylabel="ms per step")
        return _svg(figure)


def growth_plot(found: Sequence[Growth]) -> bytes:
    """Time above, memory below, one column for each sweep, as an SVG file."""
    with style.context(["default", STYLE]):
        figure = _figure_of(len(found), len(COSTS))
        panels = iter(figure.axes)
        for cost in COSTS:
            unit, scale = ("ms", 1e3) if cost == "seconds" else ("MB", 2.0**-20)
            for growth in found:
                axes = next(panels)
                for name in ALWAYS:
                    points = growth.points(name, cost)
                    slopes = exponents(points)
                    label = f"{name}, exponent {slopes['fitted']:.2f}" if slopes else name
                    _line(axes, name, [(n, scale * v) for n, v in points], label=label)
                _scaled(axes, growth.sweep.sizes)
                axes.set(title=growth.sweep.model, xlabel=growth.sweep.along, ylabel=unit)
                axes.legend(frameon=False)
        return _svg(figure, legend=False)


def _figure_of(columns: int, rows: int) -> Figure:
    size = (3.4 * columns + 0.6, 3.0 * rows)
    figure = Figure(figsize=size, layout="constrained", facecolor=COLOUR["card"])
    FigureCanvasSVG(figure)
    figure.subplots(rows, columns)
    return figure


def _line(axes: Axes, name: str, points: Sequence[tuple[float, float]], label: str) -> None:
    if points:
        role, mark, dash = _LINES[name]
        axes.plot(
            *zip(*points, strict=True), label=label,
            color=COLOUR[role], marker=mark, linestyle=dash, markersize=4,
        )  # fmt: skip


def _scaled(axes: Axes, sizes: Iterable[int]) -> None:
    """Logarithmic, with the measured sizes below and round figures at the side."""
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sorted(sizes), [_short(size) for size in sorted(sizes)])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())


def _short(size: int) -> str:
    if size >= 10**6:
        return f"{size / 10**6:.3g}M"
    return f"{size / 1000:.3g}k" if size >= 10_000 else str(size)


def _svg(figure: Figure, *, legend: bool = True) -> bytes:
    if legend:
        known = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(known.values(), known.keys(), loc="outside right upper", frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    return buffer.getvalue()
