"""Curves of membership inference: both rates on logarithmic axes, where few false alarms count."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from privet.audits.membership import Roc
from privet.reports.drawing import COLOUR, drawing

_DASHES: Final = ("-", "--", "-.")


def roc_plot(curves: Mapping[str, Roc]) -> bytes:
    """An SVG of the curve of each attack, by name, and of guessing."""
    least = min(float(rates[rates > 0].min()) for c in curves.values() for rates in (c.fpr, c.tpr))
    with drawing(height=4.2) as sheet:
        axes, guessing = sheet.axes, np.geomspace(least, 1.0, 50)
        axes.plot(guessing, guessing, ":", color=COLOUR["muted"], label="guessing")
        for dash, (name, curve) in zip(_DASHES, curves.items(), strict=False):
            axes.plot(curve.fpr, curve.tpr, dash, color=COLOUR["audited"], label=name)
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(least, 1.0),
            ylim=(least, 1.0),
            xlabel="others taken for members",
            ylabel="members found",
        )
        sheet.figure.legend(loc="outside right upper", frameon=False)
    return sheet.svg
