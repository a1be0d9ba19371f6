"""What an audit found: a lower bound of epsilon, with all that it rests on.

A bound is a number with a confidence and a list of assumptions. Evidence is a bound about
something: which mechanism was attacked, how, and under which neighbouring relation.

Guarantee: figures are rounded down, never up, so a stored bound is never above the computed one.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Final

from privet.errors import InputError
from privet.guarantee import Adjacency, Basis

_PLACES: Final = Decimal("1e-6")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """epsilon is at least this at delta, with this confidence, under these assumptions."""

    epsilon: float
    delta: float
    confidence: float
    estimator: str
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise InputError(
                "bad lower bound of epsilon",
                got=self.epsilon,
                expected="a finite number, 0 or more",
            )
        check_delta(self.delta)
        check_confidence(self.confidence)
        if not self.estimator:
            raise InputError("nameless bound", got="no estimator", expected="how it was computed")

    def evidence(
        self,
        *,
        adjacency: Adjacency | str,
        unit: str,
        attack: str,
        canaries: int,
        runs: int,
        subject: str,
    ) -> "Evidence":
        """The bound, about a subject."""
        return Evidence(
            epsilon=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            estimator=self.estimator,
            assumptions=self.assumptions,
            adjacency=_known_adjacency(adjacency),
            unit=unit,
            attack=attack,
            canaries=canaries,
            runs=runs,
            subject=subject,
        )


@dataclass(frozen=True, kw_only=True)
class Evidence(Bound):
    """A bound, and what was attacked how; complete enough to be judged by a stranger.

    Attributes:
        epsilon, delta, confidence: the bound; it fails with probability 1 - confidence at most.
        estimator: how it was computed from the scores.
        assumptions: what must hold for it; what is not listed is not assumed.
        adjacency: the neighbouring relation of the two worlds that were told apart.
        unit: whose data one canary is (example, user, patient).
        attack: where the scores came from.
        canaries, runs: how many records were tried, and how many runs of the mechanism.
        subject: what was run: a step of the mechanism, a twin of the release, the release.
    """

    adjacency: Adjacency
    unit: str
    attack: str
    canaries: int
    runs: int
    subject: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unit", "attack", "subject"):
            if not getattr(self, name):
                raise InputError(f"evidence without {name}", got="nothing", expected="a few words")
        for name in ("canaries", "runs"):
            if getattr(self, name) < 1:
                raise InputError(f"bad number of {name}", got=getattr(self, name), expected=">= 1")

    def to_json(self) -> dict[str, Any]:
        """The row of a trust card; epsilon is rounded down."""
        return {
            "basis": Basis.AUDITED.value,
            "epsilon": rounded_down(self.epsilon),
            "delta": self.delta,
            "confidence": self.confidence,
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "estimator": self.estimator,
            "assumptions": list(self.assumptions),
            "attack": self.attack,
            "canaries": self.canaries,
            "runs": self.runs,
            "subject": self.subject,
        }


def rounded_down(value: float) -> float:
    """To six decimals, never above the value."""
    # A float is an exact decimal, and the nearest float of a smaller decimal is not above it.
    return float(Decimal(value).quantize(_PLACES, rounding=ROUND_FLOOR))


def check_delta(delta: float) -> None:
    """Refuse a delta that means nothing."""
    if not 0.0 <= delta < 1.0:
        raise InputError("bad delta", got=delta, expected="0 <= delta < 1", fix="try 1e-5")


def check_confidence(confidence: float) -> float:
    """The level 1 - confidence; a confidence that would say nothing is refused."""
    if not 0.5 <= confidence < 1.0:
        raise InputError(
            "bad confidence", got=confidence, expected="0.5 <= confidence < 1", fix="try 0.95"
        )
    return 1.0 - confidence


def _known_adjacency(adjacency: Adjacency | str) -> Adjacency:
    try:
        return Adjacency(adjacency)
    except ValueError:
        raise InputError("bad adjacency", got=adjacency, expected=" or ".join(Adjacency)) from None
