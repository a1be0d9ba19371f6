"""How every plot of ours is drawn: one style, one palette, the same bytes for the same input.

Matplotlib is used through its objects only, without the state of pyplot.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from privet.reports.look import PALETTE

COLOUR: Final = {role: light for role, (light, _) in PALETTE.items()}
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "privet",
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same layout on every machine
    "font.size": 8.5,
    "text.color": COLOUR["ink"],
    "axes.edgecolor": COLOUR["muted"],
    "axes.labelcolor": COLOUR["muted"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": COLOUR["rule"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOUR["muted"],
    "ytick.color": COLOUR["muted"],
    "lines.linewidth": 1.8,
}
NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


class Drawing:
    """A figure with one pair of axes, and its file once it is drawn."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.axes: Axes = figure.add_subplot()
        self.svg = b""


class Panels:
    """A figure with rows and columns of axes, and its file once it is drawn."""

    def __init__(self, figure: Figure, rows: int, columns: int) -> None:
        self.figure = figure
        grid = figure.subplots(rows, columns, squeeze=False)
        self.axes: list[list[Axes]] = [list(row) for row in grid]
        self.svg = b""


@contextmanager
def drawing(width: float = 5.6, height: float = 3.4) -> Iterator[Drawing]:
    """Draw inside; afterwards `svg` has the file. On the card's colour, for pages and viewers."""
    with _figure(width, height) as figure:
        sheet = Drawing(figure)
        yield sheet
        sheet.svg = _svg(figure)


@contextmanager
def panels(
    rows: int, columns: int, width: float, height: float, below: float = 0.0
) -> Iterator[Panels]:
    """The same with many axes; width and height are those of one, `below` is for a legend."""
    with _figure(columns * width, rows * height + below) as figure:
        sheet = Panels(figure, rows, columns)
        yield sheet
        sheet.svg = _svg(figure)


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=COLOUR["card"])
        FigureCanvasSVG(figure)
        yield figure


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    return buffer.getvalue()
