"""What all attacks share: who is attacked, where they may go, what they return.

An attack is a frozen configuration that is called:

    PGD(norm="l2", steps=100)(classifier, x, y, size=0.5)

It returns one input for each of x, inside the ball and inside [0, 1]. Images that are classified
wrongly already are returned as they are.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from privet.attacks.geometry import NORMS, Norm, norms, require_norm
from privet.attacks.keeping import Best, Nearest
from privet.attacks.losses import Goal
from privet.attacks.victim import Victim
from privet.classifiers import Classifier
from privet.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """A way to look for adversarial inputs.

    Attributes:
        norm: of perturbations.
        eot: draws of a random classifier that are averaged in gradients and in checks of success;
            a classifier that is not random is asked once.
        seed: of random starts and moves.
    """

    norm: Norm = "linf"
    eot: int = 1
    seed: int = 0

    name: ClassVar[str]
    summary: ClassVar[str]
    norms: ClassVar[tuple[Norm, ...]] = NORMS
    needs_gradient: ClassVar[bool] = True
    minimal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_norm(self.norm)
        if self.norm not in self.norms:
            raise InputError(
                f"{self.name} does not work in this norm",
                got=self.norm,
                expected=f"one of {', '.join(self.norms)}",
            )
        self._require_counts("eot")

    def _require_counts(self, *names: str) -> None:
        """Refuse what is no positive whole number."""
        for name in names:
            count = getattr(self, name)
            if not isinstance(count, int) or count < 1:
                raise InputError(
                    f"bad {name} of {self.name}", got=count, expected="a positive whole number"
                )

    def __call__(
        self,
        classifier: Classifier,
        x: Tensor,
        y: Tensor,
        *,
        size: float,
        target: Tensor | None = None,
    ) -> Tensor:
        """Adversarial inputs, on the classifier's device.

        Args:
            classifier: whom to attack.
            x: inputs in [0, 1].
            y: their true classes.
            size: largest norm of a perturbation.
            target: classes to reach, one for each input; default: any wrong one.

        Returns:
            For each input the best that was found: one that reaches the goal if there was any,
            otherwise the one with the smallest margin; never worse than the input itself.
        """
        if not size >= 0:
            raise InputError("bad size of an attack", got=size, expected="0 or more")
        victim, x, goal = self._begin(classifier, x, y, target)
        with torch.no_grad():
            return self._within(victim, x, goal, size) if len(x) and size else x.clone()

    def _begin(
        self, classifier: Classifier, x: Tensor, y: Tensor, target: Tensor | None
    ) -> tuple[Victim, Tensor, Goal]:
        x, y = classifier.require(x, y)
        if self.needs_gradient and not classifier.differentiable:
            raise InputError(
                f"{self.name} needs gradients, and the classifier has none",
                got=classifier.name,
                fix="attack it by scores alone: square",
            )
        goal = Goal(labels=y, targeted=False)
        if target is not None:
            _, target = classifier.require(x, target)
            if bool((target == y).any()):
                raise InputError("a target that is the true class", expected="another class")
            goal = Goal(labels=target, targeted=True)
        return Victim(classifier, self.eot if classifier.random else 1), x, goal

    @abstractmethod
    def _within(self, victim: Victim, x: Tensor, goal: Goal, size: float) -> Tensor: ...

    def _generator(self, x: Tensor) -> torch.Generator:
        return torch.Generator(x.device).manual_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class WithinBall(Attack):
    """An attack that looks for success inside a given ball."""

    @final
    def _within(self, victim: Victim, x: Tensor, goal: Goal, size: float) -> Tensor:
        best = Best(victim, x, goal)
        if len(best.open()):
            self._improve(victim, x, goal, at_most_the_box(size, x, self.norm), best)
        return best.x

    @abstractmethod
    def _improve(self, victim: Victim, x: Tensor, goal: Goal, size: float, best: Best) -> None:
        """Offer inputs to `best`; work on its open rows only."""


@dataclass(frozen=True, kw_only=True)
class MinimumNorm(Attack):
    """An attack that looks for the smallest perturbation; a size only decides which ones count.

    Attributes:
        halvings: of the way from the input to what was found, at the end; not for a random
            classifier, where the shortest success would be the luckiest.
    """

    halvings: int = 10

    minimal: ClassVar[bool] = True

    def closest(
        self, classifier: Classifier, x: Tensor, y: Tensor, *, target: Tensor | None = None
    ) -> Tensor:
        """The nearest adversarial input that was found, however far; the input itself if none."""
        victim, x, goal = self._begin(classifier, x, y, target)
        with torch.no_grad():
            return self._closest(victim, x, goal) if len(x) else x.clone()

    @final
    def _within(self, victim: Victim, x: Tensor, goal: Goal, size: float) -> Tensor:
        found = self._closest(victim, x, goal)
        return only_within(found, x, size, self.norm)

    @final
    def _closest(self, victim: Victim, x: Tensor, goal: Goal) -> Tensor:
        nearest = Nearest(victim, x, goal, self.norm)
        self._approach(victim, x, goal, nearest)
        if not victim.random:
            nearest.shorten(victim, self.halvings)
        return nearest.x

    @abstractmethod
    def _approach(self, victim: Victim, x: Tensor, goal: Goal, nearest: Nearest) -> None:
        """Offer inputs to `nearest`, which knows those that are at the goal already."""


def at_most_the_box(size: float, x: Tensor, norm: Norm) -> float:
    """A ball larger than the box is the box; an infinite one has no random points."""
    count = x[0].numel()
    return min(size, {"linf": 1.0, "l2": math.sqrt(count), "l1": float(count)}[norm])


def only_within(found: Tensor, x: Tensor, size: float, norm: Norm) -> Tensor:
    """What was found within `size`, the input itself where it is further."""
    near = norms(found - x, norm) <= size
    return torch.where(near.view(-1, *[1] * (x.dim() - 1)), found, x)
