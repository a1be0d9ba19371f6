"""CERTIFY as Cohen et al. (2019) run it: one image after another, the yardstick of the study.

    counts0 <- votes of n0 noisy copies; c <- their most frequent class
    counts  <- votes of n other copies
    p       <- Clopper-Pearson lower bound of counts[c] in n, level alpha
    radius  <- sigma Phi^-1(p) if p > 1/2, else abstain

Copies of the one image fill each forward batch, and the votes of a batch come back to the processor
before the next is drawn. The authors' script counts them one by one in Python; `counted` by NumPy
is what everybody would do who minds the time. Both are timed. Our own words; no line is theirs.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta, norm
from torch import Tensor

from privet.certification import ABSTAIN
from privet.classifiers import Classifier

Counts = NDArray[np.int64]
Counter = Callable[[Counts, int], Counts]


def one_by_one(votes: Counts, classes: int) -> Counts:
    """In a loop, as published."""
    counts = np.zeros(classes, dtype=np.int64)
    for vote in votes:
        counts[vote] += 1
    return counts


def by_numpy(votes: Counts, classes: int) -> Counts:
    """All at once."""
    return np.bincount(votes, minlength=classes)


COUNTERS: Final[dict[str, Counter]] = {"one by one": one_by_one, "by NumPy": by_numpy}


def certify_one(
    classifier: Classifier,
    x: Tensor,
    *,
    sigma: float,
    alpha: float,
    n0: int,
    n: int,
    batch: int,
    count: Counter = one_by_one,
) -> tuple[int, float]:
    """The certified class of one image, or -1, and its l2 radius."""
    x = x.to(classifier.device)
    chosen = int(_votes(classifier, x, sigma, n0, batch, count).argmax())
    hits = int(_votes(classifier, x, sigma, n, batch, count)[chosen])
    p_lower = float(beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0
    if p_lower <= 0.5:
        return ABSTAIN, 0.0
    return chosen, sigma * float(norm.ppf(p_lower))


@torch.inference_mode()
def _votes(
    classifier: Classifier, x: Tensor, sigma: float, draws: int, batch: int, count: Counter
) -> Counts:
    counts = np.zeros(classifier.classes, dtype=np.int64)
    for start in range(0, draws, batch):
        copies = x.repeat((min(batch, draws - start), *[1] * x.dim()))
        noisy = copies + torch.randn_like(copies) * sigma
        counts += count(classifier.scores(noisy).argmax(1).cpu().numpy(), classifier.classes)
    return counts
