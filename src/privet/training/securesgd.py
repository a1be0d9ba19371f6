"""SecureSGD with a proof (after Phan et al., IJCAI 2019): DP-SGD through a layer of noise.

DP-SGD hides each training record; noise behind the first linear map makes predictions certifiable.
The paper's idea is to give vulnerable features more of that noise (heterogeneous Gaussian
mechanism, HGM). It finds them on the private records and charges nothing for it: `--analysis paper`
trains so. Here they are found without the records, or all features get the same.

| paper                  | here                             | meaning                              |
|------------------------|----------------------------------|--------------------------------------|
| mu, L                  | `attack_bound`                   | attack that the noise is made for    |
| epsilon_r, delta_r     | `robust_epsilon`, `robust_delta` | closeness of the noisy layer under it|
| Delta                  | at most 1                        | norm of the first map                |
| s                      | ln(sqrt(2/pi) / delta_r)         |                                      |
| sigma                  | `noise_scale`                    | least deviation in a feature         |
| r_1 .. r_w             | `vulnerability`                  | shares of the noise; they add up to 1|
| sigma sqrt(w r_i)      | `deviations`                     | of feature i                         |
| C, sigma, q            | the plan's                       | clip norm, noise multiplier, rate    |

    r <- public: uniform, or of made-up inputs at the first weights
    in each step t, for a Poisson sample of rate q, each record i by itself:
        h_i   = first(x_i) + deviations * z_i,   z_i fresh for each record and step
        g_i   = gradient of CE(rest(h_i), y_i), shortened to C
        theta <- optimiser(theta, (sum of g_i + N(0, sigma^2 C^2)) / (q N))
        first <- first / max(1, bound of its norm)

Scale. HGM: sigma = Delta L sqrt(2) (sqrt(s) + sqrt(s + epsilon_r)) / (2 epsilon_r). It holds for
every epsilon_r. Proof: with z = sigma / (Delta L), the privacy loss of a Gaussian is normal, and
exceeds epsilon_r where a standard normal exceeds t = z epsilon_r - 1/(2z). This z makes
t = sqrt(2 s), hence P <= exp(-s) / (t sqrt(2 pi)) = delta_r / (2 t), which is at most delta_r where
t >= 1/2, that is delta_r <= 0.7. SecureSGD-AGM, 'analytic' here: the least z that does it (Balle
and Wang, 2018); for the defaults 0.84 of HGM's.

Heterogeneous noise. With v_i = 1 - a + a w r_i, a the `hidden_share`, the deviations are
sigma sqrt(v_i / min v): none is below sigma, the more vulnerable features have more. It is the sum
of independent noise of deviation sigma everywhere and of the rest, so it hides an attack at least
as well as the former does. That is HGM's own condition on r, with equality in the worst direction
(`privacy.mechanisms`); noise cannot be taken from some features to give it to others, unless the
attack is known not to move them.

Guarantee: that of DP-SGD. The noise is drawn for each record by itself and has nothing to do with
any record; the gradient of a record, whatever was drawn for it, is clipped to C. The deviations are
constants, computed from the settings and the first weights.

Certificate: noise of deviation `noise_scale` at prediction (`privet certify --hidden-scale`).

Deviations from the paper: noise is fresh for each record and step (the public program draws it
once); gradients are clipped for each record, biases too; the first map is kept within norm 1, where
the paper calibrates the noise to its norm; r is public; the share that is not redistributed keeps
r from vanishing anywhere. The public program uses the shares of the variance as factors of the
deviation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet.models.hidden_noise import HiddenNoise, after_first_map, first_map
from privet.privacy.noise import analytic_gaussian_multiplier
from privet.training.noise_layer import NoiseLayerSettings
from privet.training.settings import Settings

CALIBRATIONS: Final = ("hgm", "analytic")
PUBLIC_MAPS: Final = ("uniform", "made-up")
MADE_UP: Final = 256  # inputs


@dataclass(frozen=True, kw_only=True)
class SecureSGDNoise(NoiseLayerSettings):
    """The noise of SecureSGD, in either analysis.

    Attributes:
        calibration: of its scale: 'hgm', the paper's formula, or 'analytic' (SecureSGD-AGM).
        hidden_share: share of the variance that is distributed by vulnerability.
    """

    attack_bound: float = 0.2
    robust_epsilon: float = 4.0
    robust_delta: float = 1e-5
    calibration: str = "hgm"
    hidden_share: float = 0.5

    @property
    def noise_scale(self) -> float:
        """The least deviation."""
        least = {"hgm": hgm_multiplier, "analytic": analytic_gaussian_multiplier}
        return least[self.calibration](self.robust_epsilon, self.robust_delta) * self.attack_bound


@dataclass(frozen=True, kw_only=True)
class SecureSGDSettings(SecureSGDNoise, Settings):
    """The settings of DP-SGD, and the noise.

    Attributes:
        redistribution: of the noise: 'uniform', or 'made-up': by the vulnerability of the first
            weights to made-up inputs. Both are public.
    """

    redistribution: str = "uniform"

    method: ClassVar[str] = "securesgd"
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "calibration": CALIBRATIONS,
        "redistribution": PUBLIC_MAPS,
    }
    _shares: ClassVar[tuple[str, ...]] = (*Settings._shares, "hidden_share")

    def noise_for(self, model: nn.Module, shape: tuple[int, ...]) -> HiddenNoise:
        """By the map that was asked for."""
        if self.redistribution == "uniform":
            return super().noise_for(model, shape)
        r = vulnerability(model, *made_up_inputs(model, shape))
        return HiddenNoise("gaussian", deviations(self.noise_scale, r, self.hidden_share))


def hgm_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2) (sqrt(s) + sqrt(s + epsilon)) / (2 epsilon); proof at the top of this file."""
    s = math.log(math.sqrt(2.0 / math.pi) / delta)
    return math.sqrt(2.0) * (math.sqrt(s) + math.sqrt(s + epsilon)) / (2.0 * epsilon)


def vulnerability(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """r: |mean over examples of the sign of d loss / d h_i|, divided by its sum.

    In evaluation mode, so without noise. Uniform where no feature moves any loss.
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        h = first_map(model)(x)
    with torch.enable_grad():
        h = h.requires_grad_()
        loss = F.cross_entropy(after_first_map(model)(h), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, h)
    model.train(training)
    mean = gradient.sign().mean(0).abs()
    total = float(mean.sum())
    return mean / total if total > 0 else torch.full_like(mean, 1.0 / mean.numel())


def deviations(least: float, r: Tensor, share: float) -> Tensor:
    """One for each feature: none below `least`, more where r is larger; r adds up to 1."""
    variance = (1.0 - share) + share * r.numel() * r
    return least * (variance / variance.min()).sqrt()


def made_up_inputs(model: nn.Module, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Uniform inputs, and all classes in turn: nothing of any record."""
    device = next(model.parameters()).device
    x = torch.rand(MADE_UP, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad():
        classes = model(x[:2]).shape[1]
    return x, torch.arange(MADE_UP, device=device) % classes
