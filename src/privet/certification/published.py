"""Published rules for certified sizes, under their names, each with its basis.

| papers               | here                            | meaning                                 |
|----------------------|---------------------------------|-----------------------------------------|
| E_lb, max E_ub       | `lower`, `upper`                | bounds of mean scores, top and others   |
| epsilon_r, delta_r   | `epsilon`, `delta`              | privacy between x and x + alpha         |
| sigma, b             | `sigma`, `scale`                | of Gaussian, of Laplace noise           |
| Delta                | `change`                        | of the noised layer, per unit of attack |
| kappa, phi           | `Layers.kappa`, `phi`           | sizes of input and hidden noise alone   |
| b_x, b_h             | `input_scale`, `hidden_scale`   | Laplace scales                          |
| Delta_r^x, Delta_r^h | `input_change`, `hidden_change` | l1 change of the layers, per unit       |
| psi                  | `psi`                           | divisor of the noise at prediction      |

PixelDP (Lecuyer et al., 2019). Scores in [0, 1] whose noise makes x and x + alpha
(epsilon, delta)-close keep their order if E_lb > e^(2 epsilon) max E_ub + (1 + e^epsilon) delta.
Proof: E_k(x) <= e^epsilon E_k(x + alpha) + delta bounds the top score from below; with x and
x + alpha exchanged it bounds the others from above. The noise is fixed, so we solve for the size.
In y = e^epsilon the condition is quadratic: E_ub y^2 + delta y + delta - E_lb < 0.

StoBatch (Phan et al., 2020) multiplies the scores of two passes, one with fresh input noise, one
with fresh hidden noise. A change of size r costs r epsilon_r / kappa + r epsilon_r / phi; that is
epsilon_r at the *harmonic* size kappa phi / (kappa + phi). Sound, and below both kappa and phi.
DPAL, its predecessor, adds: kappa + phi. Unsound: `dpal_counterexample`.

What all of them need, and the papers' experiments lack: noise at prediction as large as the
certificate says (psi = 1: `psi_counterexample`), and changes counted in the l1 norm per unit of
attack, over all pixels and channels (`l1_change`). `smoothing` and `layered` certify more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from privet.errors import InputError
from privet.guarantee import Basis

Expected = Callable[[float], tuple[float, float]]

FRESH: Final = "the noise at prediction is fresh in every draw, and as large as stated"
BOUNDS: Final = "the bounds of the mean scores hold, with the confidence that they were made for"
DOWN: Final = 1.0 - 1e-12  # sizes are rounded down


@final
@dataclass(frozen=True, kw_only=True)
class PublishedSize:
    """What a published rule says of one input.

    Attributes:
        rule: whose.
        size: attacks below it are said not to change the label; in the norm of `change`.
        epsilon: the robustness budget spent at that size.
        basis: proved, or claimed where the rule does not hold.
        assumptions: what must hold outside of the formula.
        gaps: for a claim, what its proof misses.
    """

    rule: str
    size: float
    epsilon: float
    basis: Basis
    assumptions: tuple[str, ...] = (FRESH, BOUNDS)
    gaps: tuple[str, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Layers:
    """Laplace noise at the input and at the first hidden layer, in two independent passes."""

    input_scale: float
    hidden_scale: float
    input_change: float = 1.0
    hidden_change: float = 1.0

    def __post_init__(self) -> None:
        for name in ("input_scale", "hidden_scale", "input_change", "hidden_change"):
            _check_positive(name.replace("_", " "), getattr(self, name))

    def kappa(self, epsilon: float) -> float:
        """Size at which the input noise alone spends epsilon."""
        return epsilon * self.input_scale / self.input_change

    def phi(self, epsilon: float) -> float:
        """Size at which the hidden noise alone spends epsilon."""
        return epsilon * self.hidden_scale / self.hidden_change


def pixeldp_gaussian(
    lower: float, upper: float, *, sigma: float, change: float = 1.0, delta: float = 1e-5
) -> PublishedSize:
    """PixelDP with Gaussian noise: sigma = sqrt(2 ln(1.25/delta)) * change * size / epsilon.

    Proved for epsilon <= 1 (the classic calibration; Dwork and Roth, 2014, Theorem A.1), so the
    size stops there however sure the scores are.

    Args:
        lower: of the mean score of the top class.
        upper: of the mean score of every other class.
        sigma: deviation of the noise.
        change: most l2 change of the noised layer per unit of attack.
        delta: of the robustness budget; any value is valid, it is a choice.
    """
    _check_positive("sigma", sigma)
    _check_positive("change", change)
    if not 0 < delta < 1:
        raise InputError("bad delta", got=delta, expected="0 < delta < 1")
    epsilon = min(1.0, _budget(lower, upper, delta))
    size = epsilon * sigma / (math.sqrt(2.0 * math.log(1.25 / delta)) * change) * DOWN
    return PublishedSize(rule="PixelDP, Gaussian", size=size, epsilon=epsilon, basis=Basis.PROVED)


def pixeldp_laplace(
    lower: float, upper: float, *, scale: float, change: float = 1.0
) -> PublishedSize:
    """PixelDP with Laplace noise: epsilon = change * size / scale, delta = 0.

    Args:
        lower: of the mean score of the top class.
        upper: of the mean score of every other class.
        scale: of the noise; its deviation is sqrt(2) times that.
        change: most l1 change of the noised layer per unit of attack.
    """
    _check_positive("scale", scale)
    _check_positive("change", change)
    epsilon = _budget(lower, upper, 0.0)
    size = epsilon * scale / change * DOWN
    return PublishedSize(rule="PixelDP, Laplace", size=size, epsilon=epsilon, basis=Basis.PROVED)


def stobatch(lower: float, upper: float, layers: Layers, *, psi: float = 1.0) -> PublishedSize:
    """StoBatch's harmonic rule, for bounds of the mean *product* of the two passes' scores.

    Args:
        lower: of the mean product of the top class.
        upper: of the mean product of every other class.
        layers: the noise that the certificate is computed with.
        psi: the noise is drawn psi times smaller than that; sound only for 1.
    """
    epsilon = _budget(lower, upper, 0.0)
    size = harmonic(layers.kappa(epsilon), layers.phi(epsilon)) * DOWN
    gaps = () if psi == 1.0 else (f"the noise is drawn {psi:g} times smaller than certified",)
    basis = Basis.CLAIMED if gaps else Basis.PROVED
    return PublishedSize(rule="StoBatch", size=size, epsilon=epsilon, basis=basis, gaps=gaps)


def dpal(lower: float, upper: float, layers: Layers) -> PublishedSize:
    """DPAL's sum kappa + phi: claimed, and false; see `dpal_counterexample`."""
    epsilon = _budget(lower, upper, 0.0)
    return PublishedSize(
        rule="DPAL",
        size=layers.kappa(epsilon) + layers.phi(epsilon),
        epsilon=epsilon,
        basis=Basis.CLAIMED,
        gaps=("sizes of two layers do not add: at kappa + phi the budget is more than spent",),
    )


