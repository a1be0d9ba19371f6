"""What may be chosen about AdLM as published; what is left out is the paper's, or its program's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.models.adlm_net import CIFAR, MNIST
from privet.training.published.pure_claim import AS_PUBLISHED, PureClaim

MODEL: Final = "adlm"
SHARINGS: Final = ("shared_per_step", "shared_fixed", "per_example")


@dataclass(frozen=True, kw_only=True)
class Published:
    """The values for one kind of data: shares of epsilon for relevance and affine layer, too."""

    batch: int
    epochs: float
    learning_rate: float
    optimizer: str
    pretraining_epochs: float
    relevance_share: float
    affine_share: float
    noise_sharing: str


BY_SHAPE: Final[Mapping[tuple[int, ...], Published]] = {
    MNIST: Published(
        batch=1800, epochs=2400.0, learning_rate=3e-4, optimizer="adam", pretraining_epochs=12.0,
        relevance_share=0.25, affine_share=0.25, noise_sharing="shared_per_step",
    ),
    CIFAR: Published(
        batch=7200, epochs=1500.0, learning_rate=1.0, optimizer="sgd", pretraining_epochs=50.0,
        relevance_share=0.1, affine_share=0.6, noise_sharing="shared_fixed",
    ),
}  # fmt: skip


def published_for(shape: tuple[int, ...], nominal_size: int) -> Published:
    """For examples of this shape; like MNIST, and fewer, for others."""
    known = BY_SHAPE.get(shape)
    if known is None:
        known = replace(BY_SHAPE[MNIST], epochs=200.0, learning_rate=3e-3)
    return replace(known, batch=min(known.batch, nominal_size))


@dataclass(frozen=True, kw_only=True)
class AdlmPaperSettings(PureClaim):
    """None, zero and 'published' stand for the paper's value, or that of its program.

    Attributes:
        adaptive: less noise on more relevant inputs (AdLM), or the same on all (ILM).
        noise_sharing: of the inputs' noise: one draw for the records of a step
            ('shared_per_step', as the program for MNIST), one for the run ('shared_fixed', as the
            one for CIFAR-10), or one for each record, kept for the run ('per_example'); default:
            that of the program for such images.
        relevance_share: of epsilon, for relevance; nothing without `adaptive`.
        affine_share: of epsilon, for the affine layer; the loss has the rest.
        pretraining_epochs: of the network whose relevance is used.
    """

    adaptive: bool = True
    noise_sharing: str | None = None
    relevance_share: float | None = None
    affine_share: float | None = None
    pretraining_epochs: float | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **PureClaim._choices,
        "noise_sharing": SHARINGS,
        "model": (MODEL,),
    }
    _positive: ClassVar[tuple[str, ...]] = (
        *PureClaim._positive,
        "relevance_share",
        "affine_share",
        "pretraining_epochs",
    )
    _counts: ClassVar[tuple[str, ...]] = ("batch", "checkpoint_every")

    def filled_for(self, data: Dataset) -> Self:
        """The published values for this kind of data, where none were given."""
        usual = published_for(data.shape, data.nominal_size)
        filled = replace(
            self,
            batch=self.batch or usual.batch,
            epochs=self.epochs or usual.epochs,
            learning_rate=self.learning_rate or usual.learning_rate,
            optimizer=usual.optimizer if self.optimizer == AS_PUBLISHED else self.optimizer,
            relevance_share=self.relevance_share or usual.relevance_share,
            affine_share=self.affine_share or usual.affine_share,
            noise_sharing=self.noise_sharing or usual.noise_sharing,
            pretraining_epochs=self.pretraining_epochs or usual.pretraining_epochs,
            model=MODEL,
        )
        filled._require_something_left()
        return filled

    def _require_something_left(self) -> None:
        if self.shares[2] <= 0:
            raise InputError(
                "no budget is left for the loss",
                got=f"relevance_share {self.relevance_share}, affine_share {self.affine_share}",
                expected="shares that add up to less than 1",
            )

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of epsilon, for relevance, affine layer and loss; of filled settings.

        Without relevance the other two share its part in proportion.
        """
        assert self.relevance_share is not None
        assert self.affine_share is not None
        rest = 1.0 - self.relevance_share - self.affine_share
        if self.adaptive:
            return self.relevance_share, self.affine_share, rest
        both = self.affine_share + rest
        return 0.0, self.affine_share / both, rest / both

    def _batch_for(self, nominal_size: int) -> int:
        return min(BY_SHAPE[MNIST].batch, nominal_size)
