"""What the lead of a run keeps, and no other process touches: ledger, account, folder."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from privet.data.dataset import Dataset
from privet.data.identity import enter_in_ledger
from privet.engine.account import RunAccount
from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path, new_run_id
from privet.models import create
from privet.release import Release
from privet.training.run_folder import RunFolder


@final
@dataclass(frozen=True, kw_only=True)
class Books:
    """The ledger, the run's name in it, and the run's folder if it has one."""

    ledger: Ledger
    run_id: str
    folder: RunFolder | None

    @classmethod
    def begin(
        cls,
        record: Mapping[str, Any],
        data: Dataset,
        *,
        out: str | Path | None,
        ledger: Ledger | None,
    ) -> Self:
        """Enter the data, and note in a new folder what `reopen` will need; reserve nothing yet."""
        ledger = ledger if ledger is not None else Ledger(default_ledger_path())
        found_by = {
            "data_digest": enter_in_ledger(data, ledger),
            "ledger": str(ledger.path.resolve()),
            "run": new_run_id(),
        }
        folder = None if out is None else RunFolder.create(out, {**record, **found_by})
        return cls(ledger=ledger, run_id=found_by["run"], folder=folder)

    @classmethod
    def reopen(
        cls, out: str | Path, *, ledger: Ledger | None, held: contextlib.ExitStack
    ) -> tuple[Self, dict[str, Any]]:
        """The books of a killed run and its record; `held` keeps other processes out."""
        folder, _ = RunFolder.open(out)
        held.enter_context(folder.locked())  # before anything is read: another may be writing it
        folder, record = RunFolder.open(out)
        ledger = ledger if ledger is not None else Ledger(record["ledger"])
        return cls(ledger=ledger, run_id=record["run"], folder=folder), record

    def open_account(self, data: Dataset, plan: Plan, *, private: bool) -> RunAccount:
        """Reserve the plan."""
        return RunAccount.open(
            self.ledger,
            data.name,
            plan,
            label="dpsgd" if self.folder is None else f"dpsgd {self.folder.folder.name}",
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
        """Take back a run that did not begin, and its reservation if there is one."""
        if self.folder is not None:
            self.folder.discard()
        with contextlib.suppress(InputError):  # the ledger does not know the run
            self.ledger.settle(self.run_id)


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
    model = create(config["model"], tuple(config["shape"]), len(config["classes"]))
    model.load_state_dict(weights)
    return Release(model=model, config=config, trust=trust)
