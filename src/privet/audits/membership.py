"""Membership inference: how well an attacker tells records of the training set from others.

| symbol      | here                                                                     |
|-------------|--------------------------------------------------------------------------|
| phi(p_y)    | `confidence`: log p_y - log(1 - p_y) of the true class, near normal      |
| D_in, D_out | shadow models trained with, without a record                             |
| Lambda      | `lira`: log N(phi; mu_in, var_in) - log N(phi; mu_out, var_out)          |

The loss attack takes phi itself as its score (Yeom et al., 2018). LiRA asks shadow models what phi
is usual for this record (Carlini et al., 2022), and is the stronger one at low rates of false
alarm, which are what counts: an attack that is right about a few people is an attack.

All of this describes; it bounds nothing. Figures are computed from private records and belong into
`internal/`, never onto a card.

Deviations from LiRA: one query of each record, no augmented ones; with fewer than `ENOUGH` shadow
models of either kind, one variance for all records.
"""

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from privet.errors import InputError

ENOUGH: Final = 32  # shadow models of a kind to learn a variance for each record from
LOW_RATES: Final = (0.001, 0.01)

Scores = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Roc:
    """How many members are found (`tpr`) at how many false alarms (`fpr`), both rising from 0."""

    fpr: Scores
    tpr: Scores

    @property
    def auc(self) -> float:
        """The chance that a member scores above another record; 0.5 is guessing."""
        return float(np.trapezoid(self.tpr, self.fpr))

    def tpr_at(self, fpr: float) -> float:
        """The share of members found with at most so many false alarms."""
        return float(self.tpr[self.fpr <= fpr].max())

    def to_json(self) -> dict[str, Any]:
        """The figures that papers give."""
        return {"auc": self.auc} | {f"tpr_at_{rate:g}": self.tpr_at(rate) for rate in LOW_RATES}


def roc(members: ArrayLike, others: ArrayLike) -> Roc:
    """Of scores, higher for members; equal scores are one threshold."""
    found, false = np.asarray(members, dtype=float), np.asarray(others, dtype=float)
    if not (len(found) and len(false)):
        raise InputError(
            "too few scores",
            got=f"{len(found)} of members, {len(false)} of others",
            expected="both",
        )
    thresholds = np.unique(np.concatenate([found, false]))[::-1]
    fpr, tpr = (_share_from(thresholds, np.sort(scores)) for scores in (false, found))
    return Roc(fpr=np.concatenate([[0.0], fpr]), tpr=np.concatenate([[0.0], tpr]))


def _share_from(thresholds: Scores, ordered: Scores) -> Scores:
    below = np.searchsorted(ordered, thresholds, side="left")
    share: Scores = (len(ordered) - below) / len(ordered)
    return share


def confidence(scores: ArrayLike, y: ArrayLike) -> Scores:
    """The logit of the true class by the softmax of class scores; exact also where p_y is 1."""
    logs = log_softmax(np.asarray(scores, dtype=float), axis=1)
    rows, labels = np.arange(len(logs)), np.asarray(y)
    own = logs[rows, labels].copy()
    logs[rows, labels] = -np.inf
    logit: Scores = own - np.logaddexp.reduce(logs, axis=1)
    return logit


def lira(confidences: Scores, member: NDArray[np.bool_]) -> Scores:
    """The log likelihood ratio of each record under each model, from all *other* models.

    Args:
        confidences: (models, records), see `confidence`.
        member: (models, records): which model was trained on which record.

    Returns:
        (models, records); NaN where too few other models were trained with, or without the record.
    """
    inside = _normal_of_others(confidences, member)
    outside = _normal_of_others(confidences, ~member)
    few = min(member.sum(0).min(), (~member).sum(0).min()) < ENOUGH
    return _log_normal(confidences, *inside, few) - _log_normal(confidences, *outside, few)


def _normal_of_others(values: Scores, chosen: NDArray[np.bool_]) -> tuple[Scores, Scores]:
    """Mean and variance over the chosen models but the one in question."""
    count = chosen.sum(0) - chosen
    total = (values * chosen).sum(0) - values * chosen
    squares = (values**2 * chosen).sum(0) - values**2 * chosen
    known = np.where(count < 2, np.nan, count)
    mean = total / known
    return mean, (squares - known * mean**2) / (known - 1)


def _log_normal(values: Scores, mean: Scores, variance: Scores, few: bool) -> Scores:
    if few:
        variance = np.broadcast_to(np.nanmean(variance, axis=1, keepdims=True), values.shape)
    floored = np.maximum(variance, 1e-12)
    density: Scores = -0.5 * (np.log(2 * np.pi * floored) + (values - mean) ** 2 / floored)
    return density
