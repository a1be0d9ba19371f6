"""Bound and success by epoch, as a picture that grows while a network learns to attack."""

import io
from collections.abc import Mapping, Sequence
from typing import Any


def decay_plot(history: Sequence[Mapping[str, Any]], target: str) -> bytes:
    """An SVG: both curves, and a mark at every epoch that was taken back."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    epochs = range(1, len(history) + 1)
    axes.plot(epochs, [row["bound"] for row in history], color="tab:blue", label="bound")
    axes.plot(epochs, [row["success"] for row in history], color="tab:orange", label="fooled")
    back = [(epoch, row) for epoch, row in zip(epochs, history, strict=True) if row["taken_back"]]
    if back:
        places, heights = [epoch for epoch, _ in back], [row["success"] for _, row in back]
        axes.plot(places, heights, "x", color="tab:red", label="taken back")
    axes.set(xlabel="epoch", ylim=(0, 1.02), title=f"validation images taken for {target}")
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()
