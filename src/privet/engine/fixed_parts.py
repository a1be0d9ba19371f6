"""Parts that a run did not learn: they are taken as they come.

A classifier behind a denoiser, or the first weights of one: their numbers are released with the
rest, so what they reveal is revealed, too. A network that makes adversarial examples: it is not
released, but has a part in every gradient. Two cases, and whoever trains must say which:

| stated           | what the card says                                                          |
|------------------|-----------------------------------------------------------------------------|
| public           | the statement is recorded, and is an assumption of every proved figure      |
| has seen records | no epsilon is stated for the whole; what was learned here has one by itself |

The second is no smaller guarantee but none: an attacker who is given both parts reads the one that
nothing hides.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self, final

import torch
from torch import Tensor

from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent, total_epsilon
from privet.reports import figures

FIELD: Final = "fixed_parts"  # of the card
ATTACKER: Final = "network that attacks"


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
    """

    part: str
    source: str
    digest: str
    public: bool
    statement: str
    data: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{**record, "data": tuple(record.get("data", ()))})

    def to_json(self) -> dict[str, Any]:
        """The entry of a card."""
        return asdict(self) | {"data": list(self.data)}

    @property
    def assumption(self) -> str:
        """Of a public part."""
        return (
            f"the {self.part} (digest {self.digest[:12]}) is public, these records had no part in"
            f" it: {self.statement}"
        )


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


def assumed_public(trust: Mapping[str, Any]) -> Iterator[str]:
    """What a proved figure of this card rests on."""
    yield from (part.assumption for part in fixed_parts_of(trust) if part.public)


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
    seen = [part.part for part in parts if not part.public]
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
