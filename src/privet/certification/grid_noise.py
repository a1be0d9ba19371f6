"""Gaussian noise on a grid: a certificate that survives floating-point arithmetic.

| symbol  | here                 | meaning                                                         |
|---------|----------------------|-----------------------------------------------------------------|
| h       | 1 / `levels`         | distance of neighbours on the grid                              |
| Q(x)    | `_centre` / `levels` | x, each coordinate rounded to the grid                          |
| K       | `_steps`             | integer noise of one coordinate                                 |
| tau     | `_Table.error`       | bound of the total variation between the law of K and the ideal |
| d       | `dimension`          | coordinates of an input                                         |
| rho     | `rounding`           | how far rounding to the grid can move the inputs, at most       |

Why. Float noise is not noise for a proof: fl(x + fl(sigma z)) lies on numbers that depend on x, and
a classifier that looks at the last bits can tell two inputs apart with certainty (Jin et al.,
"Getting a-Round Guarantees", 2022). Here nothing but an integer reaches the classifier, and the
integer is an exact sum.

What is smoothed. The input is rounded to the grid, Q(x). K is drawn independently of x from

    P(K = k) = Phi((k + 1/2) h / sigma) - Phi((k - 1/2) h / sigma),

and the classifier sees v = (Q(x)/h + K) h: integers are added, exactly, and whatever the one
division rounds is a function of the integer.

Guarantee. Let class A have probability at least p at x. It stays the most probable one at every
real x' with

    |x' - x| < sigma (Phi^-1(p - d tau) - Phi^-1(1/2 + d tau)) - rho,
    rho = |x - Q(x)| + sqrt(d) h / 2.

Proof. (1) Let r be rounding to the grid. For c on the grid r(c + sigma z) = c + r(sigma z), and
r(sigma z) / h has the law of K above. So P(f(Q(x) + h K) = A) is P((f o r)(c + sigma z) = A) at
c = Q(x), with real arithmetic and real noise: Cohen's theorem holds for f o r, whatever f does with
the bits of its input. (2) The drawn law is within d tau of the ideal one in total variation (d
independent coordinates): `smoothing_noise`. (3) At x' the classifier is asked at Q(x'), and
|Q(x') - Q(x)| <= |Q(x') - x'| + |x' - x| + |x - Q(x)| <= sqrt(d) h/2 + |x' - x| + |x - Q(x)|.

The price of (3) is sqrt(d) / (2 levels): for 784 pixels 0.0034 with the default of 4080 levels,
0.055 with 255. Bytes lie on the grid of every multiple of 255.

The sampler. u is uniform on {0, ..., 2^63 - 1}; K counts the thresholds t_j <= u, where t_j is
2^63 Phi((j - 1/2) h / sigma), computed in double precision for the lower half and mirrored, rounded
to an integer. Thresholds that round to 0 are left out. tau is the sum of
(1) |t_j / 2^63 - Phi_j| over all thresholds, for a threshold that is off by e moves e of mass from
one neighbour to the other. At most 2^-64 by rounding; (x^2 + 4) 2^-51 of itself by the library's
Phi(x), which does twice as well in a test; and (x^2 + 1) 2^-51 of itself by its argument x, whose
relative error is below 2^-51 (|x| phi(x) <= (x^2 + 1) Phi(x) for x < 0);
(2) the ideal mass outside of the table, 2^-63 at most but for the last item above.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, final

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from privet.certification.smoothing_noise import SmoothingNoise, check_scale
from privet.classifiers import Classifier
from privet.errors import InputError
from privet.privacy import tradeoff
from privet.privacy.tradeoff import TradeOff

LEVELS: Final = 16 * 255
_FARTHEST: Final = 9.5  # deviations; 2^63 Phi(-9.5) rounds to 0
_MOST_STEPS: Final = 1_000_000  # of a deviation: thresholds take memory


@final
@dataclass(frozen=True)
class GridGaussian(SmoothingNoise):
    """Rounded Gaussian noise on inputs rounded to a grid; certifies l2. Proof: top of this file.

    Attributes:
        sigma: the deviation before rounding.
        levels: steps of the grid between 0 and 1.
        dimension: coordinates of an input; `certify` fills it in.
        offset: largest l2 distance of an input from the grid; `certify` fills it in.
    """

    sigma: float
    levels: int = LEVELS
    dimension: int | None = None
    offset: float = 0.0
    name: ClassVar[str] = "grid gaussian"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        check_scale("sigma", self.sigma)
        if not (self.levels >= 1 and self.sigma * self.levels <= _MOST_STEPS):
            raise InputError(
                "bad grid",
                got=f"{self.levels} levels",
                expected=f"at least 1, and at most {_MOST_STEPS:,} / sigma",
                fix="try 255 or a multiple: bytes lie on it",
            )

    @property
    def scale(self) -> float:
        """Sigma."""
        return self.sigma

    @property
    def details(self) -> dict[str, Any]:
        """The grid, and what it costs."""
        return {
            "levels": self.levels,
            "rounding": self.rounding,
            "total_variation": self.total_variation,
        }

    @property
    def rounding(self) -> float:
        """Rho: what rounding to the grid takes off a radius; rounded up."""
        return (self.offset + math.sqrt(self._inputs) / (2.0 * self.levels)) * (1.0 + 1e-12)

    @property
    def total_variation(self) -> float:
        """D tau, rounded up."""
        return self._inputs * self._table.error * (1.0 + 1e-12)

    def fitted(self, classifier: Classifier, x: Tensor) -> "GridGaussian":
        """With the dimension of these inputs and their largest distance from the grid."""
        away = (x.double() - self._centre(x).double() / self.levels).flatten(1).norm(dim=1)
        offset = float(away.max()) * (1.0 + 1e-9) if len(x) else 0.0
        return dataclasses.replace(self, dimension=math.prod(x.shape[1:]), offset=offset)

    def radius(self, p_lower: float, p_upper: float | None = None) -> float:
        """As for real noise, less what rounding moves."""
        return max(0.0, math.nextafter(super().radius(p_lower, p_upper) - self.rounding, 0.0))

    def threshold(self, radius: float) -> float:
        """As for real noise, at a radius that is larger by what rounding moves."""
        return super().threshold(math.nextafter(radius + self.rounding, math.inf))

    def tradeoff(self, radius: float) -> TradeOff:
        """Of ideal noise at points of the grid."""
        return tradeoff.Gaussian(radius / self.sigma)

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """The noise alone, K h."""
        return self._steps(shape, generator).float() / self.levels

    def noisy(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Q(x) + K h: an exact sum of integers, then one division."""
        return (self._centre(x) + self._steps(tuple(x.shape), generator)).float() / self.levels

    def _centre(self, x: Tensor) -> Tensor:
        return torch.round(x.double() * self.levels).long()

    def _steps(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """K: how many thresholds a uniform integer of 63 bits has passed, counted from the middle.

        `random_` without bounds is uniform on all integers of 64 bits that are not negative.
        """
        draws = torch.empty(shape, dtype=torch.int64, device=generator.device)
        thresholds = _on(self._table, generator.device)
        return torch.bucketize(draws.random_(generator=generator), thresholds, right=True).sub_(
            len(thresholds) // 2
        )

    @property
    def _inputs(self) -> int:
        if self.dimension is None:
            raise InputError(
                "noise on a grid whose dimension is not known", fix="say dimension=, or certify"
            )
        return self.dimension

    @property
    def _table(self) -> "_Table":
        return _table_for(self.sigma * self.levels)


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """Thresholds in ascending order, as many below 2^62 as above, and tau."""

    thresholds: Tensor
    error: float


@lru_cache(maxsize=8)
def _table_for(deviation: float) -> _Table:
    """The table for noise of this deviation in steps of the grid."""
    x = -(np.arange(math.ceil(_FARTHEST * deviation) + 1) + 0.5) / deviation
    below = ndtr(x)
    rounded = np.rint(below * 2.0**63).astype(np.int64)
    kept = rounded > 0
    x, below, lower = x[kept], below[kept], rounded[kept][::-1]
    upper = np.int64(2**63 - 1) - lower[::-1] + 1  # 2^63 itself is no int64
    each = 2.0**-64 + below * (x * x + 3.0) * 2.0**-50
    error = 2.0 * float(each.sum()) + 2.0**-62  # both halves; twice the mass outside
    return _Table(torch.from_numpy(np.concatenate([lower, upper])), error * (1.0 + 1e-9))


@lru_cache(maxsize=8)
def _on(table: _Table, device: torch.device) -> Tensor:
    return table.thresholds.to(device)
