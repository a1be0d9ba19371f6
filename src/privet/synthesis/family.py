"""The family that IGAMT belongs to: which parts each member has.

| member | coder       | z                    | G   | critics on  | imitator | embeddings        |
|--------|-------------|----------------------|-----|-------------|----------|-------------------|
| vae    | GRU         | a law for each stay  | no  | none        | no       | none              |
| gan    | GRU         | none: no encoder     | yes | data        | no       | none              |
| vaegan | GRU         | a law for each stay  | no  | data        | no       | none              |
| aae    | GRU         | a vector for a stay  | yes | z           | no       | none              |
| daae   | GRU         | a vector for a stay  | yes | data, z     | no       | none              |
| igamt  | transformer | a vector for a row   | yes | data, m, z  | yes      | time, categories  |

What IGAMT may go without, to see what it is good for: `imitator`, `mask` (the critic on masks),
`time` (its embedding), `mixed` (those of categories). The papers' names for that:

| name   | without                    |
|--------|----------------------------|
| DGAT   | imitator, mask, time, mixed |
| DGATT  | imitator, mask, mixed      |
| DGAMT  | imitator, mask             |
| EDGAMT | imitator                   |
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, final

from privet.errors import InputError
from privet.models.record_coders import GRU, TRANSFORMER

IGAMT: Final = "igamt"
ABLATIONS: Final = ("imitator", "mask", "time", "mixed")


@final
@dataclass(frozen=True, kw_only=True)
class Member:
    """One way to make records.

    Attributes:
        name: of the method.
        summary: in a line.
        coder: 'gru' or 'transformer'.
        encoder: whether records are reconstructed at all.
        variational: whether z is a law, held near the standard normal one.
        generator: whether there is a G.
        critics: of `critic_x`, `critic_m`, `critic_z`.
        imitator: whether a copy of the decoder is what goes on.
        embeddings: of `time`, `mixed`.
        ablations: what it may go without.
    """

    name: str
    summary: str
    coder: str = GRU
    encoder: bool = True
    variational: bool = False
    generator: bool = False
    critics: tuple[str, ...] = ()
    imitator: bool = False
    embeddings: tuple[str, ...] = ()
    ablations: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Networks besides those that all have, as `RecordNetworks` calls them."""
        present = {"encoder": self.encoder, "imitator": self.imitator}
        return (*(name for name, there in present.items() if there), *self.critics)

    def without(self, ablated: Collection[str]) -> "Member":
        """The same, less some parts; what it has not is bad input."""
        foreign = sorted(set(ablated) - set(self.ablations))
        if foreign:
            raise InputError(
                f"'{self.name}' cannot go without '{foreign[0]}'",
                expected=f"some of {', '.join(self.ablations)}" if self.ablations else "nothing",
                fix="leave --without out" if not self.ablations else "name those",
            )
        critics = [c for c in self.critics if not (c == "critic_m" and "mask" in ablated)]
        return replace(
            self,
            critics=tuple(critics),
            imitator=self.imitator and "imitator" not in ablated,
            embeddings=tuple(e for e in self.embeddings if e not in ablated),
        )


FAMILY: Final = {
    member.name: member
    for member in (
        Member(
            name="vae",
            summary="a recurrent variational auto-encoder of values and masks",
            variational=True,
        ),
        Member(
            name="gan",
            summary="a recurrent generator against a critic",
            encoder=False,
            generator=True,
            critics=("critic_x",),
        ),
        Member(
            name="vaegan",
            summary="a recurrent variational auto-encoder whose samples face a critic",
            variational=True,
            critics=("critic_x",),
        ),
        Member(
            name="aae",
            summary="a recurrent auto-encoder with a generator of its latents",
            generator=True,
            critics=("critic_z",),
        ),
        Member(
            name="daae",
            summary="a recurrent auto-encoder with critics on records and on latents",
            generator=True,
            critics=("critic_x", "critic_z"),
        ),
        Member(
            name=IGAMT,
            summary="a transformer with mixed embeddings, critics, and a decoder that imitates",
            coder=TRANSFORMER,
            generator=True,
            critics=("critic_x", "critic_m", "critic_z"),
            imitator=True,
            embeddings=("time", "mixed"),
            ablations=ABLATIONS,
        ),
    )
}
LADDER: Final = {
    "DGAT": ("imitator", "mask", "time", "mixed"),
    "DGATT": ("imitator", "mask", "mixed"),
    "DGAMT": ("imitator", "mask"),
    "EDGAMT": ("imitator",),
    "IGAMT": (),
}
"""The thesis' names of IGAMT's ablations, from the least to the whole."""
