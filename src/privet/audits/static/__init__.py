"""Static checks of training code: mistakes that make an epsilon wrong, found without running it.

Nothing here proves code right. A finding `wrong` is meant to be sure; silence means only that none
of the known mistakes was recognised.
"""

from privet.audits.static.checking import check
from privet.audits.static.findings import Allowed, Finding, Report, Severity

__all__ = ["Allowed", "Finding", "Report", "Severity", "check"]
