"""StoBatch with a proof (after Phan et al., ICML 2020, and DPAL, its first version).

The published method adds one draw of noise to all inputs and reuses it in every step; that proves
nothing (`--analysis paper` trains so, and lists the gaps). What is kept here is the idea: noise at
the input and partners found by several attacks make the model robust, and each of them stays
inside the one gradient of its record, which is clipped and summed under noise.

| paper         | here                | meaning                                                    |
|---------------|---------------------|------------------------------------------------------------|
| A             | `Ensemble`          | attacks: I-FGSM, MIM, Madry, one drawn for each row        |
| mu_t          | `size` times 1 - U  | size of an attack, drawn for each row; linf                |
| T_mu          | `steps`             | gradients of an attack                                     |
| xi            | `weight`            | what a partner counts beside its record                    |
| nu, nu'       | `noise`             | deviation of fresh smoothing noise on both                 |
| eta, eta'     | `hidden_noise`      | of fresh noise behind the first linear map, of norm <= 1   |
| C, sigma, q   | the plan's          | clip norm, noise multiplier, sampling rate                 |

    in each step t, for a Poisson sample of rate q, each record i by itself:
        a_i from A,  mu_i = size (1 - U),  U uniform in [0, 1)
        x'_i = a_i(x_i, theta_t, mu_i, T_mu)
        l_i  = [CE(f(x_i + nu; eta), y_i) + xi CE(f(x'_i + nu'; eta'), y_i)] / (1 + xi)
        g_i  = gradient of l_i, shortened to C
        theta <- optimiser(theta, (sum of g_i + N(0, sigma^2 C^2)) / (q N))
        first <- first / max(1, bound of its norm), where there is noise behind it

Guarantee: that of DP-SGD, by the proof of `engine.adversary`: partners and noise are functions of
one record, of the weights and of draws of its own. They cost nothing. Any number of processes
(torchrun) has the same guarantee. Noise at the input, behind the first layer, or at both certifies
by smoothing (`certification.layered`; `privet certify --noise own`).

Deviations from the paper. Its noise: none of it is kept from step to step, none is divided by the
batch, and none is shared. Attacks raise the loss of the true label, which the clipped gradient
covers, where the paper takes the predicted one. Sizes are drawn for each record, not for a batch.
The partner is the record's own, where the paper attacks other records: so both are clipped as one.
The auto-encoder's cost is left out: the first layer learns with the others. The loss is the cross
entropy, not its Taylor polynomial, which only the published privacy argument needs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, final

import torch
from torch import Tensor, nn

from privet.attacks.geometry import boxed, moved
from privet.attacks.iterated import per_l1
from privet.data.dataset import Dataset
from privet.engine.adversary import Adversary, Scores
from privet.engine.examples import Augmentation
from privet.errors import InputError
from privet.models.augmentation import Views
from privet.models.hidden_noise import HiddenNoise, first_map, with_noise
from privet.training.adversarial import SIZE, input_gradient
from privet.training.noise_layer import keep_within_one, shorten
from privet.training.ordinary import CHOICES
from privet.training.settings import Settings

ENSEMBLE: Final = "ensemble"
STEPS: Final = 7
MEMORY: Final = 1.0  # MIM's decay


@final
@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Each row, and a partner found by an attack that is drawn for it; fresh noise on both.

    Attributes:
        size: the largest attack, in linf.
        steps: gradients to find a partner.
        weight: xi.
        noise: deviation of the smoothing noise; it is added last, and not cut off.
    """

    size: float = SIZE
    steps: int = STEPS
    weight: float = 1.0
    noise: float = 0.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the row, of its partner."""
        return 1.0 / (1.0 + self.weight), self.weight / (1.0 + self.weight)

    def __call__(self, scores: Scores, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Rows 2i and 2i + 1 are made of row i."""
        one_each = (len(x), *[1] * (x.dim() - 1))
        # In (0, size]; drawn from the step's generator, so that a redone step repeats them.
        size = self.size * (1.0 - _uniform(one_each, x, generator))
        kind = (3.0 * _uniform(one_each, x, generator)).floor()
        remembers, wanders = kind == 1, kind == 2
        start = (2.0 * _uniform(x.shape, x, generator) - 1.0) * size
        partner = self._ascended(scores, x, y, size, torch.where(wanders, start, 0.0), remembers)
        rows = torch.stack([x, partner], 1).flatten(0, 1)
        if not self.noise:
            return rows
        draws = torch.randn(rows.shape, generator=generator, device=x.device, dtype=x.dtype)
        return rows + self.noise * draws

    def _ascended(
        self, scores: Scores, x: Tensor, y: Tensor, size: Tensor, d: Tensor, remembers: Tensor
    ) -> Tensor:
        """I-FGSM from x, MIM where a row `remembers`, Madry where it starts away from x."""
        memory = torch.zeros_like(x)
        d = boxed(d, x)
        for _ in range(self.steps):
            gradient = input_gradient(scores, moved(x, d), y)
            memory = MEMORY * memory + per_l1(gradient)
            direction = torch.where(remembers, memory, gradient).sign()
            longer = d + size / self.steps * direction
            d = boxed(torch.minimum(torch.maximum(longer, -size), size), x)
        return moved(x, d)


