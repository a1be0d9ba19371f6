"""Gaussian noise that is larger in some directions than in others: HGM and MGM.

| papers                         | here                                                   |
|--------------------------------|--------------------------------------------------------|
| HGM: sigma_1 .. sigma_w        | `HGM.deviations`                                       |
| HGM: sigma^2, r_i              | mean of sigma_i^2, sigma_i^2 / sum of sigma_j^2        |
| MGM: Sigma = M sigma^2         | `MGM.covariance`                                       |
| v-hat = Sigma^(-1/2) v         | `whiten`                                               |
| S_min                          | least eigenvalue of the covariance                     |

HGM is the heterogeneous Gaussian mechanism of SecureSGD (Phan et al., 2019), MGM the multivariate
one of TransDenoiser. What is kept of both is their sound core: a covariance that is *public*.

Proof note. Let Sigma be a constant. Multiplying by Sigma^(-1/2) is a bijection, so releasing
q + N(0, s^2 Sigma) is the same as releasing Sigma^(-1/2) q + N(0, s^2 I): a Gaussian mechanism.
If one unit moves q by v with |Sigma^(-1/2) v| <= C (the Mahalanobis norm; `clip` sees to it), and
s = zC, it is mu-GDP with mu = 1/z, and nothing is lost against isotropic noise: S_min plays no
role. If only |v| <= Delta is known, |Sigma^(-1/2) v| <= Delta / sqrt(S_min), with equality along
the least eigenvector; then mu = Delta / sqrt(S_min) for s = 1, and every direction but that one has
more noise than it needs.

Against the published conditions: HGM asks for sigma >= c max|v-hat| / epsilon, where |v-hat|^2 =
sum v_i^2 / (w r_i); divided by sigma that is our norm. With c = sqrt(2 log(1.25/delta)) this is the
classic Gaussian bound, so it agrees with ours in the sensitivity and asks for more noise below
epsilon = 1; above, it does not hold. We use the exact curve.

Why public. The papers compute Sigma from the batch. N(m, Sigma) against N(m', Sigma') has the
privacy loss of the mechanism above *plus* log(det Sigma' / det Sigma) / 2 and a quadratic term in
the output. Neither is bounded by any sensitivity of q: with m = m', where the mechanism above is
perfectly private, two deviations 1 and s differ by log(1/s) at the origin and by any amount in the
tails, and as s goes to 0 an observer is never wrong. Under add/remove a unit even takes its own
noise with it. So the covariance is a constant here, no method takes another one, and the maker
must say where it is from. A covariance computed from *released* private results is public too.
"""

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, final

import dp_accounting as dp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.errors import InputError
from privet.privacy.accounting import DpEvent
from privet.privacy.clipping import clip_factors
from privet.privacy.noise import check_scale, fingerprint
from privet.privacy.randomness import SecretStream
from privet.privacy.tradeoff import Gaussian

