"""The classic moments accountant (Abadi et al., 2016), for comparison only.

What Privet states comes from `accounting`, which is tighter. This one is here because many papers
state its figures, and a reader should be able to see the gap.

| paper           | here                                        |
|-----------------|---------------------------------------------|
| sigma           | `noise_multiplier`, noise in units of the clip norm |
| q = L/N         | `rate` of Poisson sampling                  |
| T               | `steps`                                     |
| lambda          | `moment`, a whole number >= 1               |
| alpha(lambda)   | `log_moment`                                |
| E_1, E_2        | the two directions; E_2 is the larger       |

Proof note. With mu_0 = N(0, sigma^2) and mu = (1-q) mu_0 + q N(1, sigma^2), the log moment of a
step is the larger of log E_1, E_1 = E_{mu_0} (mu_0/mu)^lambda, and log E_2, E_2 = E_mu
(mu/mu_0)^lambda. E_2 = E_{mu_0} (mu/mu_0)^(lambda+1) expands into a binomial sum, since E_{mu_0}
exp(k (2x-1) / (2 sigma^2)) = exp((k^2 - k) / (2 sigma^2)). E_1 <= E_2 by Mironov, Talwar and Zhang
(2019, Theorem 5).
Log moments add up over steps, and Markov's inequality gives delta <= exp(alpha - lambda epsilon).
Hence alpha(lambda) = lambda D(lambda + 1) for the Renyi divergence D: the same curve that Renyi
accounting uses, turned into (epsilon, delta) by a looser inequality and at few orders.

Deviation: the paper evaluates E_1 and E_2 by numerical integration; the sum is exact.
"""

import math
from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp

from privet.errors import InputError
from privet.guarantee import check_target
from privet.privacy.noise import check_scale
from privet.privacy.tradeoff import Gaussian

PAPER_MOMENTS: Final = 32  # the paper computes lambda up to here


def log_moment(moment: int, *, noise_multiplier: float, rate: float) -> float:
    """alpha(lambda) of one Poisson-sampled Gaussian step; add/remove neighbours."""
    check_scale("noise multiplier", noise_multiplier)
    if not 0 < rate <= 1:
        raise InputError("bad sampling rate", got=rate, expected="0 < rate <= 1")
    if not (isinstance(moment, int) and moment >= 1):
        raise InputError("bad moment", got=moment, expected="a whole number, at least 1")
    if rate == 1.0:
        return moment * (moment + 1) / (2.0 * noise_multiplier**2)
    n, k = moment + 1, np.arange(moment + 2)
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    log_mixture = (n - k) * math.log1p(-rate) + k * math.log(rate)
    return float(logsumexp(log_choose + log_mixture + (k * k - k) / (2.0 * noise_multiplier**2)))


def epsilon(
    *,
    noise_multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    moments: int = PAPER_MOMENTS,
) -> float:
    """The epsilon that the paper would print; add/remove neighbours, never below the true one."""
    check_target(1.0, delta)
    if steps < 1:
        raise InputError("bad number of steps", got=steps, expected="at least 1")
    return min(
        (steps * log_moment(m, noise_multiplier=noise_multiplier, rate=rate) - math.log(delta)) / m
        for m in range(1, moments + 1)
    )


def strong_composition_epsilon(
    *, noise_multiplier: float, rate: float, steps: int, delta: float
) -> float:
    """What was known before: amplify each step, compose by the strong theorem.

    A step is (e, d)-DP, for every d, by the exact Gaussian curve; (log(1 + q(exp(e) - 1)), q d)-DP
    on a sample; and T of them compose by Dwork, Rothblum and Vadhan (2010). Delta is shared between
    the steps and the theorem in the best way on a grid. (The paper's own line in this comparison
    is lower: it takes q e for the sampled step, which holds to first order only.)
    """
    check_target(1.0, delta)
    step = Gaussian(1.0 / noise_multiplier)

    def composed(share: float) -> float:
        own = step.epsilon(share * delta / (steps * rate))
        sampled = math.log1p(rate * math.expm1(own))
        spread = math.sqrt(2.0 * steps * -math.log((1.0 - share) * delta))
        return sampled * spread + steps * sampled * math.expm1(sampled)

    return min(composed(float(share)) for share in np.linspace(0.01, 0.99, 99))
