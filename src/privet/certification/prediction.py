"""What a smoothed classifier says of an input: Cohen et al.'s PREDICT (2019), for many at once.

    votes <- n votes on x + noise
    A, B  <- the two columns with most votes, a and b of them
    A, if 2 P(Bin(a + b, 1/2) >= a) <= alpha; else abstain

| symbol | here                                                  |
|--------|-------------------------------------------------------|
| f, g   | `Classifier`, its smoothed version                    |
| n      | votes for each input                                  |
| alpha  | chance that an input gets a class that is not g's     |

A column is a class, or the votes of scores with a NaN, which are for no class: where these have
most votes, the answer is to abstain. Nothing else deviates.

Guarantee: for each input, P(a class is answered that is not the one most probable column) <= alpha.
Inside of a certificate's ball its class keeps more than one half: there the answer is that class or
none, but for alpha.

Proof (after Hung and Fithian, 2019). Let j be a column with p_j <= p_i for another one, i. Call j
the winner where it has most votes; ties are broken by a fair draw, and a tie is never answered. It
is enough that P(j answered) <= alpha P(j wins) for each such j: wins add up to one. Condition on
all other columns' votes, M the largest of them, and on m = n_i + n_j. Then X = n_j is binomial,
Bin(m, q), q <= 1/2. The runner-up has b = max(m - X, M) votes, which falls in X. The p-value of
(a, b), at most b tails in a + b throws, falls in a and rises in b; so j is answered where X >= k,
for some k > max(m/2, M), and the p-value at k is at most alpha. The quotient P(X >= k) / P(j wins)
rises with q, for the law of X, given that j wins, has likelihood ratios that rise with X. So let
q = 1/2.
(1) M < m/2. By symmetry P(j wins) = 1/2 (a tie counts half), and 2 P(Bin(m, 1/2) >= k) is at most
the p-value at k, 2 P(Bin(k + b, 1/2) >= k), for b >= m - k.
(2) M >= m/2. P(X >= k) / P(j wins) <= P(X >= k) / P(X >= M + 1), which rises with m: Bin(m, 1/2)
has likelihood ratios that do, too. At 2M + 1 > m it is 2 P(Bin(2M + 1, 1/2) >= k), and again at
most the p-value at k: b = M there, and k + M >= 2M + 1.

Assumed: as for certificates, that the generators behave like independent draws.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc
from torch import Tensor, nn

from privet.certification.certificates import ABSTAIN
from privet.certification.smoothing import compile_for, prepare
from privet.certification.smoothing_noise import SmoothingNoise
from privet.certification.votes import Counts, NoisyVotes, Voters
from privet.classifiers import Classifier, Denoiser
from privet.errors import InputError
from privet.privacy.confidence import check_alpha
from privet.privacy.precision import FULL
from privet.release import Release

_SLACK: Final = 1e-12  # relative; the beta function is good to about 1e-14
_AT_ONCE: Final = 1_000_000  # votes asked for in one request: bounds memory

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Answers of a smoothed classifier; the guarantee stands at the top of this file.

    Attributes:
        prediction: the class of each input, or -1 (abstained).
        p_value: of the hypothesis that another column is as probable; at most alpha where answered.
        votes: one row for each input, a column for each class and one for scores with a NaN.
        noise: what smoothed.
        terms: alpha, n and all else that was asked for.
    """

    prediction: NDArray[np.int64]
    p_value: Floats
    votes: Counts
    noise: SmoothingNoise
    terms: dict[str, Any]

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Whether there is no answer."""
        return np.asarray(self.prediction == ABSTAIN)


def predict(
    classifier: Release | nn.Module | Classifier | str | Path,
    x: Tensor | ArrayLike,
    *,
    noise: SmoothingNoise,
    alpha: float = 0.001,
    n: int = 1000,
    denoiser: Denoiser | None = None,
    batch: int = 1000,
    precision: str = FULL.name,
    compile: bool = False,
    channels_last: bool = False,
    seed: int | None = None,
) -> Predictions:
    """Classify inputs by votes under noise; abstain where these do not settle it.

    What was certified is what must answer: give the noise, the denoiser, the precision and the
    rest as they were given to `certify`.

    Args:
        classifier: a classifier, or a release or module to make one of.
        x: inputs in [0, 1]; those of a data set are `data.bounds.clamp_and_scale(data.test.x)`.
        noise: what smooths.
        alpha: chance that an input gets a class that is not the smoothed classifier's.
        n: votes for each input.
        denoiser: as for `certify`.
        batch: noisy copies in a forward batch.
        precision: "float32", "tf32" or "bf16".
        compile: as for `certify`; `terms["compiled"]` says whether.
        channels_last: memory format of the forward batches.
        seed: of the noise, for tests; default: from the operating system.
    """
    _require_votes(n, alpha)
    opened, x, noise = prepare(classifier, x, noise, denoiser)
    terms: dict[str, Any] = {"alpha": alpha, "n": n, "precision": precision}
    if denoiser is not None:
        terms["denoised"] = opened.name
    if compile:
        opened, why = compile_for(opened, noise, batch, precision)
        terms["compiled"] = f"no: {why}" if why else "yes"
    voters = NoisyVotes(
        opened, x, noise, batch=batch, seed=seed, precision=precision, channels_last=channels_last
    )
    votes = _collected(voters, len(x), n)
    prediction, p_value = answers(votes, alpha)
    return Predictions(
        prediction=prediction, p_value=p_value, votes=votes, noise=noise, terms=terms
    )


def answers(votes: Counts, alpha: float) -> tuple[NDArray[np.int64], Floats]:
    """From votes to classes and p-values; the last column is no class."""
    order = np.sort(votes, axis=1)
    p_value = rank_p_value(order[:, -1], order[:, -2])
    first = votes.argmax(1)
    settled = (p_value <= alpha) & (first < votes.shape[1] - 1)
    return np.where(settled, first, ABSTAIN), p_value


def rank_p_value(first: Any, second: Any) -> Floats:
    """Exact binomial test, two-sided, of a fair coin that fell so often on its two sides.

    2 P(Bin(a + b, 1/2) >= a) for a >= b, at most 1; rounded up.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    tail = betainc(np.maximum(a, 1.0), b + 1.0, 0.5)
    return np.asarray(np.where(a > b, np.minimum(1.0, 2.0 * tail * (1.0 + _SLACK)), 1.0))


def _require_votes(n: int, alpha: float) -> None:
    """Refuse fewer than could ever settle an answer: n votes of one mind have 2^(1 - n)."""
    check_alpha(alpha)
    least = 1 + math.ceil(-math.log2(alpha))
    if n < least:
        raise InputError(
            "too few votes to answer anything",
            got=f"n={n}",
            expected=f"at least {least} at alpha {alpha:g}",
            fix="try 1000",
        )


def _collected(voters: Voters, images: int, n: int) -> Counts:
    """All votes, some inputs at a time."""
    step = max(1, _AT_ONCE // n)
    parts = [np.zeros((0, voters.classes + 1), dtype=np.int64)]
    for start in range(0, images, step):
        which = np.arange(start, min(images, start + step))
        parts.append(voters.count(which, np.full(len(which), n)))
    return np.concatenate(parts)
