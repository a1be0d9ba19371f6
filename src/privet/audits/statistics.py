"""From what is released to one number: scores, higher where an output looks more like "with".

| statistic       | is told or learns  | score of an output                                      |
|-----------------|--------------------|---------------------------------------------------------|
| `along`         | a direction        | the projection on it                                    |
| `sampled_shift` | shift, rate, noise | the log likelihood ratio of a shift in random steps     |
| `means`         | means, variances   | the projection on the difference of the means           |
| `spreads`       | means, variances   | log ratio of Gaussians with independent coordinates     |
| `covariances`   | means, covariances | log ratio of Gaussians                                  |
| `peaks`         | means, ten weights | how one coordinate stands out among those that differ   |

The last four are learned from outputs of both worlds, by `LEARNERS`. What they see:

- `means` and `spreads` look at each coordinate by itself.
- `covariances` also sees a direction in which the outputs of one world do not vary, or vary less:
  two updates with the same noise differ by nothing, whatever each of them is. With S_0 and S_1 the
  covariances and P their mean, V is such that V'PV = 1 and V'S_1 V is diagonal, so V'S_0 V is, too.
  Directions in which the worlds' variances differ by less than chance allows count as equal.
- `peaks` sees that one among many coordinates stands out, and not which. Let z_j be the coordinates
  whose means differ, signed such that they grow. Its features are their sum, the sum of their
  squares, and log sum_j exp(k z_j) for several slopes k of both signs, which go from the mean of
  the z_j to their maximum; a logistic regression weighs them. The log likelihood ratio of "one of
  them, anyone, is shifted" is a difference of two such sums.

Guarantee: whatever the statistic, a bound from its scores holds for the mechanism, provided that
the scored runs are not those it learned from, nor those that chose it (`best_learned`).
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import expit, logsumexp

from privet.audits.two_worlds import two_worlds
from privet.errors import InputError

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
Learner = Callable[[Floats, Floats], Statistic]

_SINGULAR: Final = 1e-12  # variance, in units of the coordinate's, that counts as none
_EDGE: Final = 4.0  # times sqrt(coordinates / runs): ratios of variances that chance may give
_WIDEST: Final = 2000  # coordinates whose covariances are still tried unasked
_APART: Final = 2.0  # standard errors between means from which on a coordinate counts
_SLOPES: Final = (0.5, 1.0, 2.0, 4.0)  # in standard deviations of a coordinate
_RIDGE: Final = 1e-6  # of the weights of standardised features, for each run
_NEWTON: Final = 20


def along(direction: Any) -> Statistic:
    """The projection of each row on a direction."""
    towards = np.asarray(direction, dtype=np.float64)
    return lambda rows: np.asarray(rows @ towards)


def sampled_shift(
    direction: Any, *, steps: int, rate: float, shift: float, noise: float, base: float = 0.0
) -> Statistic:
    """The log likelihood ratio of a shift that comes in each step with probability `rate`.

    Rows hold `steps` updates. Along the unit vector `direction`, and with `base` taken off, an
    update is N(0, noise^2) without the record, and N(shift, noise^2) where it joins in. The ratio
    is the sum over the steps of log(1 - q + q exp((2 x - shift) shift / (2 noise^2))). By Neyman
    and Pearson nothing tells more.
    """
    towards = np.asarray(direction, dtype=np.float64)
    apart = np.log1p(-rate) if rate < 1 else -np.inf

    def score(rows: Floats) -> Floats:
        x = rows.reshape(len(rows), steps, -1) @ towards - base
        together = np.log(rate) + (2 * x - shift) * shift / (2 * noise**2)
        return np.asarray(np.logaddexp(apart, together).sum(axis=1))

    return score


def means(without: Floats, with_: Floats) -> Statistic:
    """Along the difference of the means, each coordinate weighed by its pooled variance."""
    m0, m1, v0, v1 = _moments(without, with_)
    direction = (m1 - m0) / ((v0 + v1) / 2)
    return along(direction / max(float(np.linalg.norm(direction)), 1e-300))


def spreads(without: Floats, with_: Floats) -> Statistic:
    """The log ratio of two Gaussians with the means and variances of the worlds."""
    m0, m1, v0, v1 = _moments(without, with_)
    return lambda rows: np.asarray(
        (((rows - m0) ** 2 / v0 - (rows - m1) ** 2 / v1) / 2).sum(axis=1)
    )


def covariances(without: Floats, with_: Floats) -> Statistic:
    """The log ratio of two Gaussians with the means and covariances of the worlds."""
    m0, m1, v0, v1 = _moments(without, with_)
    scale = np.sqrt((v0 + v1) / 2)
    s0, s1 = (_second_moments((a - m) / scale) for a, m in ((without, m0), (with_, m1)))
    ratio, towards = eigh(s1, (s0 + s1) / 2)  # ratios of s1 to the mean; those of s0 are 2 minus it
    chance = _EDGE * np.sqrt(len(scale) / min(len(without), len(with_)))
    ratio = np.where(np.abs(ratio - 1) > chance, ratio, 1.0)
    r0, r1 = (np.maximum(r, _SINGULAR) for r in (2 - ratio, ratio))
    towards = towards / scale[:, None]
    gap = (m1 - m0) @ towards

    def score(rows: Floats) -> Floats:
        u = (rows - m0) @ towards
        return np.asarray(((u**2 / r0 - (u - gap) ** 2 / r1) / 2).sum(axis=1))

    return score


def peaks(without: Floats, with_: Floats) -> Statistic:
    """How one coordinate stands out among those whose means differ; see above."""
    m0, m1, v0, v1 = _moments(without, with_)
    error = np.sqrt(v0 / len(without) + v1 / len(with_))
    apart = np.abs(m1 - m0) / error
    most = np.sort(apart)[-2:][0]  # at least two, where there are two
    kept = apart >= min(_APART, most)
    weights = np.sign(m1 - m0)[kept] / np.sqrt((v0 + v1) / 2)[kept]

    def features(rows: Floats) -> Floats:
        z = (rows[:, kept] - m0[kept]) * weights
        sums = [logsumexp(way * slope * z, axis=1) for slope in _SLOPES for way in (1, -1)]
        return np.stack([z.sum(axis=1), (z**2).sum(axis=1), *sums], axis=1)

    weighed = _logistic(features(without), features(with_))
    return lambda rows: weighed(features(rows))


LEARNERS: Final[dict[str, Learner]] = {
    "means": means,
    "spreads": spreads,
    "covariances": covariances,
    "peaks": peaks,
}


def learned(name: str, without: Floats, with_: Floats) -> Statistic:
    """A statistic by name, learned from outputs of both worlds."""
    if name not in LEARNERS:
        raise InputError(
            "unknown statistic",
            got=repr(name),
            expected=f"known, learned, {', '.join(LEARNERS)}",
        )
    return LEARNERS[name](without, with_)


def best_learned(without: Floats, with_: Floats, delta: float) -> tuple[str, Statistic]:
    """The statistic that shows most: each learns from one half of the runs and is tried on the
    other; the best learns from all.

    Scores of these runs would flatter it: test it on others.
    """
    half = [len(world) // 2 for world in (without, with_)]

    def shown(name: str) -> float:
        score = learned(name, without[: half[0]], with_[: half[1]])
        tried = score(without[half[0] :]), score(with_[half[1] :])
        return two_worlds(*tried, delta=delta, strategy="bonferroni").epsilon

    narrow = without.shape[1] <= _WIDEST
    best = max((name for name in LEARNERS if narrow or name != "covariances"), key=shown)
    return best, learned(best, without, with_)


def _moments(without: Floats, with_: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Means and variances of both worlds.

    A constant coordinate differs by nothing or by everything: a floor, so that it may weigh.
    """
    m0, m1 = without.mean(axis=0), with_.mean(axis=0)
    floor = 1e-12 * (1e-12 + np.abs(m0) + np.abs(m1))
    return m0, m1, without.var(axis=0) + floor**2, with_.var(axis=0) + floor**2


def _second_moments(centred: Floats) -> Floats:
    width = centred.shape[1]
    return np.asarray(centred.T @ centred / len(centred) + _SINGULAR * np.eye(width))


def _logistic(without: Floats, with_: Floats) -> Statistic:
    """Logistic regression by Newton's method, on standardised features."""
    both = np.concatenate([without, with_])
    centre, scale = both.mean(axis=0), both.std(axis=0) + 1e-300
    x = np.column_stack([(both - centre) / scale, np.ones(len(both))])
    y = np.repeat([0.0, 1.0], [len(without), len(with_)])
    ridge = _RIDGE * len(x) * np.eye(x.shape[1])
    weights = np.zeros(x.shape[1])
    for _ in range(_NEWTON):
        p = expit(x @ weights)
        curvature = x.T @ (x * (p * (1 - p))[:, None]) + ridge
        weights = weights - np.linalg.solve(curvature, x.T @ (p - y) + ridge @ weights)
    return lambda rows: np.asarray((rows - centre) / scale @ weights[:-1])