# Above this, rounding in the whitened norm could pass the margin that clipping keeps (1e-5).
WORST_CONDITION: Final = 1e12


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapedGaussian(ABC):
    """N(0, (multiplier * clip_norm)^2 Sigma) for a public Sigma; contributions clipped in its norm.

    Guarantee: the sum of vectors that `clip` returned, plus this noise, is (1/multiplier)-GDP under
    add/remove, for a Sigma that does not depend on the private records.

    Attributes:
        clip_norm: bound on one unit's |Sigma^(-1/2) v|.
        multiplier: noise in units of the clip norm.
        source: where Sigma is from, in words; becomes an assumption of the guarantee.
    """

    clip_norm: float
    multiplier: float
    source: str

    def __post_init__(self) -> None:
        check_scale("clip norm", self.clip_norm)
        check_scale("noise multiplier", self.multiplier)
        if not self.source.strip():
            raise InputError(
                "noise of unknown shape",
                got="no source",
                expected="where its covariance is from, in words",
                fix="use a public covariance, never one computed from the private records",
            )

    @abstractmethod
    def whiten(self, rows: Tensor) -> Tensor:
        """Sigma^(-1/2) times each row (for some square root), in double precision."""

    @abstractmethod
    def _coloured(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sigma^(1/2) z for the same square root."""

    @property
    @abstractmethod
    def _shape(self) -> NDArray[np.float64]:
        """What defines Sigma."""

    @property
    def tradeoff(self) -> Gaussian:
        """Of one release; add/remove neighbours."""
        return Gaussian(1.0 / self.multiplier)

    @property
    def event(self) -> DpEvent:
        """One release."""
        return dp.GaussianDpEvent(self.multiplier)

    @property
    def assumption(self) -> str:
        """What the guarantee rests on besides the code."""
        return f"the covariance of the noise is public: {self.source}"

    def clip(self, rows: Tensor) -> Tensor:
        """Each row shortened to at most the clip norm; zero where it is not finite."""
        exact = rows.detach().double()
        norms = torch.linalg.vector_norm(self.whiten(exact), dim=-1)
        factors = clip_factors(norms, self.clip_norm).unsqueeze(-1)
        return factors * torch.where(factors > 0, exact, torch.zeros_like(exact))

    def add_to(self, total: Tensor, *, step: int, stream: SecretStream) -> Tensor:
        """`total` (one flat vector) plus noise, in double precision.

        The draw is bound to the bytes of `total`, to the scale and to the covariance: as two
        scales, two shapes of one draw would be equations in it and the sum.
        """
        exact = total.detach().cpu().contiguous()
        self._require_size(exact.numel())
        scale = self.multiplier * self.clip_norm
        context = fingerprint(exact.numpy()) + struct.pack("<d", scale) + fingerprint(self._shape)
        z = stream.normal(exact.numel(), purpose=type(self).__name__, step=step, context=context)
        noisy = exact.double() + scale * torch.from_numpy(self._coloured(z))
        return noisy.to(total.device)

    def _require_size(self, size: int) -> None:
        if size != len(self._shape):
            raise InputError("vector of another size", got=size, expected=f"{len(self._shape)}")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HGM(ShapedGaussian):
    """Diagonal Sigma: `deviations` holds one public standard deviation for each coordinate."""

    deviations: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        constant = _frozen(self.deviations)
        if constant.ndim != 1 or not constant.size:
            raise InputError("bad deviations", got=f"shape {constant.shape}", expected="a vector")
        if not (np.all(np.isfinite(constant)) and np.all(constant > 0)):
            raise InputError("bad deviations", expected="positive, finite numbers")
        object.__setattr__(self, "deviations", constant)

    @classmethod
    def for_l2(cls, *, deviations: Any, sensitivity: float, source: str) -> Self:
        """Noise of exactly these deviations on a query of this L2 sensitivity."""
        norm = sensitivity / float(np.min(deviations))
        return cls(clip_norm=norm, multiplier=1.0 / norm, source=source, deviations=deviations)

    def whiten(self, rows: Tensor) -> Tensor:
        """Each coordinate over its own deviation."""
        self._require_size(rows.shape[-1])
        return rows.double() / torch.tensor(self.deviations, device=rows.device)

    def _coloured(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.deviations * z

    @property
    def _shape(self) -> NDArray[np.float64]:
        return self.deviations


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MGM(ShapedGaussian):
    """Any positive definite public Sigma."""

    covariance: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        constant = _frozen(self.covariance)
        _least_and_greatest_eigenvalue(constant)
        object.__setattr__(self, "covariance", constant)

    @classmethod
    def for_l2(cls, *, covariance: Any, sensitivity: float, source: str) -> Self:
        """Noise of exactly this covariance on a query of this L2 sensitivity."""
        least, _ = _least_and_greatest_eigenvalue(np.asarray(covariance, dtype=np.float64))
        norm = sensitivity / float(np.sqrt(least))
        return cls(clip_norm=norm, multiplier=1.0 / norm, source=source, covariance=covariance)

    def whiten(self, rows: Tensor) -> Tensor:
        """Triangular solve with the Cholesky factor."""
        self._require_size(rows.shape[-1])
        root = torch.tensor(self._root, device=rows.device)
        flat = rows.double().reshape(-1, rows.shape[-1])
        white: Tensor = torch.linalg.solve_triangular(root, flat.T, upper=False)
        return white.T.reshape(rows.shape)

    def _coloured(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        coloured: NDArray[np.float64] = self._root @ z
        return coloured

    @property
    def _shape(self) -> NDArray[np.float64]:
        return self.covariance

    @cached_property
    def _root(self) -> NDArray[np.float64]:
        return np.asarray(np.linalg.cholesky(self.covariance))


def _frozen(values: Any) -> NDArray[np.float64]:
    """A copy that nobody can change afterwards: the shape must not follow the data."""
    constant = np.array(values, dtype=np.float64)
    constant.flags.writeable = False
    return constant


def _least_and_greatest_eigenvalue(covariance: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the spectrum, the least one rounded down; refuses what is no covariance."""
    square = covariance.ndim == 2 and covariance.shape[0] == covariance.shape[1] > 0
    if not square or not np.all(np.isfinite(covariance)):
        raise InputError(
            "bad covariance", got=f"shape {covariance.shape}", expected="a finite square matrix"
        )
    if not np.array_equal(covariance, covariance.T):
        raise InputError("bad covariance", got="not symmetric", fix="use (S + S.T) / 2")
    spectrum = np.linalg.eigvalsh(covariance)
    greatest = float(spectrum[-1])
    least = float(spectrum[0]) - len(covariance) * np.finfo(np.float64).eps * greatest
    if not least * WORST_CONDITION > greatest:
        raise InputError(
            "covariance that is singular, or nearly so",
            got=f"eigenvalues {spectrum[0]:.3g} to {greatest:.3g}",
            expected=f"a ratio below {WORST_CONDITION:g}",
            fix="add a multiple of the identity: without noise in a direction nothing is hidden",
        )
    return least, greatest
