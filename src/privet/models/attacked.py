"""A classifier with a network in front that attacks it, as one network: what AIN releases.

| symbol | here         | meaning                                                             |
|--------|--------------|---------------------------------------------------------------------|
| F      | `classifier` | fixed                                                               |
| B      | `bounds`     | largest change of a pixel that a perturber learned to keep to       |
| G_B    | `perturbers` | learned, one for each bound                                         |
| x'     | `perturbed`  | x + p, |p| <= B everywhere, within [0, 1]                           |

As a network it gives F(x') under its smallest bound: its accuracy is that of F under this attack.
The label that a perturber is told is F's own answer, which is the true one for every image that is
worth an attack.

A release names it `attacked:PERTURBER@BOUNDS:CLASSIFIER`, bounds joined by `+`: `ain-16@0.3+0.2`.
"""

from collections.abc import Sequence
from typing import Final, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.fixed_classifier import FixedClassifier, build_classifier
from privet.models.perturbers import Perturber, build_perturber
from privet.models.registry import Shape, family

ATTACKED: Final = "attacked"


@final
class Attacked(nn.Module):
    """Scores of inputs that were perturbed in one pass.

    Args:
        perturbers: one for each bound.
        bounds: the largest first.
        classifier: one that is not fixed yet is frozen, and takes inputs in [0, 1] as they are.
        shape: of one input.
    """

    def __init__(
        self,
        perturbers: Sequence[Perturber],
        bounds: Sequence[float],
        classifier: nn.Module,
        shape: Shape,
    ) -> None:
        super().__init__()
        self.perturbers, self.bounds = nn.ModuleList(perturbers), tuple(bounds)
        self.shape = tuple(shape)
        fixed = isinstance(classifier, FixedClassifier)
        self.classifier = classifier if fixed else FixedClassifier(classifier)

    def forward(self, x: Tensor) -> Tensor:
        """F(x') under the smallest bound."""
        with torch.no_grad():
            labels = self.classifier(x).argmax(1)
        scores: Tensor = self.classifier(self.perturbed(x, labels, self.bounds[-1]))
        return scores

    def perturbed(
        self, x: Tensor, labels: Tensor, bound: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """X' within any bound, by the perturber that learned the largest one within it.

        Below the smallest bound it is that one's.
        """
        learned = [place for place, own in enumerate(self.bounds) if own <= bound]
        chosen = self.perturbers[learned[0] if learned else -1]
        assert isinstance(chosen, Perturber)
        return chosen.perturbed(x, labels, bound, generator)


def attacked_name(perturber: str, bounds: Sequence[float], classifier: str) -> str:
    """What a release calls it; every digit counts, or a size would lie below its own bound."""
    sizes = "+".join(str(bound).removesuffix(".0") for bound in bounds)
    return f"{ATTACKED}:{perturber}@{sizes}:{classifier}"


@family(f"{ATTACKED}:PERTURBER@BOUNDS:CLASSIFIER", rf"{ATTACKED}:([^:@]+)@([^:]+):(.+)")
def attacked(
    shape: Shape, n_classes: int, perturber: str, bounds: str, classifier: str
) -> nn.Module:
    """A fixed classifier behind a network that attacks it: what `ain` releases."""
    network = build_classifier(str(classifier), shape, n_classes)
    return before_classifier(str(perturber), str(bounds), shape, n_classes, network)


def before_classifier(
    perturber: str, bounds: str, shape: Shape, n_classes: int, classifier: nn.Module
) -> Attacked:
    """The same with a classifier that is given."""
    sizes = _sizes(bounds)
    made = [build_perturber(perturber, shape, n_classes) for _ in sizes]
    return Attacked(made, sizes, classifier, shape)


def _sizes(bounds: str) -> list[float]:
    """The bounds of a name."""
    try:
        found = [float(bound) for bound in bounds.split("+")]
    except ValueError:
        found = []
    falling = found == sorted(set(found), reverse=True)
    if not (found and falling and all(0 < bound <= 1 for bound in found)):
        raise InputError(
            "bad bounds of a network that attacks",
            got=f"'{bounds}'",
            expected="numbers above 0, at most 1, the largest first: 0.3+0.2",
        )
    return found
