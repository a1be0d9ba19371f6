"""What a user may choose about DPAL and StoBatch as published; defaults by the kind of images."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from privet.data.dataset import Dataset
from privet.engine.arguments import require_images
from privet.errors import InputError
from privet.models.published_noised import NOISED
from privet.training.published.batches import ByTrainers, InTurn, Pairing
from privet.training.published.budgets import LABEL_NOISES
from privet.training.published.costs import RECONSTRUCTIONS
from privet.training.published.pure_claim import AS_PUBLISHED, PureClaim


@dataclass(frozen=True, kw_only=True)
class Published:
    """The papers' values for one kind of images, and those of the authors' programs.

    `size` is of attacks, inputs in [0, 1]: half of what it is on [-1, 1]. `trainers` 0 is
    Algorithm A.
    """

    batch: int
    epochs: float
    learning_rate: float
    optimizer: str
    weight_decay: float
    xi: float
    psi: float
    steps: int
    size: float
    trainers: int
    shards: int
    epsilon2: Callable[[float], float]


MNIST: Final = Published(
    batch=2499, epochs=200.0, learning_rate=1e-4, optimizer="adam", weight_decay=0.0, xi=1.0,
    psi=2.0, steps=10, size=0.5, trainers=0, shards=1, epsilon2=lambda epsilon: 0.1,
)  # fmt: skip
CIFAR10: Final = Published(
    batch=1851, epochs=600.0, learning_rate=5e-2, optimizer="sgd", weight_decay=0.004, xi=1.5,
    psi=10.0, steps=3, size=0.25, trainers=1, shards=4,
    epsilon2=lambda epsilon: 1.0 + (epsilon - 2.0) / 3.0,
)  # fmt: skip
TINY_IMAGENET: Final = Published(
    batch=4500, epochs=350.0, learning_rate=1e-2, optimizer="adam", weight_decay=0.0, xi=1.5,
    psi=10.0, steps=10, size=0.05, trainers=1, shards=20, epsilon2=lambda epsilon: 1.0,
)  # fmt: skip
BY_SHAPE: Final[Mapping[tuple[int, ...], Published]] = {
    (1, 28, 28): MNIST,
    (3, 32, 32): CIFAR10,
    (3, 64, 64): TINY_IMAGENET,
}


def published_for(shape: tuple[int, ...], nominal_size: int) -> Published:
    """The papers' values for images of this shape; ours, like those of MNIST, for others."""
    known = BY_SHAPE.get(shape)
    if known is None:
        batch = max(1, nominal_size // 8)
        return replace(
            MNIST, batch=batch, epochs=15.0, learning_rate=3e-3, steps=3,
            epsilon2=lambda epsilon: 0.1 * epsilon,
        )  # fmt: skip
    return replace(known, batch=min(known.batch, max(1, nominal_size // 2)))


@dataclass(frozen=True, kw_only=True)
class PublishedSettings(PureClaim):
    """What both methods have. None, zero and 'published' stand for the paper's value.

    Attributes:
        epsilon2: the part of it for the labels.
        xi: what an adversarial example counts beside a benign one.
        psi: at prediction the papers draw noise that is so many times smaller.
        adversarial_size: largest random size of attacks in training, inputs in [0, 1].
        adversarial_steps: gradients of one.
        label_noise: chi3 as one 'vector' for all classes (the text), or a 'matrix' (the program).
        reconstruction: the cost of the first layer, 'bounded' or 'linear'; see `costs`.
        weight_decay: of fully connected layers.
    """

    epsilon2: float | None = None
    xi: float | None = None
    psi: float | None = None
    label_noise: str = "vector"
    reconstruction: str = "bounded"
    weight_decay: float | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **PureClaim._choices,
        "label_noise": LABEL_NOISES,
        "reconstruction": RECONSTRUCTIONS,
        "adversarial_norm": ("linf",),
        "model": (NOISED,),
    }
    _positive: ClassVar[tuple[str, ...]] = (
        *PureClaim._positive,
        "epsilon2",
        "psi",
        "adversarial_size",
    )
    _counts: ClassVar[tuple[str, ...]] = ("batch", "adversarial_steps", "checkpoint_every")
    _not_negative: ClassVar[tuple[str, ...]] = (*PureClaim._not_negative, "xi", "weight_decay")

    def filled_for(self, data: Dataset) -> Self:
        """The papers' values for this kind of data, where none were given."""
        require_images(
            data,
            "stobatch and dpal as published",
            instead="leave --analysis paper out, or privet train dpsgd",
        )
        usual = published_for(data.shape, data.nominal_size)
        own = {name: self._or(name, getattr(usual, name)) for name in ("xi", "psi", "weight_decay")}
        return replace(
            self,
            **own,
            batch=self._or("batch", usual.batch),
            epsilon2=self._or("epsilon2", usual.epsilon2(self.epsilon)),
            epochs=self.epochs or usual.epochs,
            learning_rate=self.learning_rate or usual.learning_rate,
            optimizer=usual.optimizer if self.optimizer == AS_PUBLISHED else self.optimizer,
            adversarial_size=self._or("adversarial_size", usual.size),
            adversarial_steps=self._or("adversarial_steps", usual.steps),
            model=NOISED,
        )

    def _or(self, name: str, usual: Any) -> Any:
        value = getattr(self, name)
        return usual if value is None else value

    def _batch_for(self, nominal_size: int) -> int:
        return max(1, nominal_size // 8)

    @abstractmethod
    def pairing(self, groups: int) -> Pairing:
        """Which of so many batches a step uses; of filled settings."""


@dataclass(frozen=True, kw_only=True)
class DpalSettings(PublishedSettings):
    """DPAL: batch by batch."""

    def pairing(self, groups: int) -> Pairing:
        """Algorithm A."""
        return InTurn(groups=groups)


@dataclass(frozen=True, kw_only=True)
class StobatchSettings(PublishedSettings):
    """StoBatch: local trainers.

    Attributes:
        trainers: local trainers that a step picks; 0: batch by batch, as DPAL.
        shards: parts of a trainer's pair of batches, for as many processes.
    """

    trainers: int | None = None
    shards: int | None = None

    _counts: ClassVar[tuple[str, ...]] = (*PublishedSettings._counts, "shards")

    def _check_together(self) -> None:
        super()._check_together()
        if self.trainers is not None and self.trainers < 0:
            raise InputError("bad trainers", got=self.trainers, expected="0 or more")

    def filled_for(self, data: Dataset) -> Self:
        """Algorithm B where the paper uses it."""
        usual, filled = published_for(data.shape, data.nominal_size), super().filled_for(data)
        return replace(
            filled,
            trainers=self._or("trainers", usual.trainers),
            shards=self._or("shards", usual.shards),
        )

    def pairing(self, groups: int) -> Pairing:
        """Algorithm B, or A where no trainers are picked."""
        if not self.trainers:
            return InTurn(groups=groups)
        return ByTrainers(groups=groups, trainers=self.trainers, shards=self.shards or 1)
