"""What a user may choose about TransDenoiser as published, and the noise that follows from it.

Symbols and deviations stand in `transdenoiser`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from privet.data.dataset import Dataset
from privet.engine.plain import Course
from privet.engine.prepare import left_for_training
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import check_target
from privet.models.denoisers import WIDTHS, Denoiser
from privet.training.classifier_behind import ClassifierBehind
from privet.training.published.pure_claim import require_single_records
from privet.training.published.securesgd import least_multiplier
from privet.training.published.transdenoiser_trainer import StepNoise
from privet.training.published.transformation import NoiseRule

NODP: Final = "nodp"
SEPDP: Final = "sepdp"
INP: Final = "inp_0.1"
ABLATIONS: Final = ("none", NODP, SEPDP, INP)
INP_SIGMA: Final = 0.1
CLIPPED: Final = "clipped"
LOW: Final = 0.05  # xi_low over xi_up
SHARE: Final = 32  # one image in so many makes M
UNKNOWN: Final = {"augment": "none", "views": 1, "ema": 0.0, "precision": "float32"}


@dataclass(frozen=True, kw_only=True)
class PublishedTransDenoiser(ClassifierBehind):
    """What a user may choose.

    Attributes:
        epsilon: claimed, add/remove neighbours; none with the ablation 'nodp'.
        delta: of the claim.
        batch: expected images in a step; 32, or the nominal size where that is smaller.
        clip_norm: C.
        denoiser: by default the paper's, where it is made for such images.
        xi_up: default: the least for which the accountant makes the claim; the paper's is 2.
        xi_low: default: a twentieth of xi_up.
        credited_steps: T of T S_min; default: the planned steps. The public program's is 200,000.
        credited_examples: how many images of a batch M is made of; default: one in 32.
        credit: 'clipped', with the clip factors of Lemma 5, or 'unclipped', as in the program.
        ablation: 'none', 'nodp', 'sepdp' or 'inp_0.1'.
        noise_seed: for tests: known noise.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    learning_rate: float = 1e-3
    schedule: str = "constant"
    optimizer: str = "adam"
    momentum: float = 0.0
    clip_norm: float = 1.0
    xi_up: float | None = None
    xi_low: float | None = None
    credited_steps: int | None = None
    credited_examples: int | None = None
    credit: str = CLIPPED
    ablation: str = "none"
    noise_seed: int | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ClassifierBehind._choices,
        "credit": (CLIPPED, "unclipped"),
        "ablation": ABLATIONS,
    }
    _positive: ClassVar[tuple[str, ...]] = (*ClassifierBehind._positive, "clip_norm", "xi_up")
    _counts: ClassVar[tuple[str, ...]] = (
        *ClassifierBehind._counts,
        "credited_steps",
        "credited_examples",
    )

    @property
    def transforms(self) -> bool:
        """Whether noise on images is credited."""
        return self.ablation not in (NODP, SEPDP)

    def _check_together(self) -> None:
        super()._check_together()
        for name, unset in UNKNOWN.items():
            if getattr(self, name) != unset:
                raise InputError(
                    "TransDenoiser as published does not know this",
                    got=f"{name} {getattr(self, name)}",
                    fix="leave it out, or --analysis sound",
                )
        self._check_target()
        idle = () if self.transforms else ("xi_low", "credited_steps", "credited_examples")
        for name, value in self._set((*idle, *(("xi_up",) if self.ablation == NODP else ()))):
            raise InputError(
                "a detail of what this ablation leaves out",
                got=f"{name} {value} with ablation '{self.ablation}'",
                fix=f"leave --{name.replace('_', '-')} out",
            )
        if self.ablation == INP and self.sigma not in (ClassifierBehind.sigma, INP_SIGMA):
            raise InputError(
                "two deviations of the noise",
                got=f"sigma {self.sigma:g} with ablation '{INP}'",
                fix="leave one of them out",
            )

    def _check_target(self) -> None:
        if self.ablation == NODP:
            if self.epsilon is not None:
                raise InputError(
                    f"ablation '{NODP}' has no privacy, and takes no target",
                    got=f"epsilon {self.epsilon:g}",
                    fix="leave it out",
                )
            return
        if self.epsilon is None:
            raise InputError(
                "no privacy target", got="no epsilon", fix=f"--epsilon 1, or --ablation {NODP}"
            )
        check_target(self.epsilon, self.delta)

    def filled_for(self, data: Dataset) -> Self:
        """With the sigma of its ablation, and the images that M is made of."""
        require_single_records(data)
        filled = super().filled_for(data)
        assert filled.batch is not None
        images = self.credited_examples or max(1, filled.batch // SHARE)
        return replace(
            filled,
            sigma=INP_SIGMA if self.ablation == INP else self.sigma,
            credited_examples=images if self.transforms else None,
        )

    def _batch_for(self, nominal_size: int) -> int:
        return min(32, nominal_size)

    def _first_name(self, data: Dataset) -> str:
        own = self.start is None and tuple(data.shape) in WIDTHS
        return "conv" if own else super()._first_name(data)

    def network(self, data: Dataset) -> Denoiser:
        """What is trained."""
        return self.first_denoiser(data)

    def course_for(self, data: Dataset) -> Course:
        """Passes of Poisson samples, of filled settings."""
        assert self.batch is not None
        sampler, steps = Turns(
            sampler="poisson", batch=self.batch, nominal_size=data.nominal_size, epochs=self.epochs
        ).resolved()
        return Course(steps=steps, sampler=sampler)

    def noise_for(self, data: Dataset, course: Course) -> StepNoise:
        """What a step adds, of filled settings."""
        xi_up = self._full_noise(data, course)
        rule = None
        if self.transforms:
            rule = NoiseRule(
                sigma=self.sigma,
                steps=self.credited_steps or course.steps,
                clip_norm=self.clip_norm,
                xi_low=LOW * xi_up if self.xi_low is None else self.xi_low,
                xi_up=xi_up,
            )
        return StepNoise(
            xi_up=xi_up,
            rule=rule,
            images=self.credited_examples or 0,
            clipped=self.credit == CLIPPED,
        )

    def _full_noise(self, data: Dataset, course: Course) -> float:
        """xi_up: the least for the claim, or what was asked for, if that is enough for it."""
        if self.epsilon is None:
            return 0.0
        target, rate = left_for_training(self.epsilon, data), course.sampler.rate
        least = least_multiplier(target, self.delta, rate=rate, steps=course.steps)
        if self.xi_up is not None and self.xi_up < least:
            raise InputError(
                "too little noise for the claim",
                got=f"xi_up {self.xi_up:g} for epsilon {self.epsilon:g}",
                expected=f"at least {least:.4g} for {course.steps} steps at rate {rate:.4g}",
                fix="leave --xi-up out, allow a larger --epsilon, or take fewer --epochs",
            )
        return least if self.xi_up is None else self.xi_up
