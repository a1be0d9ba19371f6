"""ATN: Adversarial Transformation Networks (Baluja and Fischer, 2017), to compare AIN with.

| paper   | here              | meaning                                                  |
|---------|-------------------|----------------------------------------------------------|
| g       | `tried.perturbed` | an autoencoder's image                                   |
| F       | probabilities     | of the fixed classifier                                  |
| t       | `target`          | class to reach; there is no attack without               |
| beta    | `distance`        | weight of the distance to x                              |
| alpha   | `boost`           | how much likelier than the likeliest t is to be          |
| r       | `reranked`        | F(x) with entry t set to alpha max F(x), made to sum to 1 |

    L = beta |x - g(x)| + |F(g(x)) - r(F(x), t)|, norms l2, of one image

There is no bound on perturbations: what it makes is cut off at the size of an attack. `bounds` cuts
off while it learns, too, which makes it the stronger rival of a method that knows its bound.

The network gives the image itself, and begins with a grey one, of which the classifier is not sure.
From x plus a correction that begins at zero it would not get away: there F is so sure of its answer
that probabilities have no slope.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.models.fixed_classifier import FixedClassifier
from privet.training import perturbing
from privet.training.bound_decay import BoundDecay
from privet.training.perturbing import (
    Images,
    PerturberSettings,
    PerturberTrainer,
    Tried,
    build_trainer,
    length,
    probabilities,
)
from privet.training.unprotected import Unprotected


@dataclass(frozen=True, kw_only=True)
class AtnSettings(PerturberSettings):
    """The two numbers of its objective.

    Attributes:
        bounds: one, kept to from the first epoch on; 1, the whole range of a pixel, is none.
        distance: beta.
        boost: alpha, above 1.
    """

    bounds: str = "1"
    distance: float = 0.1
    boost: float = 1.5

    _what: ClassVar[str] = "atn"
    _positive: ClassVar[tuple[str, ...]] = (*PerturberSettings._positive, "distance")

    def _check_together(self) -> None:
        super()._check_together()
        if self.target is None:
            raise InputError("atn has no attack without a target", fix="--target CLASS")
        if len(self.wanted_bounds) > 1:
            raise InputError(
                "atn learns one bound, or none",
                got=f"bounds '{self.bounds}'",
                fix=f"--bounds {self.wanted_bounds[-1]:g}, or leave it out",
            )
        if not 1 < self.boost < float("inf"):
            raise InputError("bad boost", got=self.boost, expected="a finite number above 1")

    def _usual_perturber(self, data: Dataset) -> str:
        return "atn-12"

    def decay_for(self, epochs: int) -> BoundDecay:
        """The bound stays."""
        bound = self.wanted_bounds[0]
        return BoundDecay(kind="none", first=bound, stops=(bound,), epochs=epochs)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Reranking:
    """The objective; `wanted` is r(F(x), t), for each training image."""

    settings: AtnSettings
    wanted: Tensor

    def __call__(self, tried: Tried) -> Tensor:
        """L, for each image."""
        said = torch.softmax(tried.scores, 1)
        return self.settings.distance * length(tried.perturbed - tried.x) + length(
            said - self.wanted[tried.places]
        )

    def state(self) -> dict[str, Any]:
        """It learns nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


def reranked(said: Tensor, target: int, boost: float) -> Tensor:
    """r: the target leads by the factor `boost`, the others keep their order."""
    raised = said.clone()
    raised[:, target] = boost * said.amax(1)
    return raised / raised.sum(1, keepdim=True)


def _objective(
    images: Images, classifier: FixedClassifier, target: int | None, *, settings: AtnSettings
) -> Reranking:
    assert target is not None
    said = probabilities(images, classifier)
    return Reranking(settings=settings, wanted=reranked(said, target, settings.boost))


def _trainer(data: Dataset, settings: AtnSettings) -> PerturberTrainer:
    return build_trainer(data, settings, partial(_objective, settings=settings))


ATN: Final = Unprotected(
    method="atn", settings=AtnSettings, build=_trainer, mechanism=perturbing.mechanism
)

run = partial(perturbing.run, ATN)
resume = partial(perturbing.resume, ATN)
