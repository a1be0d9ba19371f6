"""A paper's claim of pure privacy for one record: what AdLM, DPAL and StoBatch as published share.

None, zero and 'published' stand for the paper's value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final, Protocol

from privet.data.dataset import Dataset
from privet.engine.plain import Course
from privet.errors import InputError
from privet.guarantee import REFUTED, Adjacency, Basis, Privacy
from privet.training.ordinary import CHOICES, OrdinarySettings

AS_PUBLISHED: Final = "published"
FOREIGN: Final = ("contribution", "augment", "views", "input_noise", "adversarial", "ema")
KNOWN_NOISE: Final = "the noise was drawn from a known seed: whoever knows it can draw it again"


class Coursed(Protocol):
    """A trainer, for its sampler."""

    @property
    def plan(self) -> Course:
        """Steps and sampler."""


@dataclass(frozen=True, kw_only=True)
class PureClaim(OrdinarySettings):
    """The settings that such methods have in common.

    Attributes:
        epsilon: what is claimed for the whole run, replace-one neighbours.
        delta: zero: the claim is of pure privacy.
        noise_seed: for tests only: noise that everybody can draw again.
    """

    epsilon: float
    delta: float = 0.0
    epochs: float = 0.0
    learning_rate: float = 0.0
    optimizer: str = AS_PUBLISHED
    schedule: str = "constant"
    momentum: float = 0.0
    noise_seed: int | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **CHOICES,
        "optimizer": (AS_PUBLISHED, "sgd", "adam"),
        "precision": ("float32", "tf32"),
    }
    _positive: ClassVar[tuple[str, ...]] = ("epsilon",)
    _not_negative: ClassVar[tuple[str, ...]] = ("epochs", "learning_rate")

    def _check_together(self) -> None:
        for name, value in self._set(self._not_negative):
            if not 0 <= value < float("inf"):
                raise InputError(f"bad {name}", got=value, expected="a finite number, at least 0")
        if self.delta != 0.0:
            raise InputError(
                "the claim is of pure privacy: there is no delta",
                got=self.delta,
                fix="leave --delta out",
            )
        usual = {field.name: field.default for field in fields(self)}
        for name in FOREIGN:
            if getattr(self, name) != usual[name]:
                raise InputError(
                    "the method as published has no such setting",
                    got=f"{name} {getattr(self, name)}",
                    fix=f"leave --{name.replace('_', '-')} out",
                )


def pure_claim(
    data: Dataset,
    settings: PureClaim,
    trainer: Coursed,
    *,
    accountant: str,
    subject: str,
    gaps: tuple[str, ...],
) -> tuple[Privacy]:
    """What a paper says of the weights, and what its proof misses; `subject` is its audit."""
    refuted = f"{REFUTED}`privet audit mechanism {subject}` tells neighbours apart in every run"
    known = () if settings.noise_seed is None else (KNOWN_NOISE,)
    return (
        Privacy(
            epsilon=settings.epsilon,
            delta=0.0,
            unit=data.unit,
            adjacency=Adjacency.REPLACE_ONE,
            basis=Basis.CLAIMED,
            accountant=accountant,
            sampler=trainer.plan.sampler.name,
            gaps=(refuted, *gaps, *known),
        ),
    )


def require_single_records(data: Dataset) -> None:
    """The papers know no units of several records."""
    if data.train.units is not None:
        raise InputError(
            "the paper protects single records, and here a unit has several",
            got=f"unit '{data.unit}'",
            fix="leave --unit-column out; or --analysis sound",
        )
