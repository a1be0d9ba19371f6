"""The functional mechanism (Zhang et al., 2012): noise on an objective, once; training is free.

| paper             | here                                                               |
|-------------------|--------------------------------------------------------------------|
| t_i = (x_i, y_i)  | a record; |x_i| <= 1 by clipping, y_i coded as a target t_i        |
| omega             | W, one column for each output                                      |
| lambda_phi        | coefficients: S = sum x_i x_i^T and B = sum x_i t_i^T              |
| Delta             | `sensitivity`                                                      |
| f-bar_D           | `NoisyObjective`                                                   |

All objectives here are f(W) = a tr(W^T S W) + <B K, W> with public constants a and K:

| objective      | target t                 | a                       | K                     |
|----------------|--------------------------|-------------------------|-----------------------|
| `LeastSquares` | y, shortened to a bound  | 1                       | -2                    |
| `Logistic`, two classes | 1/2 - y         | 1/8 (Taylor), or less   | 1                     |
| `Logistic`, more | one-hot y, one class against the rest | the same   | 1/2 (all ones) - 1    |

For least squares this is exact (up to a constant). The logistic loss log(1 + e^z) - yz is z/2 - yz
plus the even function log(2 cosh(z/2)), of which the term of second degree is kept: Taylor at 0, or
the Chebyshev term on [-r, r]. The result pulls scores towards +-1/(4a): it is a least squares fit.

Proof note. One record adds (x x^T, x t^T) to (S, B), with |x| <= 1, |t| <= T (L2), |t|_1 <= T_1.

- S is symmetric, so it is released as its upper triangle. For Gaussian noise entries off the
  diagonal are scaled by sqrt(2), so that lengths are Frobenius norms.
- L2, add/remove: |x x^T|^2 + |x t^T|^2 = |x|^4 + |x|^2 |t|^2 <= 1 + T^2. Reached.
- L2, replace-one: with c = <x, x'> the square is |x|^4 + |x'|^4 - 2c^2 + |x|^2 |t|^2 + |x'|^2
  |t'|^2 - 2c <t, t'>; largest at lengths 1 and T and opposite signs of c and <t, t'>, where it is
  2 + 2 T^2 - 2 c^2 + 2 T^2 |c|, and that at |c| = min(1, T^2/2). Reached; below twice the other.
- L1, add/remove: the sum over i <= j of |x_i x_j| is (|x|_1^2 + |x|^2)/2, and |x t^T|_1 is
  |x|_1 |t|_1; |x|_1 <= sqrt(d), so the bound is (d + 1)/2 + sqrt(d) T_1. Reached where all |x_i|
  are equal.
- L1, replace-one: at most twice that.

(S, B) plus Gaussian or Laplace noise of that size is one release. Everything afterwards (repair,
ridge, any number of iterations) is post-processing. No coefficient is divided by the number of
records, which nobody needs for the minimum.

What is refused, because published methods break there: coefficients that depend on parameters. If x
is the output of layers that are still being trained, (S, B) is another query at every step; with
the noise of the first answer its differences are bare, with fresh noise each must be charged. Here
the coefficients are computed from records alone, inside `perturb`, and tensors that hang on a graph
of parameters are turned away. Two calls are two releases: the noise is bound to the sums.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import dp_accounting as dp
import numpy as np
import torch
from torch import Tensor

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import DpEvent
from privet.privacy.clipping import clip_factors
from privet.privacy.noise import GaussianNoise, LaplaceNoise, check_scale
from privet.privacy.randomness import SecretStream
from privet.privacy.tradeoff import Gaussian, Laplace

Kind = Literal["gaussian", "laplace"]

CHEBYSHEV_NODES: Final = 512


@dataclass(frozen=True, kw_only=True)
class PolynomialObjective(ABC):
    """A quadratic objective whose coefficients are sums over records. `features`: length of x.

    Guarantee: `perturb` is one Gaussian or Laplace release under add/remove neighbours, whatever is
    done with its result.
    """

    features: int

    def __post_init__(self) -> None:
        _require_positive("number of features", self.features)

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Columns of W."""

    @property
    @abstractmethod
    def target_norms(self) -> tuple[float, float]:
        """Bounds on the L1 and L2 norm of a target."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """a: what S is multiplied by."""

    @abstractmethod
    def targets(self, y: Any) -> Tensor:
        """The targets of records, one row each, within `target_norms`."""

    @abstractmethod
    def slope(self, b: Tensor) -> Tensor:
        """B K: the linear coefficients from the released B."""

    def sensitivity(self, kind: Kind, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> float:
        """Of (S, B): in L2 for Gaussian noise, in L1 for Laplace; see the proof note."""
        replace_one = Adjacency(adjacency) is Adjacency.REPLACE_ONE
        t1, t2 = self.target_norms
        if kind == "laplace":
            once = (self.features + 1) / 2.0 + math.sqrt(self.features) * t1
            return 2.0 * once if replace_one else once
        if kind == "gaussian":
            c = min(1.0, t2**2 / 2.0) if replace_one else 0.0
            once = 1.0 + t2**2
            return math.sqrt(2.0 * (once - c**2 + t2**2 * c)) if replace_one else math.sqrt(once)
        raise InputError("unknown kind of noise", got=kind, expected="'gaussian' or 'laplace'")

    def event(self, kind: Kind, multiplier: float) -> DpEvent:
        """One release."""
        laplace = kind == "laplace"
        return dp.LaplaceDpEvent(multiplier) if laplace else dp.GaussianDpEvent(multiplier)

    def tradeoff(
        self, kind: Kind, multiplier: float, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> Gaussian | Laplace:
        """Of one release; under replace-one tighter than doubling the event."""
        ratio = self.sensitivity(kind, adjacency) / self.sensitivity(kind) / multiplier
        return Laplace(ratio) if kind == "laplace" else Gaussian(ratio)

    def coefficients(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        """S and B, without noise: private. Rows of x are shortened to length 1."""
        rows = _shortened(_records(x, "features"), 1.0)
        targets = self.targets(y)
        if rows.shape[1:] != (self.features,) or targets.shape != (len(rows), self.outputs):
            raise InputError(  # without their number, which is private
                "records of another shape",
                got=f"rows of x {tuple(rows.shape[1:])}, targets {tuple(targets.shape[1:])}",
                expected=f"({self.features},) and ({self.outputs},), and as many of both",
            )
        return rows.T @ rows, rows.T @ targets

    def perturb(
        self, x: Any, y: Any, *, kind: Kind, multiplier: float, step: int, stream: SecretStream
    ) -> "NoisyObjective":
        """Release the objective of these records. `multiplier`: noise in units of sensitivity."""
        check_scale("noise multiplier", multiplier)
        sensitivity = self.sensitivity(kind)
        off_diagonal = math.sqrt(2.0) if kind == "gaussian" else 1.0
        packed = _pack(*self.coefficients(x, y), off_diagonal)
        if kind == "gaussian":
            gaussian = GaussianNoise(multiplier=multiplier, sensitivity=sensitivity)
            noisy = gaussian.add_to(packed, step=step, stream=stream)
        else:
            laplace = LaplaceNoise(scale=multiplier, sensitivity=sensitivity)
            noisy = torch.from_numpy(laplace.add_to(packed.numpy(), step=step, stream=stream))
        s, b = _unpack(noisy, self.features, off_diagonal)
        deviation = (
            multiplier * sensitivity * (math.sqrt(0.5) if kind == "gaussian" else math.sqrt(2))
        )
        return NoisyObjective(
            quadratic=self.curvature * s,
            linear=self.slope(b),
            spread=self.curvature * deviation,
            event=self.event(kind, multiplier),
        )


@final
@dataclass(frozen=True, kw_only=True)
class LeastSquares(PolynomialObjective):
    """sum |y_i - W^T x_i|^2, with targets shortened to `target_bound`."""

    responses: int = 1
    target_bound: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive("number of responses", self.responses)
        check_scale("target bound", self.target_bound)

    @property
    def outputs(self) -> int:
        """One column for each response."""
        return self.responses

    @property
    def target_norms(self) -> tuple[float, float]:
        """|t|_1 <= sqrt(outputs) |t|."""
        return math.sqrt(self.responses) * self.target_bound, self.target_bound

    @property
    def curvature(self) -> float:
        """Of the square."""
        return 1.0

    def targets(self, y: Any) -> Tensor:
        """The responses, each record's shortened to the bound."""
        values = _records(y, "responses")
        rows = values.unsqueeze(1) if values.ndim == 1 else values
        return _shortened(rows, self.target_bound)

    def slope(self, b: Tensor) -> Tensor:
        """-2 y x."""
        return -2.0 * b


