"""What is true of the simulator's records: each planted fact as a number, with a tolerance.

A fact follows from the design in closed form, up to sums over classes and one-dimensional
quadrature, or, where it does not (`SIMULATED`), is the mean of exact chances over 100,000 patients.

    w_c     share of rows in class c      proportional to share_c E[rows_c]
    v_c     share of pairs of neighbours  proportional to share_c (E[rows_c] - 1)
    total   covariance of vital signs     within classes + rounding + between means of classes
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privet.data.records.simulator import chances, simulate
from privet.data.records.simulator_design import (
    DBP,
    DEFAULT,
    HEARTRATE,
    MOST_ROWS,
    RESPRATE,
    SBP,
    STATUS,
    TEMPERATURE,
    VITALS,
    Design,
)
from privet.data.records.simulator_estimates import ROUNDING, SUMMARIES

PATIENTS: Final = 14_024  # that tolerances are for
SIMULATED: Final = ("missing_temperature", "rate_admitted", "rate_died", "auroc_admitted")
_LARGE: Final = 100_000

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number that is true of the simulator's records.

    Attributes:
        value: the truth.
        tolerance: how far an estimate from 14,024 patients may be from it.
        meaning: in words.
    """

    value: float
    tolerance: float
    meaning: str


@final
@dataclass(frozen=True, kw_only=True)
class Truth:
    """All facts, by the names that `simulator_estimates.recovered` gives them."""

    facts: Mapping[str, Fact]

    def __getitem__(self, name: str) -> float:
        """The true value."""
        return self.facts[name].value

    def missed(self, found: Mapping[str, float], times: float = 1.0) -> dict[str, float]:
        """How far off, in tolerances, what is more than `times` its tolerance off; NaN is."""
        off = {
            name: abs(found.get(name, float("nan")) - fact.value) / fact.tolerance
            for name, fact in self.facts.items()
        }
        return {name: by for name, by in off.items() if not by <= times}


@cache
def truth(design: Design = DEFAULT) -> Truth:
    """What is true of records simulated with this design; takes a second or two, once."""
    values = {
        **_vitals(design),
        **_gaps(design),
        **_missing(design),
        **_shares(design),
        **_simulated(design),
        **dict.fromkeys(_ALWAYS, 1.0),
    }
    facts = {name: _fact(name, value) for name, value in values.items()}
    return Truth(facts=MappingProxyType(facts))


def _fact(name: str, value: float) -> Fact:
    tolerance, meaning = _TABLE.get(name, _OF_CLASS)
    return Fact(value=float(value), tolerance=tolerance, meaning=meaning)


def _weights(design: Design, fewer: int = 0) -> Floats:
    """Shares of classes among rows, or (fewer = 1) among rows that follow another."""
    rows = design.row_chances() @ np.arange(1, MOST_ROWS + 1)
    weights = design.by_class("share") * (rows - fewer)
    return np.asarray(weights / weights.sum())


def _between(weights: Floats, a: Floats, b: Floats) -> float:
    """Covariance of two numbers of the classes."""
    return float(weights @ ((a - weights @ a) * (b - weights @ b)))


def _vitals(design: Design) -> dict[str, float]:
    spread, means = np.array(design.spread), design.by_class("means")
    within = np.array(design.correlation) * np.outer(spread, spread)
    w, v, kept = _weights(design), _weights(design, 1), _kept(design)
    changing = float(v @ (1 - kept))  # of the variance, between neighbours
    facts = {}
    for a, b in ((SBP, DBP), (HEARTRATE, RESPRATE)):
        pair = np.ix_((a, b), (a, b))
        classes = [[_between(w, means[:, i], means[:, j]) for j in (a, b)] for i in (a, b)]
        name = f"{VITALS[a]}_{VITALS[b]}"
        facts[f"corr_{name}"] = _correlation(within[pair] + np.array(classes))
        facts[f"change_corr_{name}"] = _correlation(changing * within[pair])
    variance, apart = spread[HEARTRATE] ** 2, _between(v, *[means[:, HEARTRATE]] * 2)
    facts["autocorr_heartrate"] = (v @ kept * variance + apart) / (variance + apart + ROUNDING)
    return {**facts, "memory": design.memory, "spread_heartrate": spread[HEARTRATE]}


def _correlation(covariance: Floats) -> float:
    """Of two columns that are rounded to whole numbers."""
    variances = np.diag(covariance) + ROUNDING
    return float(covariance[0, 1] / np.sqrt(variances[0] * variances[1]))


