"""What a trainer was made for: records in their order, and the facts declared about them.

Samples, groups and orders name a unit by its place. So a run that goes on must find every record
where it was: in another order, a unit that had its turn would take the turn of another one. And
what is stated at the end is stated of these data: of their unit, and with what it cost to learn
their facts.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self, final

from numpy.typing import NDArray

from privet.data.dataset import Dataset, Split
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.noise import fingerprint

FACTS: Final = ("name", "unit", "nominal_size", "classes", "test_is_public")
MADE_FOR_IT: Final = "the data that the trainer was made for"


@final
@dataclass(frozen=True, kw_only=True)
class Origin:
    """Declared facts by name, and names of the records.

    As private as the records: whoever knows all of them but one can try out the last. Files get
    it `sealed`, cards and releases not at all.
    """

    facts: dict[str, Any]
    train: str = field(repr=False)
    test: str = field(repr=False)

    @classmethod
    def of(cls, data: Dataset) -> Self:
        """Costs one pass over the bytes of the records."""
        facts = {name: getattr(data, name) for name in FACTS} | {
            "bounds": asdict(data.bounds),
            "learned": [asdict(fact) for fact in data.learned],
        }
        if data.schema is not None:
            facts["schema"] = dict(data.schema)
        return cls(facts=facts, train=_name_of_split(data.train), test=_name_of_split(data.test))

    def sealed(self, ledger: Ledger, run_id: str) -> str:
        """For the private files of a run: tells nothing to whoever lacks the ledger's key."""
        content = json.dumps([self.facts, self.train, self.test], default=repr)
        return ledger.commitment(content, run_id)

    def require(self, data: Dataset, *, in_part: bool = False) -> None:
        """Refuse any other data; `in_part`: where only some of its records trained."""
        given = type(self).of(data)
        for name, expected in self.facts.items():
            if given.facts[name] != expected and not (in_part and name == "nominal_size"):
                raise InputError(
                    "the trainer was given other data",
                    got=f"{name} {given.facts[name]!r}",
                    expected=f"{name} {expected!r}",
                    fix=f"hand over {MADE_FOR_IT}",
                )
        if given.test != self.test or (given.train != self.train and not in_part):
            raise InputError(
                "the trainer was given other data",
                got="other records, or the same in another order",
                expected=MADE_FOR_IT,
            )


def name_of(arrays: Iterable[NDArray[Any]]) -> str:
    """A collision-resistant name of numbers in their order."""
    return "|".join(f"{a.dtype.str}{a.shape}{fingerprint(a).hex()}" for a in arrays)


def _name_of_split(split: Split) -> str:
    grouped = "" if split.units is None else "grouped|"
    return grouped + name_of([split.x, split.y, split.unit_of_record])
