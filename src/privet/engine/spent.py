"""What a part has cost the records before the run that uses it, as its own card proves.

Guarantee: adaptive composition. A part A is what a private mechanism M made of the records. Given
A, the run is another mechanism, whose privacy is that of its plan whatever A is: A is then a
constant. So A and all that the run reveals are M and the plan composed, for the same unit and the
same neighbours; `composed_with` is their event, and the accountant takes both by their privacy
losses.

That needs both plans fixed beforehand. The run's noise follows from its target and from M's event,
not from A; that nobody looked at A to choose the rest is assumed, and stated by the card
(`engine.fixed_parts`). Facts that M's maker learned first are pure and add up. Those that the run's
data come with are counted again, even if they are the same: too much, never too little.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

import dp_accounting as dp

from privet.engine.arguments import shown
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis, Privacy
from privet.privacy.accounting import (
    DpEvent,
    accountant_for,
    epsilon_of,
    is_pure,
    pure_epsilon,
)
from privet.privacy.events import from_json, to_json
from privet.reports import figures

# Two runs of one target: the first stays a hair below it, and all that fits there is noise.
LEAST_LEFT: Final = 0.01


@final
@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one release has cost.

    Attributes:
        run: its name in the ledger, where it was charged.
        data: name of the data set that it was made of.
        unit, grouped: what was counted as one there.
        events: pure ones of learned facts first, then that of its plan.
        adjacencies: for which neighbours they are proved.
        assumptions: what its proof rests on.
    """

    run: str
    data: str
    unit: str
    grouped: bool
    events: tuple[DpEvent, ...]
    adjacencies: tuple[Adjacency, ...]
    assumptions: tuple[str, ...]

    @classmethod
    def of_card(cls, trust: Mapping[str, Any]) -> Self | None:
        """None where the card proves nothing, or nothing that another run can be composed with."""
        stated = [Privacy.from_json(record) for record in trust["privacy"]]
        proved = [one for one in stated if one.basis is Basis.PROVED]
        if trust["analysis"] != "sound" or trust["withheld"] or not proved:
            return None
        *learned, plan = [from_json(entry["event"]) for entry in trust["events"]]
        if accountant_for(plan) != "pld" or not all(map(is_pure, learned)):
            return None
        return cls(
            run=trust["provenance"]["run"],
            data=trust["data"]["name"],
            unit=trust["data"]["unit"],
            grouped=trust["data"]["grouped"],
            events=(*learned, plan),
            adjacencies=tuple(one.adjacency for one in proved),
            assumptions=tuple(dict.fromkeys(a for one in proved for a in one.assumptions)),
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; a malformed record is bad input."""
        try:
            return cls(
                **{
                    **record,
                    "events": tuple(from_json(event) for event in record["events"]),
                    "adjacencies": tuple(Adjacency(name) for name in record["adjacencies"]),
                    "assumptions": tuple(record["assumptions"]),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("malformed cost of a part", got=repr(error)) from None

    def to_json(self) -> dict[str, Any]:
        """The entry of a card."""
        return {
            "run": self.run,
            "data": self.data,
            "unit": self.unit,
            "grouped": self.grouped,
            "events": [to_json(event) for event in self.events],
            "adjacencies": [str(name) for name in self.adjacencies],
            "assumptions": list(self.assumptions),
        }

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `to_text`."""
        return cls.from_json(json.loads(text))

    def to_text(self) -> str:
        """For a setting, which holds text."""
        return json.dumps(self.to_json())

    @property
    def learned(self) -> tuple[DpEvent, ...]:
        """Events of facts that were learned before its plan was made."""
        return self.events[:-1]

    @property
    def plan(self) -> DpEvent:
        """The event of its plan."""
        return self.events[-1]

    def composed_with(self, run: DpEvent) -> DpEvent:
        """What its plan and a run that uses it do to the data."""
        return dp.ComposedDpEvent([self.plan, run])

    def left_of(
        self, epsilon: float, delta: float, adjacencies: tuple[Adjacency, ...], *, part: str
    ) -> float:
        """The target of plan and run together; refused if the part alone takes all of it.

        `epsilon` covers all, under the first of `adjacencies`; the others are those that the run
        is proved for, too.
        """
        if not set(adjacencies) <= set(self.adjacencies):
            raise InputError(
                f"the {part} and this run are proved for other neighbours: no figure covers both",
                got=f"{', '.join(self.adjacencies)} there, {', '.join(adjacencies)} here",
                fix="use a sampler of the same neighbours: poisson, unless you said otherwise",
            )
        left = epsilon - sum(pure_epsilon(event, adjacencies[0]) for event in self.learned)
        alone = epsilon_of(self.plan, delta, adjacencies[0])
        if alone > (1 - LEAST_LEFT) * left:
            had = figures.at_most(epsilon - left + alone)
            enough = figures.at_most(epsilon - left + alone / (1 - LEAST_LEFT))
            raise InputError(
                f"next to nothing is left for this run: epsilon covers the {part}, too",
                got=f"epsilon={epsilon:g}, of which the {part} took {had} (delta={delta:g})",
                fix=f"--epsilon above {enough}, or a {part} that was trained with a smaller one",
            )
        return left

    def require_same_units(self, data: str, unit: str, grouped: bool, *, part: str) -> None:
        """Refuse to add up what concerns other records, or other units."""
        if self.data != data:
            raise InputError(
                f"the {part} was trained on other records",
                got=f"'{self.data}'",
                expected=f"'{data}', those of this run",
                fix='--public-attacker "..." if these records had no part in it',
            )
        if (self.unit, self.grouped) != (unit, grouped):
            raise InputError(
                f"the {part} protects another unit: the two costs do not add up",
                got=shown(self.unit),
                expected=shown(unit),
            )
