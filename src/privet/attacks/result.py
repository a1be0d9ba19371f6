"""What a sweep of attacks found: which images hold, against what, up to which size."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from privet.attacks.geometry import Norm
from privet.errors import InputError

WORST: Final = "worst case"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackResult:
    """Robust accuracy by attack and size.

    An image *holds* at a size against an attack if it is classified rightly, and the attack found
    no adversarial input for it at this size or at a smaller one of the same call, whose ball lies
    inside. So accuracies never rise with the size.

    Attributes:
        classifier: its name.
        norm: of perturbations.
        sizes: in ascending order, in units of inputs in [0, 1].
        right: which images are classified rightly without an attack, (n,).
        holds: for each attack, which images hold, (sizes, n).
        settings: of each attack.
        warnings: why the figures may flatter the classifier.
        adversarials: for each attack, the inputs found, (sizes, n, *shape); None unless asked for.
    """

    classifier: str
    norm: Norm
    sizes: tuple[float, ...]
    right: Tensor
    holds: Mapping[str, Tensor]
    settings: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()
    adversarials: Mapping[str, Tensor] | None = None

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those that were run."""
        return tuple(self.holds)

    @property
    def examples(self) -> int:
        """How many images were attacked."""
        return len(self.right)

    @property
    def clean_accuracy(self) -> float:
        """Without an attack."""
        return float(self.right.double().mean())

    @property
    def worst(self) -> Tensor:
        """Which images hold against all attacks, (sizes, n)."""
        return torch.stack(list(self.holds.values())).all(0)

    @property
    def robust_accuracy(self) -> dict[float, float]:
        """By size: the share of images that hold against all attacks, image by image."""
        return self._by_size(self.worst)

    def accuracy(self, attack: str) -> dict[float, float]:
        """By size, against one attack alone."""
        if attack not in self.holds:
            raise InputError(
                "that attack was not run", got=attack, expected=f"one of {', '.join(self.holds)}"
            )
        return self._by_size(self.holds[attack])

    def _by_size(self, holds: Tensor) -> dict[float, float]:
        return dict(zip(self.sizes, holds.double().mean(1).tolist(), strict=True))

    def rows(self) -> list[tuple[str, dict[float, float]]]:
        """Each attack and its accuracies; the worst case last, where there are several."""
        rows = [(name, self.accuracy(name)) for name in self.attacks]
        return rows if len(rows) == 1 else [*rows, (WORST, self.robust_accuracy)]

    def to_json(self) -> dict[str, Any]:
        """A record without images."""
        return {
            "classifier": self.classifier,
            "norm": self.norm,
            "sizes": list(self.sizes),
            "examples": self.examples,
            "clean_accuracy": self.clean_accuracy,
            "attacks": [
                {
                    "attack": name,
                    "settings": dict(self.settings[name]),
                    "accuracy": list(self.accuracy(name).values()),
                }
                for name in self.attacks
            ],
            "robust_accuracy": list(self.robust_accuracy.values()),
            "warnings": list(self.warnings),
        }

    def to_csv(self) -> str:
        """One line for each attack and size; size 0 is without an attack."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["attack", "norm", "size", "accuracy", "examples"])
        for name, accuracies in self.rows():
            for size, accuracy in {0.0: self.clean_accuracy, **accuracies}.items():
                writer.writerow([name, self.norm, f"{size:g}", f"{accuracy:.6f}", self.examples])
        return text.getvalue()
