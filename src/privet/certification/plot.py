"""Certified accuracy against the radius, or against poisoned records, as an SVG file."""

from collections.abc import Sequence

from matplotlib.ticker import PercentFormatter

from privet.certification.certificates import Certificates
from privet.certification.poisoned_release import PoisoningTable
from privet.reports.drawing import COLOUR, drawing


def curve_plot(certificates: Certificates, norm: str | None = None) -> bytes:
    """A step down at every image's radius, from the certified accuracy of radius 0 to none."""
    radii = [0.0, *sorted(certificates.radii(norm)[certificates.correct])]
    accuracy = [*certificates.certified_accuracy(radii, norm), 0.0]
    with drawing() as sheet:
        sheet.axes.step([*radii, radii[-1]], accuracy, where="pre", color=COLOUR["proved"])
        sheet.axes.set(
            xlabel=f"radius ({norm or certificates.noise.norm})",
            ylabel="certified accuracy",
            xlim=(0, None),
            ylim=(0, 1.02),
        )
        sheet.axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return sheet.svg


def poisoning_plot(table: PoisoningTable) -> bytes:
    """Least mean accuracy against the number of changed units; points where it was asked for."""
    rows = sorted(table.rows, key=lambda row: row.records)
    with drawing() as sheet:
        sheet.axes.plot(
            [0, *(row.records for row in rows)],
            [table.accuracy, *(row.changed for row in rows)],
            marker="o",
            color=COLOUR["proved"],
        )
        sheet.axes.set(
            xlabel=f"changed units ({table.unit})",
            ylabel="least mean accuracy",
            xlim=(0, None),
            ylim=(0, 1.02),
        )
        sheet.axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return sheet.svg


def even_radii(certificates: Certificates, count: int = 5) -> Sequence[float]:
    """Radii for a table, from 0 to about the largest, in round steps."""
    largest = float(certificates.radius.max(initial=0.0))
    if largest == 0.0:
        return [0.0]
    step = max(s for s in _ROUND if s * count <= largest) if largest >= _ROUND[0] * count else 0.0
    return [step * i for i in range(count + 1)] if step else [0.0, largest]


_ROUND = tuple(a * 10.0**b for b in range(-4, 3) for a in (1, 2, 2.5, 5))
