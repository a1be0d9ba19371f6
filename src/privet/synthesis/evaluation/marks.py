"""How the plots of the report are drawn: each an element of the page, in the page's own colours."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from privet.reports.drawing import COLOUR, drawing
from privet.reports.plots import _inlined as inlined
from privet.synthesis.evaluation.side import Floats

REAL: Final = COLOUR["accent"]
MADE: Final = COLOUR["claimed"]
YARDSTICK: Final = COLOUR["muted"]
MOST_NAMES: Final = 60  # on an axis
MOST_WORDS: Final = 6  # below a small plot

Draw = Callable[[Axes], None]


def plot(name: str, alt: str, draw: Draw, *, width: float = 4.6, height: float = 3.2) -> Markup:
    """What `draw` draws, as an element; `name` is its own on the page, `alt` says what it shows."""
    with drawing(width, height) as sheet:
        draw(sheet.axes)
    return Markup(inlined(sheet.svg.decode(), name, alt))


def steps(name: str, alt: str, edges: Any, shares: Mapping[str, Any], label: str) -> Markup:
    """Two histograms over the same edges; `ticks`, where there are any, stand evenly below."""

    def draw(axes: Axes) -> None:
        _outlines(axes, edges, shares)
        axes.set(xlabel=label, ylabel="share", ylim=(0, None))
        if "ticks" in shares:
            axes.set_xticks(np.linspace(edges[0], edges[-1], len(shares["ticks"])))
            axes.set_xticklabels(shares["ticks"])
        axes.legend(frameon=False)

    return plot(name, alt, draw)


def _outlines(axes: Axes, edges: Any, shares: Mapping[str, Any]) -> None:
    axes.stairs(shares["real"], edges, color=REAL, alpha=0.3, fill=True, label="real")
    axes.stairs(shares["other"], edges, color=MADE, linewidth=1.3, label="synthetic")


def small_steps(name: str, title: str, shares: Mapping[str, Any]) -> Markup:
    """The same over bins from 0 to 1, small and without a legend, for many in a row."""
    words, bins = list(shares["ticks"]), len(shares["real"])
    by_word = len(words) == bins
    places = (np.arange(bins) + 0.5) / bins if by_word else np.array([0.0, 0.5, 1.0])

    def draw(axes: Axes) -> None:
        _outlines(axes, np.linspace(0, 1, bins + 1), shares)
        axes.set(ylim=(0, None), yticks=[])
        axes.set_xticks(places if bins <= MOST_WORDS or not by_word else [])
        axes.set_xticklabels([w[:8] for w in words] if len(axes.get_xticks()) else [], fontsize=7)
        axes.set_title(title, fontsize=8.5)

    return plot(name, f"{title}: real and synthetic.", draw, width=2.7, height=1.7)


def small_lines(name: str, title: str, lines: Mapping[str, Any]) -> Markup:
    """Two curves over the rows of a stay, small."""

    def draw(axes: Axes) -> None:
        for key, colour, dash in (("real", REAL, "-"), ("other", MADE, "--")):
            axes.plot(1 + np.arange(len(lines[key])), lines[key], dash, color=colour, linewidth=1.2)
        axes.set_title(title, fontsize=8.5)

    return plot(name, f"{title} by row: real and synthetic.", draw, width=2.7, height=1.7)


def lines(name: str, alt: str, x: Any, ys: Mapping[str, Any], x_label: str, label: str) -> Markup:
    """A curve of real and one of synthetic records."""

    def draw(axes: Axes) -> None:
        axes.plot(x, ys["real"], color=REAL, label="real")
        axes.plot(x, ys["other"], "--", color=MADE, label="synthetic")
        axes.set(xlabel=x_label, ylabel=label)
        axes.legend(frameon=False)

    return plot(name, alt, draw)


def against(name: str, alt: str, groups: Mapping[str, tuple[Any, Any]], label: str) -> Markup:
    """Points of (real, synthetic) beside the line on which both are the same."""
    marks = ("o", "s", "^")

    def draw(axes: Axes) -> None:
        low = min([0.0, *(min(map(min, pair)) for pair in groups.values() if len(pair[0]))])
        axes.plot([low, 1], [low, 1], ":", color=YARDSTICK, linewidth=1.2)
        for mark, (word, (real, made)) in zip(marks, groups.items(), strict=False):
            axes.plot(real, made, mark, color=MADE, markersize=3.5, alpha=0.8, label=word)
        axes.set(xlabel=f"{label}, real", ylabel=f"{label}, synthetic")
        if len(groups) > 1:
            axes.legend(frameon=False)

    return plot(name, alt, draw)


def cloud(name: str, alt: str, points: Sequence[Floats]) -> Markup:
    """Real and synthetic records in a plane."""

    def draw(axes: Axes) -> None:
        for part, colour, word in zip(points, (REAL, MADE), ("real", "synthetic"), strict=True):
            axes.scatter(
                part[:, 0], part[:, 1], s=6, color=colour, alpha=0.45, linewidths=0, label=word
            )
        axes.set(xlabel="first principal axis", ylabel="second principal axis")
        axes.legend(frameon=False, markerscale=2)

    return plot(name, alt, draw, width=5.6, height=4.2)


def dots(name: str, alt: str, names: Sequence[str], made: Any, real: Any, label: str) -> Markup:
    """A row for each column: the figure of synthetic records, and its yardstick."""
    rows = np.arange(len(names))[::-1]

    def draw(axes: Axes) -> None:
        axes.plot(real, rows, "|", color=YARDSTICK, markersize=8, label="real against real")
        axes.plot(made, rows, "o", color=MADE, markersize=4, label="synthetic against real")
        axes.set_yticks(rows, names, fontsize=7)
        axes.set(xlabel=label, xlim=(0, None), ylim=(-0.7, len(names) - 0.3))
        axes.legend(frameon=False, loc="lower right")

    return plot(name, alt, draw, width=7.2, height=1.0 + 0.17 * len(names))


def matrix(name: str, alt: str, names: Sequence[str], difference: Floats) -> Markup:
    """Differences of correlations: the stronger the colour, the larger; blue is too low."""
    difference = np.where(np.eye(len(difference), dtype=bool), np.nan, difference)
    edge = max(0.1, float(np.nanmax(np.abs(difference), initial=0.0)))
    picture = np.zeros((*difference.shape, 4))
    picture[..., :3] = np.where((difference > 0)[..., None], to_rgb(MADE), to_rgb(REAL))
    picture[..., 3] = np.nan_to_num(np.abs(difference)) / edge
    shown = list(names) if len(names) <= MOST_NAMES else []
    places = np.arange(len(shown))

    def draw(axes: Axes) -> None:
        axes.imshow(picture, interpolation="nearest")
        axes.grid(visible=False)
        size = 5.5 if len(shown) > 20 else 7.5
        axes.set_xticks(places, shown, rotation=90, fontsize=size)
        axes.set_yticks(places, shown, fontsize=size)
        axes.set_title(f"full colour: off by {edge:.2f}", fontsize=8, loc="right")

    return plot(name, alt, draw, width=5.2, height=5.2)


def roc(name: str, alt: str, curves: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Curves of attacks on logarithmic axes, where few false alarms count."""
    least = min(float(np.min(curve["fpr"])) for curve in curves.values())

    def draw(axes: Axes) -> None:
        axes.plot([least, 1], [least, 1], ":", color=YARDSTICK, label="guessing")
        for dash, (attack, curve) in zip(
            ("-", "--", "-.", (0, (1, 1))), curves.items(), strict=False
        ):
            seen = np.maximum(curve["tpr"], least / 2)
            axes.plot(curve["fpr"], seen, linestyle=dash, color=COLOUR["audited"], label=attack)
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least / 2, 1.1))
        axes.set(xlabel="others taken for members", ylabel="members found")
        axes.legend(frameon=False)

    return plot(name, alt, draw)


def distances(name: str, alt: str, to_train: Any, to_test: Any) -> Markup:
    """Shares of synthetic records that have a real one within a distance."""

    def draw(axes: Axes) -> None:
        for sample, colour, word in ((to_train, MADE, "training"), (to_test, REAL, "held-out")):
            axes.plot(sample, np.linspace(0, 1, len(sample)), color=colour, label=word)
        axes.set(xlabel="distance to the nearest record", ylabel="synthetic records", ylim=(0, 1))
        axes.legend(frameon=False)

    return plot(name, alt, draw)
