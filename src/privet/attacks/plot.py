"""Accuracy against the size of attacks, as an SVG file."""

from typing import Final

from matplotlib.ticker import PercentFormatter

from privet.attacks.result import WORST, AttackResult
from privet.reports.drawing import COLOUR, drawing

# Marks and dashes differ as well as colours, so nothing depends on telling colours apart.
_ROLES: Final = ("accent", "claimed", "proved", "audited", "withheld")
_MARKS: Final = "osD^vPX<>"
_DASHES: Final = ("-", "--", ":")


def accuracy_plot(result: AttackResult) -> bytes:
    """One line for each attack, one for the worst case; all begin at the clean accuracy."""
    with drawing() as sheet:
        for i, (name, accuracies) in enumerate(result.rows()):
            points = {0.0: result.clean_accuracy, **accuracies}
            look = {
                "color": COLOUR[_ROLES[i % len(_ROLES)]],
                "marker": _MARKS[i % len(_MARKS)],
                "linestyle": _DASHES[i // len(_ROLES) % len(_DASHES)],
            }
            worst = {"color": COLOUR["contradicted"], "marker": "", "linewidth": 2.4}
            sheet.axes.plot(
                list(points), list(points.values()), label=name, markersize=4,
                **(worst if name == WORST else look),
            )  # fmt: skip
        sheet.axes.set(
            xlabel=f"size ({result.norm})", ylabel="accuracy", xlim=(0, None), ylim=(0, 1.02)
        )
        sheet.axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        sheet.figure.legend(loc="outside right upper", frameon=False)
    return sheet.svg
