"""TransDenoiser with a proof: a denoiser, learned privately, in front of a fixed classifier.

The paper trains a denoiser g on noisy private images, so that a classifier h that is there already
can be smoothed: h(g(x + noise)) has certified radii. It counts the noise on the images towards
privacy; that does not hold (`--analysis paper` trains so, `privet audit mechanism transdenoiser`
refutes it). Here the same noise costs nothing and earns nothing: it is an augmentation, averaged
over several draws before the gradient of an image is clipped.

| paper      | here               | meaning                                                     |
|------------|--------------------|-------------------------------------------------------------|
| h          | `classifier`       | fixed, never trained here                                   |
| g, theta   | `denoiser`         | what is trained                                             |
| sigma      | `sigma`            | deviation of the noise b on an image, here and to certify   |
| K          | `views`            | draws of b for each image and step                          |
| C          | `clip_norm`        | bound on the gradient of one image                          |
| xi_up      | `noise_multiplier` | noise of a step, in units of C; by the plan                 |
| q, N       | the plan's         | sampling rate, nominal size                                 |
| theta_1..3 | `slices`           | first convolution, what lies between, last convolution      |

    in each step, for a Poisson sample of rate q, each image x_i by itself:
        u_i = (1/K) sum_k grad_theta l(x_i, b_ik),   b_ik ~ N(0, sigma^2 I), fresh
        G   = sum_i u_i min(1, C / |u_i|) + N(0, xi^2 C^2 I)
        theta <- optimiser(theta, G / (q N))
    l(x, b) = mse_weight |g(x + b) - x|^2 + stability CE(h(g(x + b)), target of x)

The target of the stability term is what h says of the clean image (Salman et al., 2020), or its
label. The paper leaves the term out since it sends the image through h, "which costs privacy": it
does not, whatever enters the gradient of an image is clipped with it.

Guarantee: that of DP-SGD, for the denoiser. One image moves the sum by at most C, whatever K, sigma
and h are. Its label, too: example and label are one record. Proof: given the weights before the
step, u_i is a function of record i, of its own draws, and of constants: h is one, if no record had
a part in it. If one had, u_i depends on other records through h, and the sum may move by more:
with `private_classifier` the term is refused. Without it h enters no gradient.

The release holds g and h. It is as private as g if h is public, which must be stated and is
recorded; otherwise the whole has no epsilon.

Slices. Training first and last layer alone, from a denoiser that public images have taught
(`start`), is the sound core of the paper's slicing: fewer numbers to hide.

SecureSGD_prt, a baseline of the paper, trains the denoiser by SecureSGD (`securesgd`): with noise
behind its first convolution, whose norm is kept at one, instead of noise on the image, and with the
classifier's loss instead of the squared error. That is `noise_at` 'layer' with `mse_weight` 0 and
`stability` by labels. None of it touches the guarantee: the noise is drawn for each image by
itself, and is the same in every feature, so no record decides how it is shared out; what keeps the
norm reads weights alone, inside the optimiser's step. The certificate is by noise on the image.

Deviations from the paper: no credit for the noise on images; one clipped gradient for all
parameters instead of three optimisers with a charge each; Poisson sampling, as is accounted; noise
is not cut off at the bounds of the images, since `certify` does not do that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.data.dataset import Dataset
from privet.engine.examples import Augmentation
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.models.augmentation import Views
from privet.models.denoisers import LEVELS, Denoiser, slices
from privet.models.hidden_noise import HiddenNoise
from privet.privacy.units import PerExampleLoss
from privet.training import dpsgd
from privet.training.classifier_behind import ClassifierBehind
from privet.training.noise_layer import ROOM, norm_bound
from privet.training.settings import Settings
from privet.training.stated_public import CLASSIFIER

ALL: Final = "all"
TARGETS: Final = ("classifier", "labels")
PLACES: Final = ("image", "layer")


@dataclass(frozen=True, kw_only=True)
class TransDenoiserSettings(ClassifierBehind, Settings):
    """The settings of DP-SGD, the classifier behind, and what the denoiser learns.

    Attributes:
        views: K.
        mse_weight: of the reconstruction.
        stability: of the classifier's loss on denoised images; 0: the classifier is not asked.
        stability_target: 'classifier' (what it says of the clean image) or 'labels'.
        slices: which parts of the denoiser are trained: 'all', or some of first, middle and last,
            separated by commas.
        noise_at: where the noise of training is drawn: 'image', or 'layer': behind the first
            convolution, of norm one then, as SecureSGD has it.
    """

    views: int = 4
    mse_weight: float = 1.0
    stability: float = 0.0
    stability_target: str = "classifier"
    slices: str = ALL
    noise_at: str = "image"

    method: ClassVar[str] = "transdenoiser"
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "stability_target": TARGETS,
        "noise_at": PLACES,
    }
    _positive: ClassVar[tuple[str, ...]] = (*Settings._positive, "sigma")

    @property
    def _copies_differ(self) -> bool:
        return True

    def _check_together(self) -> None:
        super()._check_together()
        for name in ("mse_weight", "stability"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(
                    f"bad {name}", got=getattr(self, name), expected="a finite number, at least 0"
                )
        if self.mse_weight == self.stability == 0:
            raise InputError("nothing to learn", got="mse_weight 0 and stability 0")
        if self.stability and self.private_classifier:
            raise InputError(
                "a classifier that has seen the records would bring them into every gradient",
                got=f"stability {self.stability:g} with private_classifier",
                fix="leave --stability out, or take a public classifier",
            )
        if self.stability_target != TARGETS[0] and not self.stability:
            raise InputError(
                "a target without the term that it is for",
                got=f"stability_target '{self.stability_target}' and stability 0",
                fix="give --stability 1, or leave the target out",
            )
        self._chosen_slices()

    @property
    def _may_be_private(self) -> tuple[str, ...]:
        """Not a classifier that judges: gradients go through it."""
        found = super()._may_be_private
        return tuple(part for part in found if part != CLASSIFIER) if self.stability else found

    def _chosen_slices(self) -> tuple[str, ...]:
        known = ("first", "middle", "last")
        chosen = known if self.slices == ALL else tuple(self.slices.split(","))
        if not chosen or not set(chosen) <= set(known):
            raise InputError(
                "unknown slices",
                got=f"'{self.slices}'",
                expected=f"'{ALL}', or some of {', '.join(known)}",
            )
        return chosen

    def network(self, data: Dataset) -> nn.Module:
        """What the engine trains: the denoiser, with its noise, as a function of clean images."""
        denoiser, fixed = self.first_denoiser(data), self.fixed(data)
        if self.stability and not fixed.differentiable:
            raise InputError(
                "no gradient goes through the classifier",
                got=f"stability {self.stability:g} with '{self.classifier}'",
                fix="leave --stability out",
            )
        for name, parameters in slices(denoiser).items():
            for parameter in parameters:
                parameter.requires_grad_(name in self._chosen_slices())
        judge = fixed.module if self.stability else None
        network = NoisyReconstruction(
            denoiser, self.sigma, judge, in_layer=self.noise_at == "layer"
        )
        if self.noise_at == "layer":
            shorten_first(denoiser, data.shape)
        return network

    def constrained(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...]
    ) -> torch.optim.Optimizer:
        """With noise in a layer, one whose every step ends with a first map of norm one."""
        if self.noise_at == "layer":
            denoiser = model.get_submodule("denoiser")
            assert isinstance(denoiser, Denoiser)
            optimizer.register_step_post_hook(lambda *_: shorten_first(denoiser, shape))
        return optimizer

    @property
    def loss(self) -> PerExampleLoss:
        """Of one image."""
        return ReconstructionLoss(
            mse_weight=self.mse_weight,
            stability=self.stability,
            by_labels=self.stability_target == "labels",
        )

    @property
    def augmentation(self) -> Augmentation | None:
        """Copies of each image, moved if that was asked for; each gets a draw of noise inside."""
        if self.views == 1 and self.augment == "none":
            return None
        return Views(self.augment, self.views)

    def made_of(self, trained: nn.Module, data: Dataset, plan: Plan) -> nn.Module:
        """The denoiser with the classifier behind it."""
        return self.whole(trained.get_submodule("denoiser"), data)


@final
class NoisyReconstruction(nn.Module):
    """|g(x + b) - x|^2 of clean images x, one row each; b is drawn in training alone.

    With a judge, its scores follow: of g(x + b), then of x. The judge is frozen and evaluates.
    With `in_layer`, b is added behind the first convolution of the denoiser and not to the image.
    """

    def __init__(
        self, denoiser: Denoiser, sigma: float, judge: nn.Module | None, *, in_layer: bool = False
    ) -> None:
        super().__init__()
        noise = HiddenNoise("gaussian", torch.tensor(sigma))
        self.noise: nn.Module = nn.Identity() if in_layer else noise
        if in_layer:
            denoiser.noise = noise
        self.denoiser = denoiser
        self.judge = None if judge is None else judge.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) -> (n, 1), or (n, 1 + 2 classes)."""
        clean: Tensor = self.denoiser(self.noise(x))
        error = (clean - x).flatten(1).square().sum(1, keepdim=True)
        if self.judge is None:
            return error
        with torch.no_grad():
            target = self.judge(x)
        return torch.cat([error, self.judge(clean), target], dim=1)

    def train(self, mode: bool = True) -> "NoisyReconstruction":
        """Set the mode of all but the judge, which has one only."""
        super().train(mode)
        if self.judge is not None:
            self.judge.eval()
        return self


@final
@dataclass(frozen=True, kw_only=True)
class ReconstructionLoss:
    """l(x, b), from what `NoisyReconstruction` gives."""

    mse_weight: float
    stability: float
    by_labels: bool

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One value for each image."""
        loss = self.mse_weight * outputs[:, 0]
        if not self.stability:
            return loss
        judged, of_clean = outputs[:, 1:].chunk(2, dim=1)
        target = labels if self.by_labels else of_clean.argmax(1)
        return loss + self.stability * F.cross_entropy(judged, target, reduction="none")


def shorten_first(denoiser: Denoiser, shape: tuple[int, ...]) -> None:
    """Bring the first map of a denoiser to norm one, l2 to l2, if its proved bound is above."""
    filled = (shape[0], *(side + -side % 2**LEVELS for side in shape[1:]))
    bound = denoiser.gain * norm_bound(nn.Sequential(denoiser.first), filled, "l2")
    if bound > 1.0:
        with torch.no_grad():
            denoiser.first.weight.mul_(ROOM / bound)


run = dpsgd.run
resume = partial(dpsgd.resume, kind=TransDenoiserSettings)
