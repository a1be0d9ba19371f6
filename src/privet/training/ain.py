"""AIN: a network that makes adversarial examples in one pass, by imitation (TDSC 2021).

| paper      | here               | meaning                                                        |
|------------|--------------------|----------------------------------------------------------------|
| F          | `classifier`       | fixed, attacked                                                |
| x_adv      | `examples`         | found beforehand by i-FGSM                                     |
| x' = x + p | `tried.perturbed`  | the network's own, |p| <= B                                    |
| beta_d     | `distance`         | weight of L_d                                                  |
| beta_m1    | `pixels`           | weight of the imitation of images                              |
| beta_m2    | `logits`           | weight of the imitation of scores                              |
| beta_c     | `margin`           | weight of L_c                                                  |
| B_0        | `first_bound`      | where the bound begins                                         |

    L   = beta_d L_d + beta_m1 |x' - x_adv| + beta_m2 |F(x') - F(x_adv)| + beta_c L_c
    L_d = |p|
    L_c = F(x')_s - F(x')_t, s the likeliest class but the target t;
          untargeted F(x')_y - F(x')_s, s the likeliest class but y;
          with `fooling` 'entropy' -log P(t), untargeted -log(1 - P(y)), P the softmax of F(x')

Norms are l2, of one image. The loop is `perturbing.py`, the bound `bound_decay.py`, the network
`models/perturbers.py`.

Deviations. Scores are imitated only where x_adv fools, as in the authors' program. L_c stops at
-`confidence`, 2 by default: an image that is fooled clearly is left alone, where the program
rewards it up to 50 to 500 and punishes exponentially what is not fooled. Betas are not multiplied
when the bound tightens, which Adam would not notice. No penalty on weights, no cross entropy of
pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor

from privet.attacks.geometry import moved, project, steepest
from privet.attacks.losses import Goal, cross_entropy
from privet.attacks.victim import Victim
from privet.classifiers import open_classifier
from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.models.fixed_classifier import FixedClassifier
from privet.training import perturbing
from privet.training.bound_decay import KINDS, BoundDecay
from privet.training.perturbing import (
    AT_ONCE,
    Images,
    PerturberSettings,
    PerturberTrainer,
    Tried,
    build_trainer,
    fooling_entropy,
    fooling_margin,
    length,
)
from privet.training.unprotected import Unprotected

CONFIDENT: Final = 2.0
FOOLING: Final = ("margin", "entropy")
ARRIVAL: Final = 0.5  # of the epochs, after which the smallest bound is reached


@dataclass(frozen=True, kw_only=True)
class AinSettings(PerturberSettings):
    """Weights of the objective, and how the bound tightens.

    Attributes:
        first_bound: B_0.
        decay: how the bound tightens: 'adaptive', 'exponential', 'step', 'time', or 'none'.
        distance, pixels, logits, margin: weights of the four terms.
        fooling: L_c: the 'margin' of scores, or the cross 'entropy', which does not stop where an
            image is fooled and goes easy on those that are far from it.
        confidence: the lead of scores beyond which a margin wins nothing more.
        imitation_steps: of i-FGSM, each of the smallest bound divided by their number.
    """

    first_bound: float = 0.8
    decay: str = "adaptive"
    distance: float = 0.01
    pixels: float = 0.1
    logits: float = 0.1
    margin: float = 1.0
    fooling: str = "margin"
    confidence: float = CONFIDENT
    imitation_steps: int = 50

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **PerturberSettings._choices,
        "decay": KINDS,
        "fooling": FOOLING,
    }
    _positive: ClassVar[tuple[str, ...]] = (
        *PerturberSettings._positive,
        "first_bound",
        "confidence",
    )
    _counts: ClassVar[tuple[str, ...]] = (*PerturberSettings._counts, "imitation_steps")

    def _check_together(self) -> None:
        super()._check_together()
        weights = (self.distance, self.pixels, self.logits, self.margin)
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
            raise InputError(
                "bad weights of the objective",
                got=", ".join(map("{:g}".format, weights)),
                expected="finite numbers, at least 0, not all 0",
            )
        if self.decay == "none" and len(self.wanted_bounds) > 1:
            raise InputError(
                "without decay one bound is learned",
                got=f"bounds '{self.bounds}'",
                fix=f"--bounds {self.wanted_bounds[-1]:g}, or a --decay",
            )
        self.decay_for(1)

    def decay_for(self, epochs: int) -> BoundDecay:
        """The smallest bound is reached after half of the epochs."""
        return BoundDecay(
            kind=self.decay,
            first=max(self.first_bound, self.wanted_bounds[0]),
            stops=self.wanted_bounds,
            epochs=max(1, round(ARRIVAL * epochs)),
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Imitation:
    """The objective, with what is imitated.

    Attributes:
        examples, scores: x_adv and F(x_adv), for each training image.
        fooling: which of them fool.
    """

    settings: AinSettings
    target: int | None
    examples: Tensor
    scores: Tensor
    fooling: Tensor

    def __call__(self, tried: Tried) -> Tensor:
        """L, for each image."""
        weights, at = self.settings, tried.places
        apart = length(tried.scores - self.scores[at])
        margin = self._fooling(tried)
        return (
            weights.distance * length(tried.perturbed - tried.x)
            + weights.pixels * length(tried.perturbed - self.examples[at])
            + weights.logits * torch.where(self.fooling[at], apart, 0.0)
            + weights.margin * margin
        )

    def _fooling(self, tried: Tried) -> Tensor:
        """L_c."""
        if self.settings.fooling == "entropy":
            return fooling_entropy(tried.scores, tried.labels, self.target)
        return fooling_margin(
            tried.scores, tried.labels, self.target, confidence=self.settings.confidence
        )

    def state(self) -> dict[str, Any]:
        """It learns nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


