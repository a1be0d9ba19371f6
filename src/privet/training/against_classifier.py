"""Settings of methods that train a network to attack a fixed classifier (`with_classifier`)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from privet.data.dataset import Dataset
from privet.engine.arguments import require_images
from privet.errors import InputError
from privet.models.attacked import attacked_name
from privet.models.perturbers import Perturber, create_perturber, default_perturber
from privet.training.with_classifier import WithClassifier


@dataclass(frozen=True, kw_only=True)
class AgainstClassifier(WithClassifier):
    """A network that attacks, and whom.

    Attributes:
        perturber: the network that attacks, by name; default: by the shape of the examples.
        bounds: largest changes of a pixel, inputs in [0, 1], separated by commas: a network is
            kept for each.
        target: class to reach; default: any wrong one.
    """

    perturber: str | None = None
    bounds: str = "0.2"
    target: str | None = None

    _what: ClassVar[str] = "ain"

    def _check_together(self) -> None:
        super()._check_together()
        self.wanted_bounds  # noqa: B018 - refuses what are no bounds

    @property
    def wanted_bounds(self) -> tuple[float, ...]:
        """The largest first."""
        try:
            found = sorted({float(part) for part in self.bounds.split(",")}, reverse=True)
        except ValueError:
            found = []
        if not found or not all(0 < bound <= 1 for bound in found):
            raise InputError(
                "bad bounds",
                got=f"'{self.bounds}'",
                expected="numbers above 0, at most 1, separated by commas",
                fix="--bounds 0.3,0.2",
            )
        return tuple(found)

    def filled_for(self, data: Dataset) -> Self:
        """With the names of its networks."""
        require_images(
            data,
            self._what,
            instead="attacks that need no network know tables: privet attack RELEASE --attacks"
            " fgsm,pgd",
        )
        if self.model is not None and not self.model.startswith("attacked:"):
            raise InputError(
                "a network that attacks is trained, not a classifier",
                got=f"model '{self.model}'",
                fix="--perturber names it, --classifier whom it attacks",
            )
        fixed, name = self.fixed(data), self.perturber or self._usual_perturber(data)
        if not fixed.differentiable:
            raise InputError("no gradient goes through the classifier", got=self.classifier)
        self.target_class(data)
        return replace(
            super().filled_for(data),
            perturber=name,
            model=attacked_name(name, self.wanted_bounds, fixed.name),
        )

    def _usual_perturber(self, data: Dataset) -> str:
        return default_perturber(data.shape)

    def target_class(self, data: Dataset) -> int | None:
        """Its place among the classes."""
        if self.target is None:
            return None
        if self.target not in data.classes:
            raise InputError(
                "no such class to reach",
                got=f"target '{self.target}'",
                expected=f"one of {', '.join(data.classes)}",
                fix=f"--target {data.classes[0]}",
            )
        return list(data.classes).index(self.target)

    def first_perturber(self, data: Dataset) -> Perturber:
        """What is trained, with its first weights; of filled settings."""
        assert self.perturber is not None
        return create_perturber(
            self.perturber, data.shape, len(data.classes), init_seed=self.init_seed
        )
