"""A run's account: the ledger is charged before a step's output is used, and a redone step is
free only if it is shown to be the same.

The journal (a private file) holds a fingerprint of every update. After a crash the steps since the
last checkpoint are done again. With the same keys they give bit for bit the same updates: nothing
new was revealed, nothing is charged. A step that comes out different (keys were not kept, other
hardware) is a step of its own, with a sample and noise of its own, and is charged again; the
trainer takes fresh keys before it uses one.
"""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NoReturn, Self, final

import dp_accounting as dp

from privet.engine.plan import Plan
from privet.errors import CheckFailed, InputError
from privet.files import flush_folder
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent


class Account(ABC):
    """What a private step asks for leave, whoever keeps the books."""

    @abstractmethod
    def charge(self, step: int) -> None:
        """Before the step's output exists."""

    @abstractmethod
    def differs(self, step: int, fingerprint: str) -> bool:
        """Whether the step was done before and gave another output."""

    @abstractmethod
    def confirm(self, step: int, fingerprint: str) -> None:
        """Before the step's output is used."""

    @property
    @abstractmethod
    def books(self) -> "RunAccount":
        """The account that the ledger knows, where this process keeps it."""


class _Silent(Account):
    """Gives leave to everything and keeps nothing."""

    def charge(self, step: int) -> None:
        """Nothing to charge here."""

    def differs(self, step: int, fingerprint: str) -> bool:
        """Nothing to compare with here."""
        return False

    def confirm(self, step: int, fingerprint: str) -> None:
        """Nothing to note here."""


@final
class KeptByLead(_Silent):
    """On every process of a run but the lead, whose leave is leave for all."""

    @property
    def books(self) -> NoReturn:
        """Elsewhere."""
        raise InputError("this process does not keep the run's account", fix="ask the lead")


@final
class Unpaid(_Silent):
    """For made-up records, in a rehearsal or a benchmark: they belong to nobody."""

    @property
    def books(self) -> NoReturn:
        """There are none."""
        raise InputError("made-up records have no account")


@final
class RunAccount(Account):
    """Ties a plan to its reservation in the ledger and to the journal of its updates.

    `durable`: what is noted survives a power cut, too, as whatever is made of it does.
    """

    def __init__(
        self,
        ledger: Ledger,
        run_id: str,
        journal: Path | None,
        *,
        cycle: int = 1,
        durable: bool = False,
    ) -> None:
        self.ledger = ledger
        self.run_id = run_id
        self._cycle = cycle
        self._durable = durable
        self._path = journal
        self._seen, self._torn_at = _read_journal(journal)

    @classmethod
    def open(
        cls,
        ledger: Ledger,
        dataset: str,
        plan: Plan,
        *,
        label: str,
        private: bool = True,
        journal: Path | None = None,
        run_id: str | None = None,
    ) -> Self:
        """Reserve the whole plan; refused by the ledger if a cap does not fit it.

        `private` is False for a run whose noise is known (a test seed): it is entered as what it
        is, an access without any privacy.
        """
        reserved = ledger.reserve(
            dataset,
            label=label,
            step_event=_turn_event(plan, private),
            steps=plan.turns,
            run_id=run_id,
            adjacency=plan.sampler.adjacencies[0],
        )
        return cls(ledger, reserved, journal, cycle=plan.cycle)

    @staticmethod
    def require_reserved(
        ledger: Ledger, run_id: str, dataset: str, plan: Plan, *, private: bool
    ) -> None:
        """Refuse to go on with a plan that is not the one the ledger reserved."""
        run = ledger.run(run_id)
        planned = (dataset, _turn_event(plan, private), plan.turns)
        if (run.dataset, run.step_event, run.planned) != planned:
            raise CheckFailed(
                f"the plan of run {run_id} is not the one that was reserved",
                got=planned,
                expected=f"{(run.dataset, run.step_event, run.planned)}",
            )

    def charge(self, step: int) -> None:
        """Before the step's output exists; the steps of a cycle are one turn and cost one."""
        self.ledger.charge(self.run_id, step // self._cycle)

    def differs(self, step: int, fingerprint: str) -> bool:
        """Whether the step was done before and gave another output."""
        return self._seen.get(step, fingerprint) != fingerprint

    def confirm(self, step: int, fingerprint: str) -> None:
        """Before the step's output is used: note it, or charge again if it came out different."""
        earlier = self._seen.get(step)
        if earlier == fingerprint:
            return
        if earlier is not None:
            self.ledger.recharge(self.run_id)
        self._seen[step] = fingerprint
        if self._path is not None:
            with self._path.open("ab") as file:
                if self._torn_at is not None:  # or the torn line would swallow this one
                    file.truncate(self._torn_at)
                    self._torn_at = None
                file.write(f"{step} {fingerprint}\n".encode())
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            if self._durable and len(self._seen) == 1:
                flush_folder(self._path.parent)

    def require_noted(self, steps: int, *, most: int | None = None) -> None:
        """Refuse to go on after `steps` steps where the journal lacks one that was done.

        `most`: how many of the run's steps are in this journal at all; default: all.

        It could not be told whether such a step comes out the same, and it would not be charged
        again. Of the last turn that was charged nothing needs to be there: the run may have been
        killed before anything was used.
        """
        begun = (self.ledger.run(self.run_id).charged - 1) * self._cycle
        done = max(steps, begun) if most is None else min(most, max(steps, begun))
        missing = next((s for s in range(done) if s not in self._seen), None)
        if missing is not None:
            raise InputError(
                "the journal lacks a step that was done",
                got=f"no step {missing} in {self._path or 'an account without a journal'}",
                fix="put the journal back beside the checkpoint; or start a new run",
            )

    @property
    def books(self) -> "RunAccount":
        """Itself."""
        return self

    @property
    def redone_steps(self) -> int:
        """Steps that were charged a second time."""
        return self.ledger.run(self.run_id).redone

    def settle(self) -> None:
        """Close the run in the ledger."""
        self.ledger.settle(self.run_id)


def _turn_event(plan: Plan, private: bool) -> DpEvent:
    return plan.sampler.turn_event(plan.noise_multiplier) if private else dp.NonPrivateDpEvent()


def _read_journal(path: Path | None) -> tuple[dict[int, str], int | None]:
    """The fingerprints, and where a last line begins that a crash cut off before it was used."""
    if path is None or not path.exists():
        return {}, None
    seen: dict[int, str] = {}
    content = path.read_bytes()
    *lines, torn = content.split(b"\n")
    for line in lines:
        try:
            step, fingerprint = line.split()
            seen[int(step)] = fingerprint.decode("ascii")
        except ValueError:
            raise InputError("corrupt step journal", got=f"{path}: {line!r}") from None
    return seen, len(content) - len(torn) if torn else None
