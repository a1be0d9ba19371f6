"""Signs that an attack failed, not that the classifier is robust (Athalye et al., 2018).

A classifier whose gradients are hidden (saturated, rounded, random) looks robust to whoever
follows gradients. Each check names what it saw. None proves the absence of masking.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from privet.attacks.attack import Attack
from privet.attacks.geometry import Norm, norms
from privet.attacks.losses import Goal, cross_entropy
from privet.attacks.victim import Victim
from privet.classifiers import Classifier

SLACK: Final = 0.02  # of the images: less is chance
PROBED: Final = 64  # images for the checks that cost attacks of their own


def huge_size(norm: Norm, shape: tuple[int, ...]) -> float:
    """The size at which every ball holds the grey input (0.5 everywhere)."""
    count = math.prod(shape)
    return {"linf": 0.5, "l2": 0.5 * math.sqrt(count), "l1": 0.5 * count}[norm]


def iterative(attacks: Mapping[str, Attack]) -> list[str]:
    """Those that climb in many steps inside the ball."""
    return [
        name
        for name, attack in attacks.items()
        if attack.needs_gradient and not attack.minimal and name != "fgsm"
    ]


def disagreements(
    attacks: Mapping[str, Attack], holds: Mapping[str, Tensor], sizes: tuple[float, ...]
) -> Iterator[str]:
    """Weaker attacks that do better than stronger ones."""
    pairs = [("fgsm", name, holds[name]) for name in iterative(attacks)]
    seeing = [holds[name] for name, attack in attacks.items() if attack.needs_gradient]
    if seeing:
        pairs.append(("square", "all attacks with gradients", torch.stack(seeing).all(0)))
    for weak, strong, held in pairs:
        if weak not in holds:
            continue
        more = held.sum(1) - holds[weak].sum(1)
        if int(more.max()) > max(1, SLACK * held.shape[1]):
            at = int(more.argmax())
            yield (
                f"gradient masking, or a loss that does not fit: {weak} fools {int(more[at])} of "
                f"{held.shape[1]} images more than {strong} at size {sizes[at]:g}"
            )


def survivors(
    attack: Attack, classifier: Classifier, x: Tensor, y: Tensor, right: Tensor
) -> Iterator[str]:
    """Images that hold at a size at which most cannot.

    Proof note. At `huge_size` every ball contains the grey input, which the classifier gives to one
    class. Images of any other class therefore have an adversarial input; if they hold, the attack
    missed it.
    """
    chosen = _spread(right.nonzero()[:, 0])
    if not len(chosen):
        return
    x, y = x[chosen], y[chosen]
    size = huge_size(attack.norm, classifier.shape)
    grey = classifier.labels(torch.full_like(x[:1], 0.5))
    tried = attack(classifier, x, y, size=size)
    draws = attack.eot if classifier.random else 1
    held = (Victim(classifier, draws).scores(tried).argmax(1) == y) & (y != grey)
    share = float(held.double().mean())
    if share > SLACK:
        yield (
            f"gradient masking: {100 * share:.1f} % of {len(x)} images hold against {attack.name} "
            f"at size {size:g}, where each has an adversarial input for certain (plain grey)"
        )


def vanished(classifier: Classifier, x: Tensor, y: Tensor, right: Tensor) -> Iterator[str]:
    """Gradients that are exactly zero."""
    chosen = _spread(right.nonzero()[:, 0])
    if not len(chosen) or not classifier.differentiable:
        return
    goal = Goal(labels=y[chosen], targeted=False)
    gradient, _, _ = Victim(classifier, 1).gradient(x[chosen], goal, cross_entropy)
    share = float((norms(gradient, "linf") == 0).double().mean())
    if share > SLACK:
        yield (
            f"gradient masking: the gradient of the cross entropy is zero at {100 * share:.1f} % "
            f"of {len(chosen)} images"
        )


def unaveraged(classifier: Classifier, attacks: Mapping[str, Attack]) -> Iterator[str]:
    """A random classifier attacked through a single draw of its noise."""
    single = [name for name, attack in attacks.items() if attack.eot == 1]
    if classifier.random and single:
        yield (
            f"the classifier is random and {', '.join(single)} saw one draw at a time: "
            "average over its noise (eot of 10 or more)"
        )


def _spread(rows: Tensor) -> Tensor:
    """At most PROBED of the rows, evenly, so that sorted classes all have some."""
    every = max(1, -(-len(rows) // PROBED))
    return rows[::every]
