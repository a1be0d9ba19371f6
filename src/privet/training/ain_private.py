"""AIN with a proof: a network that attacks, whose every update is private.

| paper           | here              | meaning                                               |
|-----------------|-------------------|-------------------------------------------------------|
| F               | `classifier`      | fixed                                                 |
| G               | `perturber`       | what is trained                                       |
| B               | `bounds`          | one, from the first step on                           |
| L_d, L_c        | `Fooling`         | length of p, and the margin that is left, of an image |
| beta_d, beta_c  | `distance`, `margin` | their weights                                      |

    in each step, for a Poisson sample of rate q, each image x_i by itself:
        y_i = F's answer to x_i,   x'_i = x_i + p_i, |p_i| <= B,   p_i = G(x_i, y_i, fresh noise)
        u_i = grad [beta_d |p_i| + beta_c L_c(F(x'_i))], shortened to C
        theta <- optimiser(theta, (sum of u_i + N(0, sigma^2 C^2)) / (q N))

Guarantee: that of DP-SGD, for the network. u_i is a function of record i, of its own draws, of the
weights before the step, and of F, which is a constant if no record had a part in it: that must be
stated (`public_classifier`). With a classifier that has seen the records u_i depends on others
through it, so `private_classifier` is refused.

What the network makes is no private thing: x' is x up to B in each pixel.

Deviations from AIN without privacy: one bound that does not tighten (adaptive decay looks at
validation records, and every look would cost); nothing is imitated; images of the target class are
in the sample and give no gradient, since leaving them out would tell how many there are.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.models.attacked import Attacked
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import CodeNoise, Perturber
from privet.privacy.units import PerExampleLoss
from privet.training import dpsgd
from privet.training.against_classifier import AgainstClassifier
from privet.training.ain import CONFIDENT
from privet.training.perturbing import fooling_margin, length
from privet.training.settings import Settings
from privet.training.stated_public import CLASSIFIER


@dataclass(frozen=True, kw_only=True)
class PrivateAinSettings(AgainstClassifier, Settings):
    """The settings of DP-SGD, whom to attack, and two weights.

    Attributes:
        bounds: one.
        distance, margin: weights of the two terms.
    """

    distance: float = 0.01
    margin: float = 1.0
    learning_rate: float = 1e-3
    optimizer: str = "adam"

    method: ClassVar[str] = "ain"

    def _check_together(self) -> None:
        super()._check_together()
        if len(self.wanted_bounds) > 1:
            raise InputError("a private run learns one bound", got=f"bounds '{self.bounds}'")
        if self.private_classifier:
            raise InputError(
                "a classifier that has seen the records would bring them into every gradient",
                got="private_classifier",
                fix="attack a public one",
            )
        if self.adversarial != "none" or self.input_noise or self.augment != "none":
            raise InputError("a network that attacks learns from images as they are")
        if not (0 <= self.distance < float("inf") and 0 < self.margin < float("inf")):
            raise InputError(
                "bad weights of the objective",
                got=f"{self.distance:g}, {self.margin:g}",
                expected="finite numbers, distance at least 0, margin above 0",
            )

    @property
    def _may_be_private(self) -> tuple[str, ...]:
        """Not the classifier: gradients go through it."""
        return tuple(part for part in super()._may_be_private if part != CLASSIFIER)

    def network(self, data: Dataset) -> nn.Module:
        """What the engine trains: the terms of the objective as a function of clean images."""
        classifier, bound = self.fixed(data).module, self.wanted_bounds[0]
        return Fooling(self.first_perturber(data), classifier, bound, self.target_class(data))

    @property
    def loss(self) -> PerExampleLoss:
        """Of one image."""
        return FoolingLoss(distance=self.distance, margin=self.margin)

    def made_of(self, trained: nn.Module, data: Dataset, plan: Plan) -> nn.Module:
        """The network with the classifier behind it."""
        perturber = trained.train().get_submodule("perturber")
        assert isinstance(perturber, Perturber)
        return Attacked([perturber], self.wanted_bounds, self.fixed(data).module, data.shape)


@final
class Fooling(nn.Module):
    """L_d and L_c of clean images, one row each; images of the target class have zeros.

    Noise inside the perturber is drawn in training alone, as the engine expects of every draw.
    """

    def __init__(
        self, perturber: Perturber, classifier: FixedClassifier, bound: float, target: int | None
    ) -> None:
        super().__init__()
        self.perturber, self.classifier = perturber, classifier
        self.bound, self.target = bound, target

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) -> (n, 2)."""
        with torch.no_grad():
            labels = self.classifier(x).argmax(1)
        tried = self.perturber.perturbed(x, labels, self.bound)
        margin = fooling_margin(self.classifier(tried), labels, self.target, confidence=CONFIDENT)
        terms = torch.stack([length(tried - x), margin], 1)
        counts = labels != (-1 if self.target is None else self.target)
        return torch.where(counts[:, None], terms, 0.0)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and with it whether there is noise."""
        for part in self.perturber.modules():
            if isinstance(part, CodeNoise):
                part.silent = not mode
        return super().train(mode)


@final
@dataclass(frozen=True, kw_only=True)
class FoolingLoss:
    """The weighted sum of what `Fooling` gives."""

    distance: float
    margin: float

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One value for each image; their true labels are not asked for."""
        return self.distance * outputs[:, 0] + self.margin * outputs[:, 1]


run = dpsgd.run
resume = partial(dpsgd.resume, kind=PrivateAinSettings)
