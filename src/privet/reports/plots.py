"""The plots of a report: inline SVG that takes its colours from the page around it.

Figures are drawn in the light palette, then every colour is replaced by the CSS variable of its
role, so one drawing serves light and dark.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from privet.reports.drawing import COLOUR, NO_METADATA, STYLE
from privet.reports.figures import at_least, at_most

Points = Sequence[tuple[float, float]]

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def epsilon_plot(points: Points, target: float | None) -> str:
    """Epsilon after each step, and the epsilon that was asked for."""
    last_step, last = max(points)

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*points, strict=True), color=COLOUR["accent"])
        axes.plot([last_step], [last], "o", color=COLOUR["accent"], markersize=5)
        if target is not None:
            axes.axhline(target, color=COLOUR["claimed"], linestyle=(0, (5, 3)), linewidth=1.2)
            axes.annotate(
                f"asked for: {at_most(target)}", (0, target), (2, 4), "data",
                textcoords="offset points", color=COLOUR["claimed"],
            )  # fmt: skip
        axes.set(xlabel="training step", ylabel="ε spent", xlim=(0, None))
        axes.set_ylim(0, 1.18 * max(last, target or 0.0))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    asked = "" if target is None else f", of {at_most(target)} asked for"
    alt = f"Epsilon by training step: {at_most(last)} after step {last_step:g}{asked}."
    return _svg("epsilon-by-step", alt, draw)


def profile_plot(
    points: Points, released: tuple[float, float], basis: str, audited: Points = ()
) -> str:
    """The privacy profile delta(epsilon), with the released pair marked in its basis' colour.

    `audited` are (epsilon, delta) that the true profile lies to the right of.
    """
    epsilon, delta = released
    visible = [point for point in points if point[1] > 0]
    said = f"ε = {at_most(epsilon)} at δ = {at_most(delta)}"

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*visible, strict=True), color=COLOUR["accent"])
        if delta > 0:
            axes.plot([epsilon], [delta], "o", color=COLOUR[basis], markersize=6)
            axes.annotate(
                said, (epsilon, delta), (8, 6), "data",
                textcoords="offset points", color=COLOUR[basis],
            )  # fmt: skip
        for least, at in audited:
            axes.plot([least], [at], ">", color=COLOUR["audited"], markersize=6)
        if audited:
            least, at = max(audited)
            axes.annotate(
                f"audited: ≥ {at_least(least)}", (least, at), (0, -14), "data", ha="center",
                textcoords="offset points", color=COLOUR["audited"],
            )  # fmt: skip
        axes.set(xlabel="ε", ylabel="δ", yscale="log", xlim=(0, None))
        axes.yaxis.set_major_formatter(lambda y, _: _power_of_ten(y))

    alt = f"Privacy profile: the smallest delta for each epsilon. This release is marked: {said}."
    if audited:
        alt += f" Audits found epsilon at least {at_least(max(audited)[0])}."
    return _svg("profile", alt, draw)


def tradeoff_plot(points: Points, sentence: str) -> str:
    """What the best attacker must miss, by how often they accuse wrongly."""
    ordered = sorted(points)
    alphas, betas = zip(*ordered, strict=True)
    blind = [1 - alpha for alpha in alphas]

    def draw(axes: Axes) -> None:
        axes.fill_between(alphas, betas, blind, color=COLOUR["accent"], alpha=0.1, linewidth=0)
        axes.plot([0, 1], [1, 0], color=COLOUR["muted"], linestyle=(0, (5, 3)), linewidth=1.2)
        axes.plot(alphas, betas, color=COLOUR["accent"])
        axes.text(0.56, 0.5, "blind guessing", color=COLOUR["muted"])
        axes.text(0.03, 0.03, "no attack gets here", color=COLOUR["accent"])
        axes.set(xlabel="non-members accused", ylabel="members missed", xlim=(0, 1), ylim=(0, 1.02))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))

    alt = f"Trade-off curve of the best membership attack, below the line of guessing. {sentence}"
    return _svg("tradeoff", alt, draw)


def _power_of_ten(value: float) -> str:
    exponent = round(math.log10(value)) if value > 0 else 0
    return "1" if exponent == 0 else f"10{str(exponent).translate(_SUPERSCRIPT)}"


def _svg(name: str, alt: str, draw: Callable[[Axes], None]) -> str:
    buffer = io.StringIO()
    with style.context(["default", STYLE]):  # "default": not the settings of this user
        figure = Figure(figsize=(4.6, 3.2), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none")
        draw(axes)
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    return _inlined(buffer.getvalue(), name, alt)


def _inlined(document: str, name: str, alt: str) -> str:
    """Turn an SVG file into an element: no prologue, no addresses, ids of its own."""
    opening = re.search(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', document)
    assert opening is not None  # matplotlib always writes one
    body = document[opening.end() :]
    # the style sheet inside would apply to the whole page: look.css holds its one rule
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r' id="([^"]+)"', rf' id="{name}-\1"', body)
    body = body.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    body = body.replace("'DejaVu Sans'", "var(--sans)")
    for role, colour in COLOUR.items():
        body = body.replace(colour, f"var(--{role})")
    return f'<svg role="img" aria-label="{escape(alt)}" {opening[1]}>{body.strip()}'
