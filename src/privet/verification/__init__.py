"""Checks a release offline: its parts must not contradict each other."""

from privet.verification.finding import Finding, Verification
from privet.verification.release import verify

__all__ = ["Finding", "Verification", "verify"]