@final
@dataclass(frozen=True, kw_only=True)
class Logistic(PolynomialObjective):
    """The logistic loss to second degree; labels are 0 .. classes - 1.

    Attributes:
        classes: declared number of classes.
        radius: of the interval of scores for which the Chebyshev term is taken; 0: Taylor.
    """

    classes: int = 2
    radius: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.classes, int) and self.classes >= 2):
            raise InputError("bad number of classes", got=self.classes, expected="at least 2")
        if not 0 <= self.radius < math.inf:
            raise InputError("bad radius", got=self.radius, expected="at least 0")

    @property
    def outputs(self) -> int:
        """One score for two classes, one for each class otherwise."""
        return 1 if self.classes == 2 else self.classes

    @property
    def target_norms(self) -> tuple[float, float]:
        """+-1/2, or one-hot."""
        return (0.5, 0.5) if self.classes == 2 else (1.0, 1.0)

    @property
    def curvature(self) -> float:
        """Of log(2 cosh(z/2)): 1/8 at 0, less on a wide interval."""
        if self.radius == 0.0:
            return 0.125
        angles = (np.arange(CHEBYSHEV_NODES) + 0.5) * math.pi / CHEBYSHEV_NODES
        z = self.radius * np.cos(angles)
        even = np.logaddexp(z / 2.0, -z / 2.0)
        return float(2.0 * np.mean(even * np.cos(2.0 * angles)) * 2.0 / self.radius**2)

    def targets(self, y: Any) -> Tensor:
        """Coded labels; one outside the declared classes contributes nothing."""
        labels = _records(y, "labels").reshape(-1, 1)
        one_hot = (labels == torch.arange(self.classes)).double()
        return (one_hot[:, :1] - one_hot[:, 1:]) / 2.0 if self.classes == 2 else one_hot

    def slope(self, b: Tensor) -> Tensor:
        """(1/2 - y) x; for one-hot targets the sum of x is the sum over the classes."""
        return b if self.classes == 2 else b.sum(1, keepdim=True) / 2.0 - b


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyObjective:
    """A released objective <quadratic, W W^T> + <linear, W>; may be published.

    Attributes:
        quadratic: a S with noise; symmetric, not always positive definite.
        linear: B K with noise.
        spread: standard deviation of the noise in `quadratic` off the diagonal.
        event: what the release cost.
    """

    quadratic: Tensor
    linear: Tensor
    spread: float
    event: DpEvent

    @property
    def noise_norm(self) -> float:
        """About the spectral norm of the noise matrix: 2 spread sqrt(d) (Wigner). Public."""
        return 2.0 * self.spread * math.sqrt(len(self.quadratic))

    def repaired(self, ridge: float | None = None) -> Tensor:
        """The nearest positive semi-definite matrix, plus `ridge` (default: `noise_norm`)."""
        ridge = self.noise_norm if ridge is None else ridge
        check_scale("ridge", ridge)
        values, vectors = torch.linalg.eigh(self.quadratic)
        repaired: Tensor = (vectors * (values.clamp_min(0.0) + ridge)) @ vectors.T
        return repaired

    def minimise(self, ridge: float | None = None) -> Tensor:
        """The W with the least repaired objective: one column for each output."""
        solved: Tensor = torch.linalg.solve(self.repaired(ridge), self.linear)
        return -0.5 * solved

    def value(self, w: Tensor) -> float:
        """The noisy objective at W, as it was released."""
        return float((w * (self.quadratic @ w)).sum() + (self.linear * w).sum())


