"""A network that attacks, trained privately on the records that a private run now learns from.

Its own card says what it cost, and that is composed with the run's own cost (`engine.spent`). So
the card must hold: it is verified, and the ledger must know its run. The ledger was charged when
the network was trained and is not charged again; every cap of these records counts it already.
"""

from pathlib import Path

from privet.data.dataset import Dataset
from privet.engine.fixed_parts import ATTACKER
from privet.engine.spent import Spent
from privet.errors import InputError
from privet.files import read_json
from privet.ledger import Ledger, default_ledger_path
from privet.training.stated_public import require_other_records


def spent_by(source: str) -> Spent | None:
    """What the card of the network in this folder proves; None where it proves nothing."""
    return Spent.of_card(read_json(Path(source) / "trust.json"))


def require_countable(source: str, spent: Spent | None, data: Dataset) -> Spent:
    """Refuse a network whose cost is not known, or concerns other records; answer the cost."""
    if spent is None:
        raise InputError(
            f"the {ATTACKER} has no proved epsilon that could be counted",
            got=source,
            expected="a release of `privet train ain --analysis sound` with secret noise",
            fix="train one on these records; or take one that they had no part in"
            " (--public-attacker)",
        )
    spent.require_same_units(data.name, data.unit, data.train.units is not None, part=ATTACKER)
    return spent


def require_paid(
    source: str, spent: Spent, behind: tuple[str, ...], data: Dataset, ledger: Ledger | None
) -> None:
    """Refuse a network whose card fails, or that this ledger was never charged for.

    `behind` are the data sets that had a part in it; all but these must be made of other records.
    """
    from privet.verification import verify  # which knows the methods of this room

    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    if not ledger.knows(spent.run):
        raise InputError(
            f"the ledger was not charged for the {ATTACKER}",
            got=f"run {spent.run}, unknown in {ledger.path}",
            expected="the ledger that it was trained with",
            fix="set PRIVET_HOME to that of its training",
        )
    failed = [f for f in verify(source, ledger=ledger).findings if not f.ok]
    if failed:
        raise InputError(
            f"the card of the {ATTACKER} does not hold",
            got=f"{failed[0].check}: {failed[0].detail}",
            fix=f"see `privet verify {source}`",
        )
    others = tuple(name for name in behind if name != data.name)
    require_other_records([(f"classifier of the {ATTACKER}", others)], data, ledger)
