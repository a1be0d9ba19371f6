"""Accuracy by round and by the virtual clock, as a picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from privet.reports.drawing import COLOUR, panels


def rounds_plot(history: Sequence[Mapping[str, Any]]) -> bytes:
    """An SVG of two panels: what a round is worth, and what an hour is worth."""
    accuracy = [100.0 * reading["test_accuracy"] for reading in history]
    with panels(1, 2, 4.6, 3.2) as sheet:
        for axes, along, words in zip(
            sheet.axes[0], ("round", "hours"), ("rounds", "hours of the trace"), strict=True
        ):
            places = [reading[along] for reading in history]
            axes.plot(places, accuracy, color=COLOUR["accent"], marker=".")
            axes.set(xlabel=words, ylabel="test accuracy, %", ylim=(0, 100))
    return sheet.svg