@dataclass(frozen=True, kw_only=True)
class StoBatchSettings(Settings):
    """The settings of DP-SGD; partners by an ensemble of attacks are the default.

    Attributes:
        adversarial: 'ensemble', or one of `dpsgd`.
        xi: what a partner of the ensemble counts beside its record.
        hidden_noise: deviation of Gaussian noise behind the first linear map, in training; its norm
            is then kept within 1, inputs in [0, 1].
    """

    adversarial: str = ENSEMBLE
    xi: float = 1.0
    hidden_noise: float = 0.0

    method: ClassVar[str] = "stobatch"
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "adversarial": (*CHOICES["adversarial"], ENSEMBLE),
    }
    _positive: ClassVar[tuple[str, ...]] = (*Settings._positive, "xi")
    _attack_steps: ClassVar[Mapping[str, int]] = {**Settings._attack_steps, ENSEMBLE: STEPS}

    def _check_together(self) -> None:
        super()._check_together()
        if not 0 <= self.hidden_noise < math.inf:
            raise InputError(
                "bad hidden_noise", got=self.hidden_noise, expected="a finite number, at least 0"
            )
        if self.adversarial == ENSEMBLE and self.adversarial_norm not in (None, "linf"):
            raise InputError(
                "the ensemble attacks in linf",
                got=self.adversarial_norm,
                fix="--adversarial madry for another norm",
            )
        if self.adversarial == ENSEMBLE and self.views > 1 and self.augment == "none":
            raise InputError(
                "several views of one record beside its partner",
                got=f"views {self.views}",
                fix="name an --augment, or leave --views out",
            )

    def network(self, data: Dataset) -> nn.Module:
        """The named one, with its layer of noise if there is to be one."""
        model = super().network(data)
        if not self.hidden_noise:
            return model
        shorten(first_map(model), data.shape, "l2")
        return with_noise(model, HiddenNoise("gaussian", torch.tensor(self.hidden_noise)))

    def constrained(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...]
    ) -> torch.optim.Optimizer:
        """One that keeps the map before the noise within norm one."""
        if self.hidden_noise:
            keep_within_one(optimizer, model, shape, "l2")
        return optimizer

    @property
    def _attack_adds_noise(self) -> bool:
        return self.adversarial == ENSEMBLE

    @property
    def augmentation(self) -> Augmentation | None:
        """The views that were asked for; the ensemble adds the noise itself, behind its attacks."""
        if not self._attack_adds_noise:
            return super().augmentation
        return None if self.augment == "none" else Views(self.augment, self.views)

    @property
    def adversary(self) -> Adversary | None:
        """The ensemble, or the adversary that was asked for."""
        if self.adversarial != ENSEMBLE:
            return super().adversary
        return Ensemble(
            size=self.adversarial_size or SIZE,
            steps=self.adversarial_steps or STEPS,
            weight=self.xi,
            noise=self.input_noise,
        )


@dataclass(frozen=True, kw_only=True)
class DpalSettings(StoBatchSettings):
    """DPAL's own rule of certificates is false; with a proof, the two methods are one."""

    method: ClassVar[str] = "dpal"


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)