def harmonic(kappa: float, phi: float) -> float:
    """Kappa phi / (kappa + phi): below both; half of either where they are alike."""
    if kappa <= 0.0 or phi <= 0.0:
        return 0.0
    inverse = 1.0 / kappa + 1.0 / phi
    return 1.0 / inverse if inverse > 0.0 else math.inf


def l1_change(entries: int, norm: str) -> float:
    """Most l1 change of an input of so many entries (all channels) per unit of attack."""
    changes = {"l1": 1.0, "l2": math.sqrt(entries), "linf": float(entries)}
    if norm not in changes:
        raise InputError("unknown norm", got=norm, expected=", ".join(changes))
    return changes[norm]


@final
@dataclass(frozen=True, kw_only=True)
class Counterexample:
    """A classifier of one number whose claimed size is beyond the true distance to a flip.

    Attributes:
        expected: exact mean scores (right class, left class) at any number.
        point: where it is certified.
        distance: from the point to the nearest number of another label; exact.
        claimed: what the rule says.
        sound: what the sound form of the rule says.
    """

    expected: Expected
    point: float
    distance: float
    claimed: PublishedSize
    sound: PublishedSize

    @property
    def refutes(self) -> bool:
        """Whether the label really changes at less than the claimed size, and not before."""
        attack = (self.distance + self.claimed.size) / 2.0
        right, left = self.expected(self.point - attack)
        before, after = self.expected(self.point - 0.999 * self.distance)
        return attack < self.claimed.size and left > right and before > after


