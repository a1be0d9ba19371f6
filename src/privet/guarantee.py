"""What is promised, about which unit, between which neighbours, and on what basis."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Self

from privet.errors import InputError

USUAL_EPSILON: Final = 3.0
BEYOND_DOUBT: Final = 0.999
"""The confidence with which an audit refutes a statement."""

REFUTED: Final = "refuted: "
"""How the gap begins that names the counter-example of a claim."""


class Basis(StrEnum):
    """Why a figure may be believed."""

    PROVED = "proved"
    """Follows from the standard definition and from what the code does."""
    CLAIMED = "claimed"
    """A paper's theorem; its gaps are listed beside it."""
    AUDITED = "audited"
    """A statistical lower bound, measured on the trained model."""


class Adjacency(StrEnum):
    """Which two data sets must be hard to tell apart."""

    ADD_REMOVE = "add-remove"
    """One has one unit more than the other."""
    REPLACE_ONE = "replace-one"
    """Same size, one unit differs."""
    ZERO_OUT = "zero-out"
    """Same size, one unit is replaced by a null unit that contributes nothing."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """One (epsilon, delta) statement, complete enough to be checked by a stranger.

    Attributes:
        epsilon, delta: the statement; for `audited` a lower bound on epsilon at this delta.
        unit: whose data one unit is (example, user, patient).
        adjacency: the neighbouring relation.
        basis: proved, claimed or audited.
        accountant: how epsilon was computed from the events.
        sampler: how the units of a step are drawn; what the accountant assumes.
        assumptions: what must hold outside the code.
        gaps: for a claim, what its proof misses.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: Adjacency
    basis: Basis
    accountant: str
    sampler: str
    assumptions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry of `trust.json`."""
        record = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in record.items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read an entry of `trust.json`; a malformed one is bad input."""
        try:
            fields = dict(record)
            fields["adjacency"] = Adjacency(fields["adjacency"])
            fields["basis"] = Basis(fields["basis"])
            fields["assumptions"] = tuple(fields.get("assumptions", ()))
            fields["gaps"] = tuple(fields.get("gaps", ()))
            fields["epsilon"], fields["delta"] = float(fields["epsilon"]), float(fields["delta"])
            if not (fields["epsilon"] >= 0 and 0 <= fields["delta"] < 1):
                raise ValueError(f"epsilon={fields['epsilon']}, delta={fields['delta']}")
            return cls(**fields)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError("malformed privacy entry in trust.json", got=error) from None


def strongest_proved(guarantees: Iterable[Privacy]) -> Privacy | None:
    """The proved statement with the smallest epsilon, or None where nothing is proved.

    Statements under different adjacencies are not comparable; add/remove is the one people
    quote, so it goes first where it exists.
    """
    proved = [g for g in guarantees if g.basis is Basis.PROVED]
    return min(
        proved, key=lambda g: (g.adjacency is not Adjacency.ADD_REMOVE, g.epsilon), default=None
    )


def check_target(epsilon: float, delta: float, *, usual: float = USUAL_EPSILON) -> None:
    """Refuse a privacy target that means nothing; `usual`: one to try instead."""
    if not 0 < epsilon < float("inf"):
        raise InputError(
            "bad epsilon", got=epsilon, expected="a positive, finite number", fix=f"try {usual:g}"
        )
    if not 0 < delta < 1:
        raise InputError(
            "bad delta", got=delta, expected="0 < delta < 1", fix="try 1e-5, below 1/size of data"
        )
