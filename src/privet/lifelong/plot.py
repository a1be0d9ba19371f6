"""Accuracy after every task, as a picture."""

from collections.abc import Sequence

from privet.reports.drawing import COLOUR, drawing


def accuracy_plot(accuracy: Sequence[Sequence[float]]) -> bytes:
    """An SVG: a thin line for each task from the time it was learned on, and their average."""
    m = len(accuracy)
    with drawing() as sheet:
        for task in range(m):
            later = range(task + 1, m + 1)
            heights = [100.0 * accuracy[tau - 1][task] for tau in later]
            label = "_" if task else "a task, since it was learned"  # the others look the same
            sheet.axes.plot(
                later, heights, color=COLOUR["muted"], linewidth=0.8, marker=".", label=label
            )
        averages = [100.0 * sum(row[: tau + 1]) / (tau + 1) for tau, row in enumerate(accuracy)]
        sheet.axes.plot(range(1, m + 1), averages, color=COLOUR["accent"], label="average")
        sheet.axes.set(xlabel="tasks learned", ylabel="accuracy, %", ylim=(0, 100))
        sheet.axes.set_xticks(range(1, m + 1))
        sheet.axes.legend(frameon=False)
    return sheet.svg
