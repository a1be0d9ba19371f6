"""What people read: the HTML report and the terminal card of a release, and the shared look."""

from privet.reports.curves import Curves
from privet.reports.release_report import render_report
from privet.reports.terminal import print_card

__all__ = ["Curves", "print_card", "render_report"]