def imitation_of(
    images: Images, classifier: FixedClassifier, target: int | None, *, settings: AinSettings
) -> Imitation:
    """What i-FGSM finds within the smallest bound, and the objective to imitate it."""
    found = images.x  # nothing is searched for where nothing is imitated
    if settings.pixels or settings.logits:
        found = _searched(images, classifier, target, settings)
    with torch.no_grad():
        scores = torch.cat([classifier(part) for part in torch.split(found, AT_ONCE)])
    return Imitation(
        settings=settings,
        target=target,
        examples=found,
        scores=scores,
        fooling=_goal(images.labels, target).reached(scores),
    )


def _searched(
    images: Images, classifier: FixedClassifier, target: int | None, settings: AinSettings
) -> Tensor:
    """x_adv of every image."""
    shape = tuple(images.x.shape[1:])
    victim = Victim(open_classifier(classifier, shape=shape), draws=1)
    return torch.cat(
        [_walked(victim, part.x, _goal(part.labels, target), settings) for part in images.parts()]
    )


def _walked(victim: Victim, x: Tensor, goal: Goal, settings: AinSettings) -> Tensor:
    """I-FGSM that takes all its steps: scores that are just over the border teach little."""
    steps, size = settings.imitation_steps, settings.wanted_bounds[-1]
    d = torch.zeros_like(x)
    for _ in range(steps):
        gradient, _, _ = victim.gradient(moved(x, d), goal, cross_entropy)
        d = project(d + size / steps * steepest(gradient, "linf"), x, size, "linf")
    return moved(x, d)


def _goal(labels: Tensor, target: int | None) -> Goal:
    wanted = labels if target is None else torch.full_like(labels, target)
    return Goal(labels=wanted, targeted=target is not None)


def _trainer(data: Dataset, settings: AinSettings) -> PerturberTrainer:
    return build_trainer(data, settings, partial(imitation_of, settings=settings))


def _mechanism(trainer: PerturberTrainer, settings: AinSettings) -> dict[str, Any]:
    return perturbing.mechanism(trainer, settings) | {"decay": settings.decay}


AIN: Final = Unprotected(method="ain", settings=AinSettings, build=_trainer, mechanism=_mechanism)

run = partial(perturbing.run, AIN)
resume = partial(perturbing.resume, AIN)
