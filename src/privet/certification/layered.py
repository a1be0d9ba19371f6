"""Gaussian noise in two places: at the input and after the first linear map.

| symbol     | here               | meaning                                                        |
|------------|--------------------|----------------------------------------------------------------|
| W, b       | `path`             | the linear path between the two noises; b is its bias          |
| sigma_x    | `sigma_input`      | deviation of the noise on x                                    |
| sigma_h    | `sigma_hidden`     | deviation of the noise on h = W x + b                          |
| s          | `norm.bound`       | at least the largest singular value of W                       |
| sigma      | `effective_sigma`  | deviation of input noise that certifies as much                |
| p          | `p_lower`          | lower bound of the probability of the top class                |

StoBatch has noise in both places, in two passes, and adds up what each pass spends. In one pass two
Gaussian noises are *one* Gaussian, and its certificate is exact:

Guarantee. Let f(x) be any randomised function of W (x + sigma_x z) + b + sigma_h z', z and z' fresh
standard normal vectors. If a class has probability at least p > 1/2 at x, it is the most likely
class at every x + delta with |delta| < sigma Phi^-1(p), sigma^2 = sigma_x^2 + sigma_h^2 / s^2.

Proof. The noisy hidden layer is N(W x + b, S), S = sigma_x^2 W W^T + sigma_h^2 I, and the rest of
the network is post-processing. Moving x by delta moves the mean by W delta, so the two laws are as
far apart as N(0, 1) and N(mu, 1), mu^2 = (W delta)^T S^-1 (W delta), and an event of probability p
keeps at least Phi(Phi^-1(p) - mu), which is above 1/2 while mu < Phi^-1(p). In the singular vectors
of W, with singular values s_i and coordinates d_i of delta,

    mu^2 = sum over i of d_i^2 s_i^2 / (sigma_x^2 s_i^2 + sigma_h^2).

Each quotient rises with s_i, so mu^2 <= |delta|^2 / (sigma_x^2 + sigma_h^2 / s_max^2), with
equality for delta along the top singular vector. A larger s only lowers sigma. Directions in the
kernel of W have s_i = 0: they add nothing to mu, and the input noise there neither helps nor hurts.
Where sigma_h = 0, S may be singular; then f is post-processing of x + sigma_x z, sigma = sigma_x.

It is tight: for a half-space across the top left singular vector the radius is the distance. It is
never below the better of the two noises alone (sigma_x, and sigma_h / s), unlike the harmonic rule.

What breaks it, and is refused: anything between the noises that is not linear (clipping pixels to
[0, 1], an activation, a skip around the hidden noise). Weights that change later: the path is
copied. Noise shared between inputs would keep the certificate of each and spoil its estimate.
"""

import copy
import math
from collections.abc import Callable
from typing import final

import torch
from scipy.special import ndtri
from torch import Tensor, nn

from privet.certification.operator_norm import OperatorNorm, operator_norm
from privet.errors import InputError
from privet.privacy.tradeoff import Gaussian

Scores = Callable[[Tensor], Tensor]


@final
class LayeredGaussian:
    """Noise sigma_input on x and sigma_hidden on path(x); see the proof at the top of this file.

    Attributes:
        norm: proved bound of the path's largest singular value.
        effective_sigma: the deviation of input noise alone that has the same certificate.
    """

    def __init__(
        self,
        path: nn.Module,
        sigma_input: float,
        sigma_hidden: float,
        shape: tuple[int, ...],
    ) -> None:
        """Bound the path's norm on inputs of `shape`; refuse a path that is not linear."""
        sigmas = (sigma_input, sigma_hidden)
        if not (all(0 <= sigma < math.inf for sigma in sigmas) and max(sigmas) > 0):
            raise InputError(
                "bad deviations of noise",
                got=f"{sigma_input} at the input, {sigma_hidden} at the hidden layer",
                expected="finite numbers, not negative and not both 0",
            )
        self.sigma_input, self.sigma_hidden, self.shape = sigma_input, sigma_hidden, shape
        self.norm: OperatorNorm = operator_norm(path, shape)
        self._path = copy.deepcopy(path).eval().requires_grad_(False)

    @property
    def effective_sigma(self) -> float:
        """sqrt(sigma_x^2 + sigma_h^2 / s^2), rounded down."""
        hidden = self.sigma_hidden / self.norm.bound if self.norm.bound > 0 else math.inf
        return math.hypot(self.sigma_input, hidden if self.sigma_hidden else 0.0) * (1 - 1e-14)

    def tradeoff(self, distance: float) -> Gaussian:
        """What an attacker at this l2 distance can do to the probability of any event, at worst."""
        return Gaussian(distance / self.effective_sigma)

    def radius(self, p_lower: float) -> float:
        """The certified l2 radius of a class of probability at least p_lower; 0 up to one half."""
        if not 0 <= p_lower <= 1:
            raise InputError("bad probability", got=p_lower, expected="between 0 and 1")
        return self.effective_sigma * float(ndtri(p_lower)) * (1 - 1e-14) if p_lower > 0.5 else 0.0

    def scores(self, rest: Scores, *, generator: torch.Generator) -> Scores:
        """The noisy classifier x -> rest(path(x + noise) + noise), as `Classifier.scores` wants it.

        Every row of every call has noise of its own. `rest` must treat rows one by one, and must
        not see x by another way.

        Args:
            rest: from the hidden layer to the scores.
            generator: draws the noise; secret or not, it is no matter of privacy.
        """

        def noisy(x: Tensor) -> Tensor:
            if tuple(x.shape[1:]) != self.shape:
                raise InputError(
                    "inputs of another shape than the certificate's",
                    got=tuple(x.shape[1:]),
                    expected=str(self.shape),
                )
            hidden = self._path(_blurred(x, self.sigma_input, generator))
            return rest(_blurred(hidden, self.sigma_hidden, generator))

        return noisy


def _blurred(x: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(x.shape, dtype=x.dtype, device=generator.device, generator=generator)
    return x + sigma * noise.to(x.device)