def _kept(design: Design) -> Floats:
    """E exp(-g / memory) of each class, by Gauss-Hermite quadrature over log g."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    mean, spread = design.by_class("gap").T
    minutes = np.exp(mean[:, None] + spread[:, None] * nodes)
    return np.asarray(np.exp(-minutes / design.memory) @ weights / weights.sum())


def _gaps(design: Design) -> dict[str, float]:
    v = _weights(design, 1)
    mean, spread = design.by_class("gap").T
    heartrate = design.by_class("means")[:, HEARTRATE]
    variance = design.spread[HEARTRATE] ** 2 + ROUNDING + _between(v, heartrate, heartrate)
    rows = design.row_chances() @ np.arange(1, MOST_ROWS + 1)
    return {
        "log_gap_mean": float(v @ mean),
        "log_gap_sd": float(np.sqrt(v @ spread**2 + _between(v, mean, mean))),
        "log_gap_slope_heartrate": _between(v, mean, heartrate) / variance,
        "rows": float(design.by_class("share") @ rows),
    }


def _missing(design: Design) -> dict[str, float]:
    names = ("heartrate", "resprate", "o2sat", "sbp")
    return {
        **{f"missing_{n}": p for n, p in zip(names, design.missing, strict=True)},
        "missing_rhythm": 1 - float(_weights(design) @ design.by_class("rhythm")),
        "apart_sbp_dbp": 0.0,
        "missing_pain_day": float(expit(design.pain[0])),
        "missing_pain_night": float(expit(sum(design.pain))),
        "missing_resprate_slope": 0.0,
        "temperature_intercept": design.temperature[0],
        "temperature_slope": design.temperature[1],
    }


def _shares(design: Design) -> dict[str, float]:
    return {
        **{f"share_{c.name}": c.share for c in design.classes},
        "fibrillation_young": design.fibrillation[0],
        "fibrillation_old": design.fibrillation[1],
        "share_several_stays": 1 - design.stays[0],
        "share_female": design.female,
        "share_ambulance": float(design.by_class("share") @ design.by_class("ambulance")),
        **{f"admitted_{n}": w for n, w in zip(SUMMARIES, design.admitted[1:], strict=True)},
    }


def _simulated(design: Design) -> dict[str, float]:
    """Means of true chances, not of draws: less noise for the same number of patients."""
    records = simulate(_LARGE, seed=2**31, design=design)
    admitted, died = chances(records, design)
    present = records.values[:, STATUS] == 0
    return {
        "missing_temperature": np.isnan(records.values[present, TEMPERATURE]).mean(),
        "rate_admitted": ((1 - died) * admitted).mean(),
        "rate_died": died.mean(),
        "auroc_admitted": _best_auroc(admitted, 1 - died),
    }


def _best_auroc(chance: Floats, weights: Floats) -> float:
    """Of ranking by the true chance, which no other ranking beats."""
    order = np.argsort(chance)
    positive, negative = (chance * weights)[order], ((1 - chance) * weights)[order]
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


_ALWAYS: Final = (
    "rhythm_agrees",
    "sbp_above_dbp",
    "nothing_after_death",
    "death_agrees",
    "hours_agree",
)
_OF_CLASS: Final = (0.025, "patients in this hidden class")
# Tolerances are about four standard deviations of the estimates from 14,024 patients.
_TABLE: Final[dict[str, tuple[float, str]]] = {
    "corr_sbp_dbp": (0.008, "correlation within a row"),
    "corr_heartrate_resprate": (0.013, "correlation within a row"),
    "change_corr_sbp_dbp": (0.008, "correlation of changes from row to row: that within a class"),
    "change_corr_heartrate_resprate": (0.013, "the same, weakened by rounding"),
    "autocorr_heartrate": (0.008, "correlation with the row before"),
    "memory": (28.0, "minutes until the correlation with oneself, within a class, is 1/e"),
    "spread_heartrate": (0.9, "standard deviation within a class"),
    "log_gap_mean": (0.028, "mean of the logarithm of the minutes to the next row"),
    "log_gap_sd": (0.009, "standard deviation of the same"),
    "log_gap_slope_heartrate": (0.001, "slope of the same on heartrate: the sick are seen sooner"),
    "rows": (0.23, "mean rows of a stay, without that of a death"),
    "missing_temperature": (0.0065, "share of rows without temperature"),
    "missing_heartrate": (0.0025, "share of rows without heartrate"),
    "missing_resprate": (0.003, "share of rows without resprate"),
    "missing_o2sat": (0.0025, "share of rows without o2sat"),
    "missing_sbp": (0.0025, "share of rows without sbp and dbp"),
    "missing_rhythm": (0.0075, "share of rows without rhythm"),
    "apart_sbp_dbp": (0.001, "share of rows with one of sbp and dbp only"),
    "missing_pain_day": (0.0065, "share of rows without pain, 7 to 22 o'clock"),
    "missing_pain_night": (0.0105, "share of rows without pain, 22 to 7 o'clock"),
    "missing_resprate_slope": (0.027, "slope of that logit on heartrate / 10: none"),
    "temperature_intercept": (0.044, "logit of measuring temperature after a normal one"),
    "temperature_slope": (0.051, "its slope on the distance of the last one from 98.6"),
    "fibrillation_young": (0.014, "stays with atrial fibrillation below 70 years"),
    "fibrillation_old": (0.052, "stays with atrial fibrillation from 70 years on"),
    "share_several_stays": (0.0135, "patients with more than one stay"),
    "share_female": (0.017, "stays of women"),
    "share_ambulance": (0.0145, "stays that begin with an ambulance"),
    "rate_admitted": (0.016, "stays that end with an admission"),
    "rate_died": (0.003, "stays that end with a death"),
    "admitted_age": (0.054, "weight of age in the logit of admission"),
    "admitted_heartrate": (0.093, "weight of the last heartrate"),
    "admitted_sbp": (0.104, "weight of the lowest sbp"),
    "admitted_temperature": (0.09, "weight of the highest temperature"),
    "admitted_o2sat": (0.087, "weight of the lowest o2sat"),
    "auroc_admitted": (0.011, "AUROC of the true chance of admission: no prediction beats it"),
    "rhythm_agrees": (0.001, "sinus rhythms that agree with heartrate (60 to 100 is normal)"),
    "sbp_above_dbp": (0.001, "rows with both in which sbp is above dbp"),
    "nothing_after_death": (0.001, "rows that are the last or not of a death"),
    "death_agrees": (0.001, "stays whose outcome and last row agree on a death"),
    "hours_agree": (0.001, "stays that last at least until their last row"),
}
