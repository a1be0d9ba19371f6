"""Parts that a run did not learn: they are taken as they come.

A classifier behind a denoiser, or the first weights of one: their numbers are released with the
rest, so what they reveal is revealed, too. A network that makes adversarial examples: it is not
released, but has a part in every gradient. Three cases, and whoever trains must say which:

| stated           | what the card says                                                          |
|------------------|-----------------------------------------------------------------------------|
| public           | the statement is recorded, and is an assumption of every proved figure      |
| paid for         | trained privately on these records: its cost is composed with that of the   |
|                  | run (`engine.spent`), and what its proof rests on is assumed, too           |
| has seen records | no epsilon is stated for the whole; what was learned here has one by itself |

The last is no smaller guarantee but none: an attacker who is given both parts reads the one that
nothing hides.

A public part may have been trained privately on other records. What it cost those is kept with it,
and is in no figure here.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self, final

import torch
from torch import Tensor

from privet.engine.spent import Spent
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, total_epsilon
from privet.reports import figures

FIELD: Final = "fixed_parts"  # of the card
ATTACKER: Final = "network that attacks"
PAID: Final = "trained privately on these records; its cost is counted in the epsilon stated here"
Labelled = list[tuple[str, DpEvent]]
"""Events, each with the name that a card gives it."""


@final
@dataclass(frozen=True, kw_only=True)
class FixedPart:
    """One part, as it came.

    Attributes:
        part: what it is: 'classifier', 'first weights of the denoiser'.
        source: where it is from, as it was given.
        digest: of its numbers.
        public: whether it was stated that these records had no part in it.
        statement: in the words of whoever trained.
        data: names of the data sets that had a part in it, as far as its own card tells.
        spent: what it cost the records that it was trained on, where its own card proves that.
    """

    part: str
    source: str
    digest: str
    public: bool
    statement: str
    data: tuple[str, ...] = ()
    spent: Spent | None = None

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        spent = record.get("spent")
        return cls(
            **{
                **record,
                "data": tuple(record.get("data", ())),
                "spent": None if spent is None else Spent.from_json(spent),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The entry of a card."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain |= {"data": list(self.data), "spent": self.spent and self.spent.to_json()}
        return {name: value for name, value in plain.items() if value is not None}

    @property
    def paid(self) -> Spent | None:
        """What it cost these records, to be counted with the run; nothing for a public part."""
        return None if self.public else self.spent

    @property
    def assumption(self) -> str:
        """Of a public part, or of one that is paid for."""
        named = f"the {self.part} (digest {self.digest[:12]})"
        if self.paid is not None:
            return (
                f"{named} is what run {self.paid.run} learned privately from these records: all"
                " that is assumed here holds for that run, too; it was not chosen among others on"
                " these records, nor were rate, steps and target of this run by looking at it"
            )
        other = "" if self.spent is None else f" (what it cost '{self.spent.data}' is not in here)"
        return f"{named} is public, these records had no part in it: {self.statement}{other}"


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors, whatever their order: as in a module, or as in a release's file."""
    content = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        content.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        content.update(value.view(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def fixed_parts_of(trust: Mapping[str, Any]) -> tuple[FixedPart, ...]:
    """Those that a card names; most cards name none."""
    return tuple(FixedPart.from_json(record) for record in trust.get(FIELD) or ())


def data_behind(trust: Mapping[str, Any]) -> tuple[str, ...]:
    """Every data set that had a part in a release: its own, and those of its fixed parts."""
    inherited = (name for part in fixed_parts_of(trust) for name in part.data)
    return tuple(dict.fromkeys([str(trust["data"]["name"]), *inherited]))


def assumed_of_parts(trust: Mapping[str, Any], own: Collection[str]) -> Iterator[str]:
    """What a proved figure of this card rests on, besides what the run's `own` proof does."""
    for part in fixed_parts_of(trust):
        if part.public or part.paid is not None:
            yield part.assumption
        for theirs in () if part.paid is None else part.paid.assumptions:
            if theirs not in own:
                yield f"for the {part.part}: {theirs}"


def counted_with(parts: Sequence[FixedPart], own: Labelled) -> Labelled:
    """The events of a run, that of its plan last, with those of the parts that are paid for."""
    *learned, (label, plan) = own
    for part in parts:
        if part.paid is not None:
            learned += [(f"learned: for the {part.part}", event) for event in part.paid.learned]
            label, plan = f"{part.part}, then {label}", part.paid.composed_with(plan)
    return [*learned, (label, plan)]


def reasons_to_withhold(
    parts: Sequence[FixedPart],
    events: list[DpEvent],
    delta: float,
    adjacency: Adjacency,
    *,
    secret: bool,
) -> list[str]:
    """Why the whole has no epsilon, and what its learned part has by itself.

    Under noise that is not `secret` the learned part has none, either.
    """
    seen = [part.part for part in parts if not part.public and part.paid is None]
    if not seen:
        return []
    why = (
        f"the {' and the '.join(seen)} may have seen these records, and nothing bounds what that"
        " reveals"
    )
    if not secret:
        return [why]
    epsilon = figures.at_most(total_epsilon(events, delta, adjacency))
    resting = "".join(f"; if {part.assumption}" for part in parts if part.public)
    return [
        f"the guarantee covers the denoiser only, by itself (ε = {epsilon}, δ ="
        f" {figures.at_most(delta)})-DP ({adjacency}): {why}{resting}"
    ]
