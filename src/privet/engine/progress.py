"""A progress bar for runs: steps, time left, epsilon so far."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from privet.engine.plain import PlainTrainer
from privet.engine.trainer import PrivateTrainer

Trainer = PrivateTrainer | PlainTrainer


class StepBar:
    """Shows a run on a console; the epsilon shown is a safe, slightly loose figure of its steps.

    What was paid before the first step (learned facts, a network that attacks) is on the card.
    """

    title = "training"

    def __init__(self, console: Console, readings: int = 20) -> None:
        self._progress = Progress(
            TextColumn(self.title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[spent]}"),
            console=console,
            transient=True,
        )
        self._readings = readings
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._progress.stop()

    def update(self, trainer: Trainer) -> None:
        """Call after each step."""
        plan, step = trainer.plan, trainer.next_step
        if self._task is None:
            # Only now: a run that is refused leaves an error and no empty bar.
            self._progress.start()
            self._task = self._progress.add_task("", total=plan.steps, spent="")
            self._say(trainer.note)
        if step == 1:  # of the run, or of the next one on the same bar
            self._progress.reset(self._task)
        self._progress.update(self._task, completed=step)
        # An accountant's reading costs some hundredths of a second: take only a few.
        if step % max(1, plan.steps // self._readings) == 0 or step == plan.steps:
            self._progress.update(self._task, spent=self.spent(trainer))

    def _say(self, note: str) -> None:
        """Once, above the bar; it stays."""
        if note:
            console = self._progress.console
            console.print(f"privet: {note}", markup=False, highlight=False, soft_wrap=True)

    def spent(self, trainer: Trainer) -> str:
        """What stands behind the bar."""
        if not isinstance(trainer, PrivateTrainer):
            return str(getattr(trainer, "standing", "no privacy"))
        if not trainer.randomness.secret:
            return "no epsilon: known noise"
        return f"epsilon {trainer.plan.running_epsilon(trainer.next_step):.2f}"
