"""Records by an autoregressive transformer over discretised rows, every update private.

The network and its factors are `models/row_transformer.py`; the loop is `engine/trainer.py`.

    in each step, for a Poisson sample of patients of rate q, each patient i by themselves:
        l_i = mean over their stays (at most `contribution`) of
              - w_s log p(static) - w_b log p(habits) - w_r log p(rows) - w_o log p(outcomes)
        u_i = grad l_i, each layer shortened to its share of C
        theta <- optimiser(theta, (sum of u_i + N(0, sigma^2 C^2)) / (q N))

Guarantee: that of DP-SGD, for the patient: l_i is a function of patient i's stays and the weights.
What the schema says (bounds, vocabularies, sizes, the most rows of a stay) is public or charged in
`learned`. Sampling looks at the weights alone.

Layers are clipped apart, because what they learn is of different size: a stay has hundreds of
measured cells and one outcome, and under one norm for all the outcome would drown in the noise.
w_s, w_b and w_o are so small that their layers are hardly ever clipped: clipped, every patient
would push with the same force, the rarer outcome would vanish and other shares be off. `SHARES`
and the learning rate were compared on simulated records; the weights and the optimiser were set
after fits of PhysioNet 2012 were seen, so for those very records they are not chosen beforehand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.engine.prepare import Extras
from privet.models.generators import DEFAULT, create_generator
from privet.privacy.geometry import Geometry
from privet.privacy.units import PerExampleLoss
from privet.synthesis.generating import Generating, schema_of
from privet.training.plain import PlainSettings
from privet.training.settings import Settings

NAME: Final = "autoregressive"
# Of the clip norm, by layer; those that are not named have 1. See the module's words.
SHARES: Final[Mapping[str, float]] = {
    "outcome": 3.0,
    "cells": 2.0,
    "own": 3.0,
    "with_measured": 2.0,
    "with_values": 2.0,
}


@final
@dataclass(frozen=True, kw_only=True)
class RecordLoss:
    """The weighted sum of what `RowTransformer` gives for a stay."""

    static: float
    habits: float
    rows: float
    outcome: float

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One value for each stay; there are no labels."""
        static, habits, rows, outcomes = outputs.unbind(1)
        about = self.static * static + self.habits * habits
        return about + self.rows * rows + self.outcome * outcomes


@dataclass(frozen=True, kw_only=True)
class _Rows(Generating):
    """What a run has in common, private or not.

    Attributes:
        static_weight: of static columns in the objective, w_s.
        habit_weight: of how often columns are measured, w_b.
        row_weight: of the rows of a stay, w_r.
        outcome_weight: of its outcomes, w_o.
    """

    static_weight: float = 1.0
    habit_weight: float = 0.1
    row_weight: float = 0.02
    outcome_weight: float = 3.0

    _positive: ClassVar[tuple[str, ...]] = (
        *Generating._positive,
        "static_weight",
        "habit_weight",
        "row_weight",
        "outcome_weight",
    )

    def _default_model(self, data: Dataset) -> str:
        return DEFAULT

    def network(self, data: Dataset) -> nn.Module:
        """What is trained, for filled settings."""
        assert self.model is not None
        return create_generator(self.model, schema_of(data), init_seed=self.init_seed)

    @property
    def loss(self) -> PerExampleLoss:
        """Of one stay."""
        return RecordLoss(
            static=self.static_weight,
            habits=self.habit_weight,
            rows=self.row_weight,
            outcome=self.outcome_weight,
        )


@dataclass(frozen=True, kw_only=True)
class AutoregressiveSettings(_Rows, Settings):
    """The settings of DP-SGD, and three weights.

    Attributes:
        batch: expected patients in a step; default: a fifth of the nominal size, at most 1024.
    """

    epochs: float = 20.0
    learning_rate: float = 0.2
    static_weight: float = 0.005
    habit_weight: float = 0.002
    outcome_weight: float = 0.027
    ema: float = 0.95
    clipping: str = "per-layer"

    method: ClassVar[str] = NAME
    _positive: ClassVar[tuple[str, ...]] = (*_Rows._positive, "clip_norm")

    def _batch_for(self, nominal_size: int) -> int:
        return max(1, min(1024, nominal_size // 5))

    def extras(self) -> Extras:
        """Shares of the clip norm for the layers, where these are clipped apart."""
        extras = super().extras()
        if self.clipping != "per-layer":
            return extras
        return replace(extras, geometry=Geometry.per_layer(SHARES))


@dataclass(frozen=True, kw_only=True)
class PlainAutoregressiveSettings(_Rows, PlainSettings):
    """The same without privacy."""

    epochs: float = 30.0
    learning_rate: float = 0.005
    optimizer: str = "adam"

    def _batch_for(self, nominal_size: int) -> int:
        return min(200, nominal_size)
