"""A progress bar for searches: the steps of the present trial, and nothing else."""

from privet.engine.progress import StepBar, Trainer


class TrialBar(StepBar):
    """Counts no trials: their number is a secret of the mechanism.

    A count would not help either: with geometric trials, however many are done, as many are still
    to be expected. Nor is there an epsilon to show: that of one trial is not what is promised, and
    that of the whole was charged before the first.
    """

    title = "a trial"

    def spent(self, trainer: Trainer) -> str:
        """The same words after every step."""
        return "one of a secret number"