def dpal_counterexample(
    *, point: float = 1.0, scale: float = 1.0, hidden_reads_input: bool = False
) -> Counterexample:
    """DPAL certifies 1[x > 0] beyond 0.

    Two passes, Laplace noise of `scale` on x and, as published, of twice that on h = x. The pass
    with hidden noise is constant (one half for each class), so it adds nothing to the order of the
    products: the label changes at 0, at distance `point`. Its noise still adds phi to the claim.
    With `hidden_reads_input` both passes are the literal network g(h) = 1[h > 0]: same end.
    """
    _check_positive("point", point)
    layers = Layers(input_scale=scale, hidden_scale=2.0 * scale)

    def expected(x: float) -> tuple[float, float]:
        first = _half_line(x, layers.input_scale)
        second = _half_line(x, layers.hidden_scale) if hidden_reads_input else (0.5, 0.5)
        return first[0] * second[0], first[1] * second[1]

    top, other = expected(point)
    return Counterexample(
        expected=expected,
        point=point,
        distance=point,
        claimed=dpal(top, other, layers),
        sound=stobatch(top, other, layers),
    )


def psi_counterexample(
    *, point: float = 1.0, scale: float = 1.0, psi: float = 10.0
) -> Counterexample:
    """StoBatch's smaller noise at prediction certifies 1[x > 0] beyond 0: certify what is drawn.

    Both passes are the network 1[h > 0], h = x, with noise psi times smaller than in `layers`.
    """
    _check_positive("point", point)
    stated = Layers(input_scale=scale, hidden_scale=2.0 * scale)
    drawn = Layers(input_scale=scale / psi, hidden_scale=2.0 * scale / psi)

    def expected(x: float) -> tuple[float, float]:
        first, second = (_half_line(x, b) for b in (drawn.input_scale, drawn.hidden_scale))
        return first[0] * second[0], first[1] * second[1]

    top, other = expected(point)
    return Counterexample(
        expected=expected,
        point=point,
        distance=point,
        claimed=stobatch(top, other, stated, psi=psi),
        sound=stobatch(top, other, drawn),
    )


def _half_line(x: float, scale: float) -> tuple[float, float]:
    """Probabilities that x plus Laplace noise is above 0, and below."""
    tail = 0.5 * math.exp(-abs(x) / scale)
    return (1.0 - tail, tail) if x >= 0 else (tail, 1.0 - tail)


def _budget(lower: float, upper: float, delta: float) -> float:
    """The largest epsilon >= 0 up to which PixelDP's condition holds; 0 where there is none."""
    if not (0 <= lower <= 1 and 0 <= upper <= 1):
        raise InputError("bad mean scores", got=f"{lower}, {upper}", expected="between 0 and 1")
    ahead = lower - delta
    if ahead <= upper + delta:  # it does not even hold at epsilon = 0
        return 0.0
    # The positive root of upper y^2 + delta y - ahead, without cancellation or underflow.
    below = delta + math.hypot(delta, 2.0 * math.sqrt(upper) * math.sqrt(ahead))
    return max(0.0, math.log(2.0 * ahead / below)) if below > 0 else math.inf


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
