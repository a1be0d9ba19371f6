"""Settings chosen on the private records, privately: the best of a random number of runs."""

from privet.tuning.selection import resume, tune

__all__ = ["resume", "tune"]
