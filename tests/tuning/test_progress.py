import io
from unittest.mock import Mock

from rich.console import Console

from privet.engine.progress import StepBar
from privet.engine.trainer import PrivateTrainer
from privet.tuning.progress import TrialBar


def drawn(kind, trials):
    """Everything that a bar writes while so many trials of eight steps run."""

    class Plan:
        steps = 8

        def running_epsilon(self, step):
            return 1.23

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, color_system=None)
    with kind(console) as bar:
        bar._progress.live.auto_refresh = False
        for _ in range(trials):
            for step in range(1, 9):
                trainer = Mock(spec=PrivateTrainer, plan=Plan(), next_step=step, note="")
                trainer.randomness = Mock(secret=True)
                bar.update(trainer)
                bar._progress.refresh()
    return stream.getvalue()


def test_a_trials_own_epsilon_is_not_shown():
    """It is not what is promised; the bar of a single run, which shows it, is the counter-proof."""
    assert "epsilon 1.23" in drawn(StepBar, 1)
    shown = drawn(TrialBar, 2)
    assert "epsilon" not in shown
    assert "one of a secret number" in shown
    assert "8/8" in shown


def test_nothing_counts_the_trials():
    """What the bar says during the last trial of 2 and of 12 is the same."""
    last = [drawn(TrialBar, trials)[-400:] for trials in (2, 12)]
    digits = ["".join(c for c in text if c.isdigit() or c == "/") for text in last]
    assert digits[0] == digits[1]
