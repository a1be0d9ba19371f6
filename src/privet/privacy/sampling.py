"""Which examples a step sees. The sampler that runs is the one the accountant assumes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet.errors import InputError
from privet.privacy.randomness import SecretStream


@dataclass(frozen=True, kw_only=True)
class PoissonSampler:
    """Every example joins every step independently, with probability `rate`.

    Guarantee: inclusion of one example is independent of all others and of their number, which
    is exactly the hypothesis of `PoissonSampledDpEvent`. `rate` is a constant of the plan.
    Batch sizes vary; a batch may be empty. Cost: O(n) random words a step.
    """

    rate: float

    name = "poisson"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(
                "bad sampling rate",
                got=self.rate,
                expected="0 < rate <= 1",
                fix="choose an expected batch of at most the nominal size",
            )

    def draw(self, n: int, *, step: int, stream: SecretStream) -> NDArray[np.int64]:
        """Indices of the examples in `step`; repeatable for the same stream and step."""
        # u is a multiple of 2**-53 below 1, so P(u < rate) is rate rounded up to 2**-53.
        u = stream.uniform(n, purpose="sampling", step=step)
        return np.flatnonzero(u < self.rate)
