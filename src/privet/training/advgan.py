"""AdvGAN: perturbations by a generative adversarial network (Xiao et al., 2018), beside AIN.

| paper    | here             | meaning                                                     |
|----------|------------------|-------------------------------------------------------------|
| G        | the perturber    | what is trained                                             |
| D        | `discriminator`  | tells perturbed images from clean ones                      |
| L_adv    | `fooling_margin` | how far F(x + G(x)) is from the goal, 0 once it is there    |
|          | `margin`         | weight of L_adv                                             |
| alpha, a | `realism`        | weight of L_GAN                                             |
| beta, b  | `hinge`          | weight of max(0, |G(x)| - c)                                |
| c        | `free_length`    | l2 norm that costs nothing                                  |

    G:  m L_adv + a (1 - D(x'))^2 + b max(0, |G(x)| - c), m the weight `margin`
    D:  (1 - D(x))^2 + D(x')^2, a step of its own before each step of G

Least squares in place of the logarithms of the text, as in the authors' program, which also cuts
perturbations off at 0.3: here at the bound, from the first epoch on. L_adv has ten times the weight
of the others: with equal ones, most of what is made stays at the margin, or short of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import discriminator
from privet.training import perturbing
from privet.training.bound_decay import BoundDecay
from privet.training.perturbing import (
    Images,
    PerturberSettings,
    PerturberTrainer,
    Tried,
    build_trainer,
    fooling_margin,
    length,
)
from privet.training.unprotected import Unprotected


@dataclass(frozen=True, kw_only=True)
class AdvGanSettings(PerturberSettings):
    """The weights of its objective.

    Attributes:
        bounds: one, kept to from the first epoch on.
        margin: of how far it is from fooling.
        realism: of what the discriminator says.
        hinge: of lengths beyond `free_length`.
        free_length: c.
    """

    bounds: str = "0.3"
    margin: float = 10.0
    realism: float = 1.0
    hinge: float = 1.0
    free_length: float = 3.0

    _what: ClassVar[str] = "advgan"

    def _check_together(self) -> None:
        super()._check_together()
        if len(self.wanted_bounds) > 1:
            raise InputError(
                "advgan learns one bound",
                got=f"bounds '{self.bounds}'",
                fix=f"--bounds {self.wanted_bounds[-1]:g}",
            )
        weights = (self.margin, self.realism, self.hinge, self.free_length)
        if not all(0 <= weight < float("inf") for weight in weights):
            raise InputError(
                "bad weights of the objective",
                got=", ".join(map("{:g}".format, weights)),
                expected="finite numbers, at least 0",
            )

    def _usual_perturber(self, data: Dataset) -> str:
        return "advgan"

    def decay_for(self, epochs: int) -> BoundDecay:
        """The bound stays."""
        bound = self.wanted_bounds[0]
        return BoundDecay(kind="none", first=bound, stops=(bound,), epochs=epochs)


@final
class Adversarial:
    """The objective, with the discriminator that learns beside the perturber."""

    def __init__(self, settings: AdvGanSettings, target: int | None, judge: nn.Module) -> None:
        self.settings, self.target, self.discriminator = settings, target, judge
        self.optimizer = torch.optim.Adam(judge.parameters(), lr=settings.learning_rate)

    def __call__(self, tried: Tried) -> Tensor:
        """A step of D, then what G is to make small, for each image."""
        self._learn(tried.x, tried.perturbed.detach())
        weights = self.settings
        taken_for_clean: Tensor = self.discriminator(tried.perturbed).flatten()
        beyond = (length(tried.perturbed - tried.x) - weights.free_length).clamp_min(0)
        return (
            weights.margin * fooling_margin(tried.scores, tried.labels, self.target, confidence=0.0)
            + weights.realism * (1 - taken_for_clean).square()
            + weights.hinge * beyond
        )

    def _learn(self, clean: Tensor, perturbed: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        real, made = self.discriminator(clean), self.discriminator(perturbed)
        torch.autograd.backward((1 - real).square().mean() + made.square().mean())
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """Of the discriminator."""
        return {
            "discriminator": self.discriminator.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.discriminator.load_state_dict(state["discriminator"])
        self.optimizer.load_state_dict(state["optimizer"])


def _objective(
    images: Images, classifier: FixedClassifier, target: int | None, *, settings: AdvGanSettings
) -> Adversarial:
    judge = discriminator(tuple(images.x.shape[1:]), init_seed=settings.init_seed)
    return Adversarial(settings, target, judge.to(images.x.device))


def _trainer(data: Dataset, settings: AdvGanSettings) -> PerturberTrainer:
    return build_trainer(data, settings, partial(_objective, settings=settings))


ADVGAN: Final = Unprotected(
    method="advgan", settings=AdvGanSettings, build=_trainer, mechanism=perturbing.mechanism
)

run = partial(perturbing.run, ADVGAN)
resume = partial(perturbing.resume, ADVGAN)
