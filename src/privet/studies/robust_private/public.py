"""Which data a study may train on, and the ledger of its own that it charges.

A study trains many models on the same records, some of them without any privacy. What they leak
together is bounded by the sum of what each leaks, and by nothing where one of them has no proof. So
it is for records that are public: the data sets of the catalogue, which have no budget to spend.
Its ledger lies beside its results and is charged like any other. Records that have a budget in the
user's own ledger are refused, whatever they are called: there is no way around that ledger here.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from privet.data.catalogue import CATALOGUE, load
from privet.data.dataset import Dataset
from privet.data.identity import enter_in_ledger
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path

FILE: Final = "ledger.db"


def public_data(name: str, data_dir: Path | None) -> Dataset:
    """A data set of the catalogue; any other is refused."""
    if Path(name).suffix:
        raise InputError(
            "a study trains many models, some without privacy: on public records only",
            got=f"'{name}'",
            expected=f"one of {', '.join(CATALOGUE)}",
            fix="train on your own records with `privet train`, which charges your ledger",
        )
    data = load(name, data_dir)
    if not data.test_is_public:
        raise InputError(
            "a study publishes figures, and these test records are of those who are protected",
            got=f"'{name}'",
            expected="test records that are public",
            fix=f"try '{name}/new-users'",
        )
    return data


def require_no_budget(data: Dataset) -> None:
    """Refuse records that the user's own ledger has a cap for, under this name or another."""
    if not default_ledger_path().exists():
        return
    with closing(Ledger(default_ledger_path())) as own:
        known = data.name in own.names()
        enter_in_ledger(data, own)
        try:
            account = own.account(data.name)
            capped = [n for n in (data.name, *account.related) if own.account(n).cap is not None]
        finally:
            if not known:
                own.withdraw(data.name)
    if capped:
        raise InputError(
            "these records have a budget in your ledger, which a study would not charge",
            got=f"'{data.name}', capped as '{capped[0]}'",
            expected="public records",
            fix="train single models with `privet train`",
        )


@contextmanager
def ledger_in(folder: Path) -> Iterator[Ledger]:
    """The study's own."""
    with closing(Ledger(folder / FILE)) as ledger:
        yield ledger


def together(cards: dict[str, dict[str, Any]], unfinished: int) -> dict[str, Any]:
    """What all releases of a study leak together: by basic composition, epsilons and deltas add up.

    Args:
        cards: privacy figures (`statements`) of every cell that was ever trained, by its name.
        unfinished: runs that were begun and are not done.
    """
    proved = [figures["proved"].get("add-remove") for figures in cards.values()]
    bounds = [bound for bound in proved if bound is not None]
    unbounded = len(proved) - len(bounds)
    total = None if unbounded or unfinished else sum(bound["epsilon"] for bound in bounds)
    return {
        "trainings": len(proved),
        "without_proof": unbounded,
        "unfinished": unfinished,
        "epsilon": total,
        "delta": None if total is None else sum(bound["delta"] for bound in bounds),
        "note": _said(len(proved), unbounded + unfinished, total),
    }


def _said(trainings: int, without: int, total: float | None) -> str:
    begin = (
        f"{trainings} models were trained on the same records; together they leak more than each"
    )
    if total is None:
        return (
            f"{begin}: nothing bounds it, since {without} of them prove nothing. Public data only."
        )
    return f"{begin}: epsilon {total:.4g} in all, the sum (add/remove). Public data only."
