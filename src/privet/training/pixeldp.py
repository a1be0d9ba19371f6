"""PixelDP (Lecuyer et al., 2019): training through noise that certifies predictions. No privacy.

| paper                  | here                             | meaning                            |
|------------------------|----------------------------------|------------------------------------|
| L                      | `attack_bound`                   | construction attack bound          |
| epsilon, delta         | `robust_epsilon`, `robust_delta` | of the layer, between two *inputs* |
| Delta_2,2, Delta_1,1   | at most 1                        | norm of the map before the noise   |
| sigma = sqrt(2 ln(1.25/delta)) Delta L / epsilon | `noise_scale`, norm 'l2' | Gaussian     |
| b = Delta L / epsilon  | `noise_scale`, norm 'l1'         | Laplace                            |

    in each step, for a batch of records:
        h_i   = first(x_i) + sigma z_i,   z_i fresh for each record and step
        theta <- optimiser(theta, gradient of the mean of CE(rest(h_i), y_i))
        first <- first / max(1, bound of its norm)

Certificate. The noise makes first(x) and first(x + alpha) (epsilon, delta)-close for |alpha| <= L.
Two forms of it, of one and the same model (`training.own_noise`):

- as published: scores with E_lb > e^(2 epsilon) max E_ub + (1 + e^epsilon) delta keep their order
  (`certification.published`); sound, and small, as Gaussian noise stops at epsilon = 1;
- by the trade-off function of the noise (`certification.hidden`): the most that holds.

The network does not know epsilon, delta and L, only their quotient, the scale: a certificate may be
for other sizes than L.

Guarantee of privacy: none. 'DP' in the name is between two inputs of a prediction, not between two
sets of training records. Ledger and card say so.

Deviations: the defaults of L, epsilon and delta are the paper's (0.1, 1, 0.05); comparisons that
state a "construction attack bound epsilon_r = 0.1" are read as L = 0.1. The paper projects the
first map in a way of its own; here its weights are divided by a proved bound. Noise in evaluation
is left to the certificate (`models.hidden_noise`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from privet.engine.plain import PlainTrainer
from privet.errors import InputError
from privet.training import unprotected
from privet.training.noise_layer import NoiseLayerSettings, noise_facts
from privet.training.plain import PLAIN, PlainSettings
from privet.training.unprotected import Unprotected

NOISES: Final = {"l2": "gaussian", "l1": "laplace"}
PLACES: Final = ("input", "hidden")


@dataclass(frozen=True, kw_only=True)
class PixelDPSettings(NoiseLayerSettings, PlainSettings):
    """The settings of plain training, and the noise.

    Attributes:
        robust_delta: delta_r, of Gaussian noise; the paper's default.
        noise_norm: of attacks: 'l2' for Gaussian noise, 'l1' for Laplace noise.
        noise_layer: 'hidden', behind the first linear map, or 'input'.
    """

    robust_delta: float = 0.05
    noise_norm: str = "l2"
    noise_layer: str = "hidden"

    _network: ClassVar[str] = "published"
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **PlainSettings._choices,
        "noise_norm": tuple(NOISES),
        "noise_layer": PLACES,
    }

    @property
    def noise_scale(self) -> float:
        """Sigma, or b."""
        if self.noise_norm == "l1":
            return self.attack_bound / self.robust_epsilon
        return classic_multiplier(self.robust_epsilon, self.robust_delta) * self.attack_bound

    @property
    def noise_kind(self) -> str:
        """By the norm."""
        return NOISES[self.noise_norm]

    @property
    def noise_place(self) -> int:
        """By the layer's name."""
        return PLACES.index(self.noise_layer)

    def _check_together(self) -> None:
        super()._check_together()
        if self.noise_norm == "l2" and self.robust_epsilon > 1:
            raise InputError(
                "PixelDP's Gaussian noise is calibrated for epsilon up to 1",
                got=f"robust_epsilon {self.robust_epsilon:g}",
                expected="at most 1",
                fix="a smaller --attack-bound instead: only their quotient counts",
            )
        if self.noise_layer == "input" and self.input_noise:
            raise InputError(
                "noise on the input twice",
                got=f"noise_layer 'input', input_noise {self.input_noise:g}",
                fix="leave --input-noise out",
            )


def classic_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.25/delta)) / epsilon: enough for epsilon up to 1 (Dwork and Roth, 2014)."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def _mechanism(trainer: PlainTrainer, settings: PixelDPSettings) -> Mapping[str, Any]:
    return {"contribution": trainer.contribution, **noise_facts(settings)}


PIXELDP: Final = Unprotected(
    method="pixeldp", settings=PixelDPSettings, build=PLAIN.build, mechanism=_mechanism
)

run = partial(unprotected.run, PIXELDP)
resume = partial(unprotected.resume, PIXELDP)
