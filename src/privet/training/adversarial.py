"""Adversarial training, private or not: Kurakin et al. (ICLR 2017), Madry et al. (ICLR 2018).

| papers            | here               | meaning                                                |
|-------------------|--------------------|--------------------------------------------------------|
| epsilon           | `size`             | largest norm of a perturbation of inputs in [0, 1]     |
| lambda = 0.3      | `weight`           | what an adversarial example counts beside a clean one  |
| S, P              | `geometry.project` | the ball within the box, the projection onto it        |
| alpha             | size / steps, 2.5 size / steps | length of one step: Kurakin, Madry         |
| y_pred            | `scores.argmax`    | the label that the model gives                         |

    Kurakin   loss of x = (L(x, y) + lambda L(x', y)) / (1 + lambda)
              x' = P(x + alpha * sign(gradient of L(x, y_pred))), one step from x
    Madry     loss of x = L(x', y)
              x_{t+1} = P(x_t + alpha * sign(gradient of L(x_t, y))), x' the last of them,
              x_0 uniform in the ball

In l2 and l1 the gradient is normalised instead of its sign.

Guarantee: in a private run neither costs any privacy. A clean row and its adversarial partner are
rows of one unit: their weighted gradient is clipped as one. The partner is made of its own row, of
the weights and of draws of that row; `engine.adversary` has the proof. Here it rests on this:
losses are added up, so that the gradient of the sum at a row is that of its own loss; signs, norms,
starts and projections are taken row by row.

Deviations. Kurakin: in the paper half of a minibatch is clean, and the other half adversarial
examples of other images; here each example brings both, so that they are clipped together. The size
is fixed, where the paper draws it anew for each example. Against label leaking the paper takes the
least likely label, and names the predicted one as another way; we take the latter, or the true one
where `own_label` says so (fast gradient sign method). Both papers: the model is attacked in
evaluation mode.
"""

from dataclasses import dataclass
from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.attacks.geometry import Norm, moved, project, random_point, require_norm, steepest
from privet.engine.adversary import Adversary, Scores
from privet.errors import InputError

ADVERSARIES: Final = ("none", "kurakin", "madry")
SIZE: Final = 0.1
STEPS: Final = {"kurakin": 1, "madry": 7, "ain": 1, "ain-madry": 7}


@dataclass(frozen=True, kw_only=True)
class _Ascending:
    """Steps along the gradient, inside the ball and the box.

    Attributes:
        size: largest norm of a perturbation.
        norm: linf, l2 or l1.
        steps: how many.
    """

    size: float = SIZE
    norm: Norm = "linf"
    steps: int

    def __post_init__(self) -> None:
        require_norm(self.norm)
        if not 0 < self.size < float("inf"):
            raise InputError(
                "bad size of the attack", got=self.size, expected="a positive, finite number"
            )
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise InputError(
                "bad steps of the attack", got=self.steps, expected="a whole number, at least 1"
            )

    def _ascended(
        self, scores: Scores, x: Tensor, label: Tensor, d: Tensor, length: float
    ) -> Tensor:
        for _ in range(self.steps):
            gradient = input_gradient(scores, moved(x, d), label)
            d = project(d + length * steepest(gradient, self.norm), x, self.size, self.norm)
        return moved(x, d)


@final
@dataclass(frozen=True, kw_only=True)
class Kurakin(_Ascending):
    """Clean and adversarial examples side by side.

    Attributes:
        weight: lambda, what an adversarial example counts beside a clean one.
        own_label: whether to raise the loss of the true label, and not of the predicted one.
    """

    steps: int = STEPS["kurakin"]
    weight: float = 0.3
    own_label: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.weight < float("inf"):
            raise InputError("bad weight", got=self.weight, expected="a positive, finite number")

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the clean one, of its partner."""
        return 1.0 / (1.0 + self.weight), self.weight / (1.0 + self.weight)

    def __call__(self, scores: Scores, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Each row and its partner; nothing is drawn."""
        if not self.own_label:
            with torch.no_grad():
                y = scores(x).argmax(1)
        partner = self._ascended(scores, x, y, torch.zeros_like(x), self.size / self.steps)
        return torch.stack([x, partner], 1).flatten(0, 1)


@final
@dataclass(frozen=True, kw_only=True)
class Madry(_Ascending):
    """Adversarial examples alone, by projected ascent from a random start."""

    steps: int = STEPS["madry"]

    @property
    def shares(self) -> tuple[float, ...]:
        """A partner stands for its row."""
        return (1.0,)

    def __call__(self, scores: Scores, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """The partner of each row."""
        start = random_point(x, self.size, self.norm, generator)
        return self._ascended(scores, x, y, start, 2.5 * self.size / self.steps)


def find_adversary(name: str, *, size: float, norm: Norm, steps: int) -> Adversary | None:
    """By name; None for 'none'."""
    match name:
        case "kurakin":
            return Kurakin(size=size, norm=norm, steps=steps)
        case "madry":
            return Madry(size=size, norm=norm, steps=steps)
    return None


def input_gradient(scores: Scores, x: Tensor, label: Tensor) -> Tensor:
    """Of each row's own loss at that row; entries that are not finite point nowhere."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        # The sum, not the mean: a row's gradient must not depend on how many others there are.
        loss = F.cross_entropy(scores(inputs), label, reduction="sum")
        through = loss.requires_grad
        found = torch.autograd.grad(loss, inputs, allow_unused=True) if through else (None,)
    if found[0] is None:
        raise InputError(
            "no gradient goes from the scores to the inputs",
            expected="a model of numbers, not of tokens",
            fix="leave --adversarial out",
        )
    return found[0].nan_to_num(0.0, 0.0, 0.0)
