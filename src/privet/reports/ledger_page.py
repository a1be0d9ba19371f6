"""The ledger for people: what was spent on a data set, run by run."""

from typing import Any

import dp_accounting as dp
from rich.console import Console
from rich.table import Table

from privet.data.dataset import EXAMPLE
from privet.ledger import Account, RunRecord
from privet.privacy.accounting import Selection
from privet.privacy.events import to_json


def account_record(account: Account) -> dict[str, Any]:
    """The account as plain values."""
    cap = account.cap
    return {
        "name": account.name,
        "unit": account.unit.name,
        "grouped": account.unit.grouped,
        "parents": list(account.parents),
        "related": list(account.related),
        "cap": cap and {"epsilon": cap.epsilon, "delta": cap.delta, "renyi_order": cap.order},
        "spent_epsilon": account.spent_epsilon,
        "runs": [_run_record(run) for run in account.runs],
    }


def print_account(account: Account, console: Console) -> None:
    """One readable block: cap, spending, runs."""
    console.print(f"{account.name} (unit: {_unit(account)})", style="bold", highlight=False)
    console.print(f"  {_spending(account)}", highlight=False, soft_wrap=True)
    if account.related:
        names = ", ".join(account.related)
        console.print(f"  shares records with: {names}; their runs count", highlight=False)
    table = Table(box=None, padding=(0, 1))
    for column in ("run", "started", "what", "charged", "status"):
        # An id that is cut off cannot be settled.
        table.add_column(column, no_wrap=column == "run", overflow="fold")
    for run in account.runs:
        charged = f"{run.charged}/{run.planned}" + (f" +{run.redone} redone" if run.redone else "")
        table.add_row(
            run.id, run.started[:16].replace("T", " "), _what(run, account), charged, run.status
        )
    if account.runs:
        console.print(table)


def _unit(account: Account) -> str:
    """The name; and where a name was given to single records, that it was."""
    unit = account.unit
    bare = unit.grouped is False and unit.name != EXAMPLE
    return f"{unit.name}, each record one" if bare else unit.name


def _what(run: RunRecord, account: Account) -> str:
    event, words = run.step_event, run.label
    if isinstance(event, Selection):  # one entry for all trials: their number is nobody's to know
        words += f", the best of {event.mean:g} expected runs"
    if isinstance(event, dp.NonPrivateDpEvent):
        words += ", without privacy"
    return words if run.dataset == account.name else f"{words} (on {run.dataset})"


def _spending(account: Account) -> str:
    if account.cap is None:
        return "no cap set: runs are listed, not limited (privet ledger cap NAME ...)"
    cap = account.cap
    return (
        f"spent or reserved epsilon {account.spent_epsilon:.3f} of {cap.epsilon:g} "
        f"at delta={cap.delta:g} (Renyi filter of order {cap.order:g}, add/remove)"
    )


def _run_record(run: RunRecord) -> dict[str, Any]:
    return {
        "id": run.id,
        "dataset": run.dataset,
        "label": run.label,
        "step_event": to_json(run.step_event),
        "planned": run.planned,
        "charged": run.charged,
        "redone": run.redone,
        "status": run.status,
        "started": run.started,
    }