def _records(values: Any, name: str) -> Tensor:
    """Records as doubles; refuses what was computed from parameters."""
    if isinstance(values, Tensor) and (values.requires_grad or values.grad_fn is not None):
        raise InputError(
            f"{name} that depend on parameters",
            got="a tensor with a graph behind it",
            expected="records, or features from a map that is frozen",
            fix="freeze the features before; a map trained on these records must be paid for",
        )
    return torch.as_tensor(values).detach().cpu().double()


def _shortened(rows: Tensor, bound: float) -> Tensor:
    """Each row scaled down to the bound; zero where it is not finite."""
    factors = clip_factors(torch.linalg.vector_norm(rows, dim=1), bound).unsqueeze(1)
    return factors * torch.where(factors > 0, rows, torch.zeros_like(rows))


def _pack(s: Tensor, b: Tensor, off_diagonal: float) -> Tensor:
    """The upper triangle of S, scaled off the diagonal, then B."""
    i, j = torch.triu_indices(len(s), len(s))
    scale = torch.where(i == j, 1.0, off_diagonal).double()
    return torch.cat([s[i, j] * scale, b.flatten()])


def _unpack(packed: Tensor, features: int, off_diagonal: float) -> tuple[Tensor, Tensor]:
    """Inverse of `_pack`."""
    i, j = torch.triu_indices(features, features)
    scale = torch.where(i == j, 1.0, off_diagonal).double()
    s = torch.zeros(features, features, dtype=torch.float64)
    s[i, j] = packed[: len(i)] / scale
    s[j, i] = s[i, j]
    return s, packed[len(i) :].reshape(features, -1)


def _require_positive(name: str, value: int) -> None:
    if not (isinstance(value, int) and value >= 1):
        raise InputError(f"bad {name}", got=value, expected="a whole number, at least 1")
