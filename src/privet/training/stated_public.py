"""Statements that a part is public, held against what is known of the part's own making."""

from collections.abc import Collection, Sequence
from typing import Final

from privet.data.catalogue import share_records
from privet.data.dataset import Dataset
from privet.data.identity import entered_in_ledger
from privet.engine.fixed_parts import ATTACKER
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path

Stated = Sequence[tuple[str, tuple[str, ...]]]
"""What was called public, and the names of the data sets behind it."""
CLASSIFIER: Final = "classifier"
_OTHERWISE: Final = {
    CLASSIFIER: "; or --private-classifier: then the whole has no epsilon",
    ATTACKER: "; or --private-attacker, if its card proves what it cost them",
}


def require_other_records(
    stated: Stated, data: Dataset, ledger: Ledger | None, *, may_be_private: Collection[str] = ()
) -> None:
    """Refuse a statement that the card of a part contradicts.

    What a part was made of counts with it, and what that was made of, as far as cards tell.
    `may_be_private`: parts of which the method takes the opposite statement, too.
    """
    behind = [(what, name) for what, names in stated for name in names]
    if not behind:
        return
    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    with entered_in_ledger(data, ledger):
        for what, name in behind:
            otherwise = _OTHERWISE[what] if what in may_be_private else ""
            _require_other(what, name, data.name, ledger, otherwise)


def _require_other(what: str, its: str, these: str, ledger: Ledger, otherwise: str) -> None:
    related = (these, *ledger.account(these).related)
    if its in related or share_records(its, these):
        raise InputError(
            f"the {what} is not public: its card says that these records had a part in it",
            got=f"made of '{its}', which shares records with '{these}'"
            if its != these
            else f"made of '{its}', too",
            fix=f"take another one{otherwise}",
        )


def lines(text: str | None) -> tuple[str, ...]:
    """The names that a setting holds, one a line."""
    return tuple((text or "").splitlines())
