"""How the settings of a run were chosen, and what that cost.

| kind      | the settings                                | what the stated epsilon covers      |
|-----------|---------------------------------------------|-------------------------------------|
| declared  | are the user's, not chosen on these records | the run                             |
| public    | of a recipe that was tuned on other data    | the run                             |
| uncharged | of a recipe that was tuned on these records | the run, not the choice of settings |
| charged   | were selected among several runs, privately | all runs and the choice             |
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from privet.errors import InputError
from privet.privacy.accounting import DpEvent, Selection

ASSUMED: Final = {
    "declared": "the settings (model, learning rate, clip norm, steps) were not chosen on these"
    " records",
    "public": "what was changed in the recipe was not chosen on these records",
    "uncharged": "the choice of the settings, made on these records without charge, reveals"
    " nothing",
    "charged": "the candidates and the settings that were not searched were not chosen on these"
    " records, and the number of runs stays secret",
}
KINDS: Final = tuple(ASSUMED)
MOST_RUNS: Final = 10_000
MOST_SHAPE: Final = 10


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The best of a random number of runs, by a noisy score on units that train none of them.

    The mechanism and the proof are in `tuning.selection`.

    Attributes:
        mean: expected number of runs.
        shape: of the truncated negative binomial distribution of that number; 1: geometric.
        holdout: share of the units that score the runs.
        score_multiplier: noise on the number of correct answers, whose sensitivity is 1.
    """

    mean: float
    shape: float
    holdout: float
    score_multiplier: float

    def __post_init__(self) -> None:
        if not 2 <= self.mean <= MOST_RUNS:
            raise InputError(
                "bad expected number of trials", got=self.mean, expected=f"2 to {MOST_RUNS}"
            )
        if not 0 <= self.shape <= MOST_SHAPE:
            raise InputError("bad shape", got=self.shape, expected=f"0 to {MOST_SHAPE}")
        if not 0 < self.holdout < 1:
            raise InputError("bad holdout", got=self.holdout, expected="0 < holdout < 1")
        if not 0 < self.score_multiplier < float("inf"):
            raise InputError(
                "bad noise of the score", got=self.score_multiplier, expected="a positive number"
            )

    def event(self, run: DpEvent) -> DpEvent:
        """What all runs and the choice do to the data; scores cost no more than runs do."""
        return Selection(run, self.mean, self.shape)


def score_noise(rate: float, noise_multiplier: float, turns: int) -> float:
    """The least noise on a score that costs a held-out unit no more than a run costs the others.

    Proof: at a whole order a the divergence of `turns` sampled Gaussians is that many times
    log E[exp((k^2 - k) / (2 z^2))] / (a - 1) for k ~ Binomial(a, q). By Jensen it is at least
    turns E[k^2 - k] / (2 z^2 (a - 1)) = a turns q^2 / (2 z^2), the divergence of one Gaussian of
    multiplier z / (q sqrt(turns)).
    """
    return noise_multiplier / (rate * math.sqrt(turns)) * (1 + 1e-12)  # rounded up


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """One of the four kinds, in words, and the selection where there was one."""

    kind: str
    detail: str
    selected: Selected | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or (self.kind == "charged") != (self.selected is not None):
            raise InputError("bad kind of tuning", got=self.kind, expected=f"one of {KINDS}")

    @property
    def assumption(self) -> str:
        """What must hold of the choice for the stated epsilon to be the whole of it."""
        return ASSUMED[self.kind]

    def event(self, run: DpEvent) -> DpEvent:
        """What the run and the choice of its settings do to the data."""
        return run if self.selected is None else self.selected.event(run)

    def training_size(self, nominal_size: int) -> int:
        """The nominal number of units that train: all but those held out."""
        share = 1.0 if self.selected is None else 1.0 - self.selected.holdout
        return max(1, round(share * nominal_size))

    def to_json(self) -> dict[str, Any]:
        """The entry of `trust.json`."""
        return {**asdict(self), "assumption": self.assumption}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; a malformed record is bad input."""
        try:
            fields = {name: value for name, value in record.items() if name != "assumption"}
            selected = fields["selected"]
            return cls(**fields | {"selected": selected and Selected(**selected)})
        except (KeyError, TypeError) as error:
            raise InputError("malformed tuning entry in trust.json", got=repr(error)) from None


DECLARED: Final = Tuning(kind="declared", detail="the settings were given by the user")
