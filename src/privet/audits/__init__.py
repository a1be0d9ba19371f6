"""Audits: lower bounds of epsilon, measured by attacking."""

from privet.audits.evidence import Bound, Evidence
from privet.audits.gaussian import gaussian
from privet.audits.one_run import one_run
from privet.audits.one_run_fdp import one_run_gaussian, refuted
from privet.audits.two_worlds import Violation, two_worlds, violates

__all__ = [
    "Bound",
    "Evidence",
    "Violation",
    "gaussian",
    "one_run",
    "one_run_gaussian",
    "refuted",
    "two_worlds",
    "violates",
]
