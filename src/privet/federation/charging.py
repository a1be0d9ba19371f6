"""What the steps of a federation cost, in the ledger: a turn is what one client's step costs."""

from typing import final

from privet.engine.account import Account, RunAccount
from privet.errors import CheckFailed
from privet.privacy.participation import Capped, Sampled


@final
class StepAccount(Account):
    """Charges a turn as soon as any client may have had it.

    A killed run repeats its lost steps bit for bit, which costs nothing. A step that comes out
    different ends the run: its clients were drawn before, so a second draw is not accounted.
    """

    def __init__(self, books: RunAccount, participation: Capped | Sampled) -> None:
        self._books, self._participation = books, participation

    def charge(self, step: int) -> None:
        """Before the noise of the step is drawn."""
        self._books.charge(self._participation.turn_of(step))

    def differs(self, step: int, fingerprint: str) -> bool:
        """Whether the step was done before and gave another output."""
        return self._books.differs(step, fingerprint)

    def confirm(self, step: int, fingerprint: str) -> None:
        """Before the noisy sum is used."""
        if self.differs(step, fingerprint):
            raise CheckFailed(
                f"step {step} was done before and came out different now",
                expected="the same machine and software as when the run began",
                fix="go on where the run began, or start a new run, which is charged again",
            )
        self._books.confirm(step, fingerprint)

    @property
    def books(self) -> RunAccount:
        """The account that the ledger knows."""
        return self._books
