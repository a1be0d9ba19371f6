"""What a user may choose about learning from a stream: private steps, or plain ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from privet.errors import InputError
from privet.lifelong.combining import Combine, projected, replayed
from privet.training.functional_head import FunctionalSettings
from privet.training.plain import PlainSettings
from privet.training.settings import Settings

PROJECT: Final = "project"
REPLAY: Final = "replay"
NOTHING: Final = "nothing"
COMBINE: Final[Mapping[str, Combine]] = {
    PROJECT: projected,
    "project-always": partial(projected, always=True),
    REPLAY: replayed,
}
EPISODIC: Final = "episodic"
OBJECTIVE: Final = "objective"
_AS_IT_IS: Final = {
    "sampler": "poisson",
    "bands": 1,
    "canaries": 0,
    "adversarial": "none",
    "ema": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class StreamSettings(Settings):
    """DP-SGD on one task after another; `epsilon` is that of a unit's whole lifetime.

    Attributes:
        epochs: passes over each task.
        combining: what the memory does to a step: 'project' (A-GEM), 'project-always', 'replay'
            (the mean of both gradients).
        admission: chance of a unit to be kept for the memory.
        recall_rate: at which the second task samples the memory; halved whenever the number of
            tasks behind doubles (`lifetime`).
        horizon: tasks for which the memory is kept; default: those that are known, at least 32
            where tasks are disjoint, which costs next to nothing.
        consolidation: weight of the pull towards weights that mattered to earlier tasks (EWC); 0
            for none.
    """

    epochs: float = 10.0
    combining: str = PROJECT
    admission: float = 0.2
    recall_rate: float = 0.1
    horizon: int | None = None
    consolidation: float = 0.0

    remembers: ClassVar[bool] = True  # whether there is a memory
    adds_up: ClassVar[bool] = False  # whether (epsilon, delta) of all parts are added up
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "combining": tuple(COMBINE),
    }

    def _check_together(self) -> None:
        super()._check_together()
        for name in ("admission", "recall_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(
                    f"bad {name}", got=getattr(self, name), expected="above 0, at most 1"
                )
        require_springs(self.consolidation, self.optimizer)
        if self.horizon is not None and self.horizon < 1:
            raise InputError("bad horizon", got=self.horizon, expected="a number of tasks")
        require_as_it_is(self)


@dataclass(frozen=True, kw_only=True)
class L2dpSettings(StreamSettings):
    """Private A-GEM whose memory admits by secret coins, accounted over a unit's lifetime."""

    method: ClassVar[str] = "l2dp"


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(StreamSettings):
    """The same memory; steps on both gradients."""

    combining: str = REPLAY

    method: ClassVar[str] = "er"


@dataclass(frozen=True, kw_only=True)
class AloneSettings(StreamSettings):
    """One task after another, no memory."""

    method: ClassVar[str] = "naive"
    remembers: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ConsolidatedSettings(AloneSettings):
    """No memory of records: weights that mattered are held by springs."""

    consolidation: float = 1.0

    method: ClassVar[str] = "ewc"


@dataclass(frozen=True, kw_only=True)
class JointSettings(AloneSettings):
    """All tasks at once: what lifelong learning is measured by."""

    method: ClassVar[str] = "joint"


@dataclass(frozen=True, kw_only=True)
class SummedSettings(StreamSettings):
    """Private A-GEM by basic composition: (epsilon, delta) of all tasks and readings, added up.

    Everything else is as in `l2dp`.
    """

    method: ClassVar[str] = "dpsgd-agem"
    adds_up: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(FunctionalSettings):
    """One noisy objective for each task, released once and minimised jointly ever after.

    Attributes:
        model: 'cosines-S-N' (`models.cosines`), or another network with a fixed front.
        features: the most that are kept, with the constant one; fewer by a public projection.
        ridge: as in `FunctionalSettings`.
    """

    model: str | None = "cosines-2-512"
    features: int = 4096
    ridge: float = 0.3

    method: ClassVar[str] = "l2dp"
    _small_models: ClassVar[tuple[str, ...]] = ("cosines-2-512",)


@dataclass(frozen=True, kw_only=True)
class PlainStreamSettings(PlainSettings):
    """Without privacy: minibatch gradient descent on one task after another.

    Attributes:
        epochs: passes over each task.
        combining: as in `StreamSettings`; 'nothing' for no memory.
        admission: share of each task that is kept for the memory.
        recall_batch: records of the memory in a step; default: as many as of the task.
        consolidation: as in `StreamSettings`.
    """

    epochs: float = 10.0
    combining: str = PROJECT
    admission: float = 0.2
    recall_batch: int | None = None
    consolidation: float = 0.0

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **PlainSettings._choices,
        "combining": (*COMBINE, NOTHING),
    }
    _counts: ClassVar[tuple[str, ...]] = (*PlainSettings._counts, "recall_batch")

    def _check_together(self) -> None:
        super()._check_together()
        require_springs(self.consolidation, self.optimizer)
        if not 0 < self.admission <= 1:
            raise InputError("bad admission", got=self.admission, expected="above 0, at most 1")


@dataclass(frozen=True, kw_only=True)
class PlainReplay(PlainStreamSettings):
    """Experience replay."""

    combining: str = REPLAY


@dataclass(frozen=True, kw_only=True)
class PlainAlone(PlainStreamSettings):
    """No memory."""

    combining: str = NOTHING


@dataclass(frozen=True, kw_only=True)
class PlainConsolidated(PlainAlone):
    """Elastic weight consolidation."""

    consolidation: float = 1.0


def require_springs(consolidation: float, optimizer: str) -> None:
    """A weight that makes sense, and an optimiser whose state has room for what mattered."""
    if not 0 <= consolidation < float("inf"):
        raise InputError("bad consolidation", got=consolidation, expected="at least 0")
    if consolidation > 0 and optimizer != "sgd":
        raise InputError("springs go with SGD", got=f"optimizer {optimizer}", expected="sgd")


def require_as_it_is(settings: Settings) -> None:
    """What a lifetime is not proved for, yet."""
    for name, value in _AS_IT_IS.items():
        if getattr(settings, name) != value:
            raise InputError(
                "streams are learned by independent noise on Poisson samples",
                got=f"{name} {getattr(settings, name)}",
                fix=f"leave --{name.replace('_', '-')} out",
            )
