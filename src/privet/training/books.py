"""What the lead of a run keeps, and no other process touches: ledger, account, folder."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from privet.data.dataset import Dataset
from privet.data.identity import entered_in_ledger
from privet.engine.account import RunAccount
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path, new_run_id
from privet.release import Release, build_model
from privet.training.run_folder import RunFolder


@final
@dataclass(frozen=True, kw_only=True)
class Books:
    """The ledger, the run's name in it, and the run's folder if it has one.

    `new_data` is the name of the data set, where this run was the first to enter it.
    """

    ledger: Ledger
    run_id: str
    folder: RunFolder | None
    new_data: str | None = None

    @classmethod
    def begin(
        cls,
        record: Mapping[str, Any],
        data: Dataset,
        *,
        out: str | Path | None,
        ledger: Ledger | None,
        run_id: str | None = None,
    ) -> Self:
        """Enter the data, and note in a new folder what `reopen` will need; reserve nothing yet.

        `run_id` is given by a caller for whom a run may take place once and never again.
        """
        ledger = ledger if ledger is not None else Ledger(default_ledger_path())
        new = None if data.name in ledger.names() else data.name
        run_id = run_id or new_run_id()
        with entered_in_ledger(data, ledger):
            found_by = {
                "data_digest": Origin.of(data).sealed(ledger, run_id),
                "ledger": str(ledger.path.resolve()),
                "run": run_id,
            }
            folder = None if out is None else RunFolder.create(out, {**record, **found_by})
        return cls(ledger=ledger, run_id=run_id, folder=folder, new_data=new)

    @classmethod
    def reopen(
        cls, out: str | Path, *, ledger: Ledger | None, held: contextlib.ExitStack
    ) -> tuple[Self, dict[str, Any]]:
        """The books of a killed run and its record; `held` keeps other processes out."""
        folder, _ = RunFolder.open(out)
        held.enter_context(folder.locked())  # before anything is read: another may be writing it
        folder, record = RunFolder.open(out)
        ledger = ledger if ledger is not None else ledger_of(record)
        require_begun(folder, record, ledger)
        return cls(ledger=ledger, run_id=record["run"], folder=folder), record

    def open_account(self, data: Dataset, plan: Plan, *, method: str, private: bool) -> RunAccount:
        """Reserve the plan."""
        return RunAccount.open(
            self.ledger,
            data.name,
            plan,
            label=method if self.folder is None else f"{method} {self.folder.folder.name}",
            private=private,
            journal=None if self.folder is None else self.folder.journal,
            run_id=self.run_id,
        )

    def reopened_account(self, data: Dataset, plan: Plan, *, private: bool) -> RunAccount:
        """The account of a killed run, if its plan is the one that was reserved."""
        RunAccount.require_reserved(self.ledger, self.run_id, data.name, plan, private=private)
        journal = None if self.folder is None else self.folder.journal
        return RunAccount(self.ledger, self.run_id, journal, cycle=plan.cycle)

    def saved_release(self) -> Release | None:
        """What a run left that was killed after saving: only the cleaning up is still to do."""
        if self.folder is None or not self.folder.is_saved:
            return None
        self.ledger.settle(self.run_id)
        self.folder.forget_keys()
        return Release.load(self.folder.folder)

    def discard(self) -> None:
        """Take back a run that did not begin, its reservation and its data's entry if it is new."""
        if self.folder is not None:
            self.folder.discard()
        with contextlib.suppress(InputError):  # the ledger does not know the run
            self.ledger.settle(self.run_id)
        if self.new_data is not None:
            self.ledger.withdraw(self.new_data)


def ledger_of(record: Mapping[str, Any]) -> Ledger:
    """The ledger that a run began with; another one, or a new one, knows nothing of it."""
    path = Path(record["ledger"])
    if not path.exists():
        raise InputError(
            "the ledger of the run is not there",
            got=path,
            fix="restore it: the run is charged to it",
        )
    return Ledger(path)


def require_begun(folder: RunFolder, record: Mapping[str, Any], ledger: Ledger) -> None:
    """Refuse to go on with a run that was killed before its first step, and say what it cost.

    The ledger knows a run by its reservation; the first checkpoint stands before the first charge.
    """
    run_id, again = record["run"], f"delete {folder.folder} and start again"
    known = ledger.knows(run_id)
    if not known and folder.checkpoint.exists():
        raise InputError(
            "the ledger does not know the run",
            got=f"run {run_id}, {ledger.path}",
            expected="the ledger that the run began with",
        )
    if not known:
        raise InputError(
            "the run was killed before it began: nothing was trained and nothing is charged",
            got=folder.folder,
            fix=again,
        )
    if ledger.run(run_id).status == "settled" and not folder.checkpoint.exists():
        raise InputError(
            "the run is finished and settled, and its manifest is gone",
            got=folder.folder,
            expected="nothing to resume: all its steps are charged",
            fix="restore manifest.json from a copy; training again would be charged again",
        )
    if not folder.checkpoint.exists() and not folder.is_saved and ledger.run(run_id).charged == 0:
        raise InputError(
            "the run was killed before its first step: no step was taken, and none is charged",
            got=folder.folder,
            expected="a run that has begun; what it learned before its steps stays paid for",
            fix=f"give its reservation back (privet ledger settle {run_id}), {again}",
        )


def require_as_many(ranks: Ranks, began_with: int) -> None:
    """Refuse to go on with another number of processes: who samples which unit hangs on it."""
    if ranks.size != began_with:
        raise InputError(
            "the run began with another number of processes",
            got=ranks.size,
            expected=str(began_with),
            fix="resume it without torchrun"
            if began_with == 1
            else f"torchrun --nproc-per-node {began_with} -m privet.cli resume ...",
        )


def handed_round(release: Release | None, ranks: Ranks) -> Release:
    """The lead's release on every rank; the others, which wrote nothing, give None."""
    said = ranks.told(
        release and (json.dumps([release.config, release.trust]), dict(release.model.state_dict()))
    )
    if release is not None:
        return release
    (config, trust), weights = json.loads(said[0]), said[1]
    model = build_model(config)
    model.load_state_dict(weights)
    return Release(model=model, config=config, trust=trust)
