"""Bound and success by epoch, as a picture that grows while a network learns to attack."""

from collections.abc import Mapping, Sequence
from typing import Any

from privet.reports.drawing import COLOUR, drawing


def decay_plot(history: Sequence[Mapping[str, Any]], target: str) -> bytes:
    """An SVG: both curves, and a mark at every epoch that was taken back."""
    epochs = range(1, len(history) + 1)
    with drawing() as sheet:
        axes = sheet.axes
        axes.plot(epochs, [row["bound"] for row in history], color=COLOUR["muted"], label="bound")
        success = [row["success"] for row in history]
        label = f"share taken for {target}"
        axes.plot(epochs, success, color=COLOUR["accent"], label=label)
        back = [(n, row) for n, row in zip(epochs, history, strict=True) if row["taken_back"]]
        if back:
            places, heights = [n for n, _ in back], [row["success"] for _, row in back]
            axes.plot(places, heights, "x", color=COLOUR["ink"], label="taken back")
        axes.set(xlabel="epoch", ylabel="bound; share of validation images", ylim=(0, 1.02))
        axes.legend(frameon=False)
    return sheet.svg
