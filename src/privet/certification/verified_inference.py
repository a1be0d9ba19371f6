"""Verified inference of DPAL and StoBatch (their Algorithm C), as published and as it must be.

| papers               | here             | meaning                                              |
|----------------------|------------------|------------------------------------------------------|
| n, K, 1 - eta        | `draws`, classes, `miss` | draws, classes, chance that a bound fails    |
| b_x, b_h             | of the card      | Laplace scales of chi1 / m and 2 chi2 / m            |
| chi1, chi2, psi      | of the release   | the run's own noise; divisor of the fresh noise      |
| Delta_r^x, Delta_r^h | `Layers`         | l1 change of input and first layer under attack      |
| epsilon_r            | `epsilon`        | (1/2) ln(E_lb / max E_ub), 0 where that is negative  |
| mu_a                 | `attack`         | l-infinity size, on the scale [-1, 1]                |

    for s in 1 .. n:
        p_x = scores under chi1/m + Lap(b_x / psi) on the input, 2 chi2/m on the first layer
        p_h = scores under chi1/m on the input, 2 chi2/m + Lap(b_h / psi) on the first layer
        p_s = p_x p_h, class by class
    E = mean of p_s, with Hoeffding's bounds for all classes at once
    n = 2000 for one channel, 1000 for colour
    size = epsilon_r / (Delta_r^x / b_x + Delta_r^h / b_h)      StoBatch; DPAL: kappa + phi
    robust, if size >= mu_a

| analysis | psi         | Delta_r^x | Delta_r^h                                | rule           |
|----------|-------------|-----------|------------------------------------------|----------------|
| paper    | 2 or 10     | mu_a d    | beta |theta1|_inf, one map of the layer  | of the method  |
| sound    | 1, or given | d         | sum over all neurons of their l1 weights | harmonic, b/psi |

Guarantee (sound): with probability 1 - miss for an input, the class of largest mean product keeps
its place under every l-infinity attack below `size`. Proof: the harmonic rule (`published`) for
fresh noise of the scale that is certified; the run's own noise is a constant, part of the network.
Per unit of attack the input moves by at most d in l1, the first layer by at most the sum over its
neurons of |w| over the inputs they see. Hoeffding's inequality bounds means of n values in [0, 1];
2 K bounds, from below and from above for each class, hold together with probability 1 - miss, so
the class may be chosen from the same draws. As published there are K.

Sizes here are on the papers' scale, [-1, 1]; on [0, 1] they are half of that (`unit_sizes`). The
programs count votes and take Clopper-Pearson bounds instead; the text is followed.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from privet.certification.published import Layers, PublishedSize, dpal, l1_change, stobatch
from privet.certification.smoothing_noise import Laplace
from privet.errors import InputError
from privet.guarantee import Basis
from privet.models.published_noised import Noised
from privet.release import Release

Analysis = Literal["paper", "sound"]
Floats = NDArray[np.float64]

ROWS: Final = 4096  # noisy copies in a pass
ATTACK_TWICE: Final = (
    "the size of the attack is in the change of the input, and the result is compared with it again"
)
ONE_MAP: Final = "the change of the first layer is counted in one of its maps, and by rows"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Verified:
    """What the procedure says of some inputs.

    Attributes:
        labels: the class with the largest mean product of each.
        epsilon: epsilon_r of each.
        sizes: attacks below are said not to change the label; l-infinity, on [-1, 1].
        attack: the size that was asked about.
        basis: proved, or claimed where the rule does not hold.
        gaps: for a claim, why.
    """

    labels: NDArray[np.int64]
    epsilon: Floats
    sizes: Floats
    attack: float
    basis: Basis
    gaps: tuple[str, ...]

    @property
    def robust(self) -> NDArray[np.bool_]:
        """Whether the size reaches the attack."""
        return np.asarray(self.sizes >= self.attack)

    @property
    def unit_sizes(self) -> Floats:
        """The sizes for inputs in [0, 1]."""
        return self.sizes / 2.0


def verified(
    release: Release,
    x: Tensor | ArrayLike,
    *,
    attack: float,
    analysis: Analysis = "paper",
    psi: float | None = None,
    draws: int | None = None,
    miss: float = 0.05,
    seed: int | None = None,
) -> Verified:
    """Label and certified size of inputs, for a release of `dpal` or `stobatch` as published.

    Args:
        release: with the run's noise in its network.
        x: inputs in [0, 1].
        attack: mu_a, on the scale [-1, 1].
        analysis: 'paper', or 'sound'; see the table above.
        psi: how many times smaller the fresh noise is than the run's; default: as published for
            'paper', 1 for 'sound', which certifies by the noise that is drawn.
        draws: of either noise for each input; default: as published.
        miss: chance that a bound of an input's means fails.
        seed: of the noise, for tests.
    """
    model, mechanism = _noised(release), release.trust["mechanism"]
    if not 0 < attack < math.inf:
        raise InputError("bad size of the attack", got=attack, expected="a positive number")
    if psi is None:
        psi = 1.0 if analysis == "sound" else float(mechanism["psi"])
    drawn = mechanism["input_scale"] / psi, mechanism["hidden_scale"] / psi
    inputs = torch.as_tensor(np.asarray(x), dtype=torch.float32)
    if draws is None:
        draws = 2000 if inputs.shape[1] == 1 else 1000
    classes = model.last.out_features
    width = hoeffding(draws, classes if analysis == "paper" else 2 * classes, miss)
    labels, lower, upper = _bounded(_mean_products(model, inputs, drawn, draws, seed), width)
    epsilon = _budgets(lower, upper)
    unit = _size_of_unit_budget(release, model, attack, analysis, psi)
    return Verified(
        labels=labels,
        epsilon=epsilon,
        sizes=epsilon * unit.size,
        attack=attack,
        basis=unit.basis,
        gaps=unit.gaps,
    )


def hoeffding(draws: int, bounds: int, miss: float = 0.05) -> float:
    """How far means of so many values in [0, 1] may be off to one side, for all bounds at once."""
    if draws < 1 or not 0 < miss < 1:
        raise InputError("bad draws, or chance of failure", got=f"{draws}, {miss}")
    return math.sqrt(math.log(bounds / miss) / (2.0 * draws))


def published_changes(model: Noised, attack: float) -> tuple[float, float]:
    """Delta_r^x and Delta_r^h as published."""
    rows = model.first.weight.detach().double().abs().flatten(1).sum(0)
    neurons = model.hidden_noise[0].numel()
    return attack * model.input_noise.numel(), neurons * float(rows.max())


def true_changes(model: Noised) -> tuple[float, float]:
    """Most l1 change of the input, and a bound on that of the first layer, per unit of attack."""
    first = model.first
    with torch.no_grad():
        ones = torch.ones_like(model.input_noise, dtype=torch.float64)[None]
        weights = first.weight.double().abs()
        moved = F.conv2d(
            ones, weights, None, first.stride, first.padding, first.dilation, first.groups
        )
    return l1_change(model.input_noise.numel(), "linf"), float(moved.sum()) * (1.0 + 1e-9)


def _size_of_unit_budget(
    release: Release, model: Noised, attack: float, analysis: Analysis, psi: float
) -> PublishedSize:
    """What the rule gives for epsilon_r = 1; sizes are proportional to it."""
    scales = [float(release.trust["mechanism"][f"{name}_scale"]) for name in ("input", "hidden")]
    lower, upper = 1.0, math.exp(-2.0)
    if analysis == "sound":
        return stobatch(lower, upper, _layers([b / psi for b in scales], true_changes(model)))
    layers = _layers(scales, published_changes(model, attack))
    by_sum = release.trust["method"] == "dpal"
    found = dpal(lower, upper, layers) if by_sum else stobatch(lower, upper, layers, psi=psi)
    return PublishedSize(
        rule=found.rule,
        size=found.size,
        epsilon=found.epsilon,
        basis=Basis.CLAIMED,
        gaps=(*found.gaps, ATTACK_TWICE, ONE_MAP),
    )


def _layers(scales: list[float], changes: tuple[float, float]) -> Layers:
    return Layers(
        input_scale=scales[0],
        hidden_scale=scales[1],
        input_change=changes[0],
        hidden_change=changes[1],
    )


@torch.no_grad()
def _mean_products(
    model: Noised, x: Tensor, scales: tuple[float, float], draws: int, seed: int | None
) -> Floats:
    """E of each input: the mean over draws of the product of both passes' scores."""
    device = model.input_noise.device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    at_input, at_hidden = Laplace(scales[0]), Laplace(scales[1])
    model.eval()
    found = []
    for images in torch.split(x, ROWS):
        total: Any = 0.0
        for copies in _blocks(draws, max(1, ROWS // len(images))):
            noised = model.noised(images.to(device)).repeat(copies, 1, 1, 1)
            first = model.scored(at_input.noisy(noised, generator)).softmax(1)
            hidden = at_hidden.noisy(model.first(noised) + model.hidden_noise, generator)
            second = model.above(hidden)[1].softmax(1)
            total = total + (first * second).double().view(copies, len(images), -1).sum(0)
        found.append(total / draws)
    return np.asarray(torch.cat(found).cpu().numpy())


def _blocks(draws: int, most: int) -> list[int]:
    """Draws, some at a time."""
    return [min(most, draws - start) for start in range(0, draws, most)]


def _bounded(means: Floats, width: float) -> tuple[NDArray[np.int64], Floats, Floats]:
    """The top class, a lower bound of its mean, an upper bound of all others'."""
    labels = means.argmax(1)
    top = np.take_along_axis(means, labels[:, None], 1)[:, 0]
    others = means.copy()
    np.put_along_axis(others, labels[:, None], -np.inf, 1)
    return labels, np.maximum(top - width, 0.0), np.minimum(others.max(1) + width, 1.0)


def _budgets(lower: Floats, upper: Floats) -> Floats:
    """(1/2) ln(lower / upper), at least 0."""
    ratio = np.maximum(lower, 1e-300) / upper
    return np.maximum(0.0, 0.5 * np.log(ratio))


def _noised(release: Release) -> Noised:
    if not isinstance(release.model, Noised):
        raise InputError(
            "a release without the noise of its run",
            got=f"{release.trust['method']}, analysis '{release.trust['analysis']}'",
            expected="dpal or stobatch as published",
            fix="certify others with `privet certify`",
        )
    return release.model
