"""How many trials: the truncated negative binomial distribution.

Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy" (2022), Definition 1.

| paper          | here          | meaning                                                   |
|----------------|---------------|-----------------------------------------------------------|
| eta            | `shape`       | 1: geometric; 0: logarithmic; larger: nearer to its mean  |
| gamma          | `gamma`       | follows from the mean: the smaller, the more trials       |
| E[K]           | `mean`        | expected number of trials                                 |
| D_(eta, gamma) | `Repetitions` | P[K = k] ~ (1 - gamma)^k eta (eta + 1) ... (eta + k - 1) / k! |

The paper allows eta > -1; dp-accounting, which checks our figures, starts at 0, and so do we.

Why the number is random: the best of a fixed number of trials tells more than one would think (with
many trials it publishes the luckiest noise). A number that is likely to be small, and stays secret,
hides how much luck it took.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

from scipy.optimize import brentq

from privet.privacy.randomness import SecretStream


@final
@dataclass(frozen=True, kw_only=True)
class Repetitions:
    """The distribution of the number of trials, K.

    Guarantee: gamma is rounded up, so the true mean is below `mean` (by less than 1e-8 of it), and
    both terms of the theorem, log(1/gamma) and log E[K], are at most what is accounted.
    """

    mean: float
    shape: float

    @cached_property
    def gamma(self) -> float:
        """The one that gives the mean."""
        return math.exp(-self._decay)

    def pmf(self, k: int) -> float:
        """P[K = k], for k >= 1."""
        term = self._first
        for j in range(1, k):
            term *= self._ratio(j)
        return term

    def draw(self, stream: SecretStream) -> int:
        """K, from an address of its own; always at least 1.

        By inversion of a 53-bit uniform: exact but for a tail of probability below 2**-52.
        """
        u = float(stream.uniform(1, purpose="number of trials", step=0)[0])
        k, term = 1, self._first
        below = term
        while u >= below:
            term *= self._ratio(k)
            k += 1
            if below + term == below:  # rounding ends the tail
                break
            below += term
        return k

    @cached_property
    def _decay(self) -> float:
        """L = log(1/gamma); 1/gamma - 1 and 1 - gamma^eta are expm1 of it, exact near 0."""
        root = brentq(lambda decay: self._mean_at(decay) - self.mean, 1e-12, 100.0, xtol=1e-15)
        return float(root) * (1.0 - 1e-10)

    def _mean_at(self, decay: float) -> float:
        if self.shape == 0:
            return math.expm1(decay) / decay
        return self.shape * math.expm1(decay) / -math.expm1(-self.shape * decay)

    @cached_property
    def _first(self) -> float:
        """P[K = 1]."""
        if self.shape == 0:
            return -math.expm1(-self._decay) / self._decay
        return self.shape * -math.expm1(-self._decay) / math.expm1(self.shape * self._decay)

    def _ratio(self, k: int) -> float:
        """P[K = k + 1] / P[K = k]."""
        return -math.expm1(-self._decay) * (k + self.shape) / (k + 1)
