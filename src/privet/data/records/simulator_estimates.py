"""Finds what the simulator planted again in records: its own, or synthetic ones made from them.

Each estimator reads records only, and is consistent: with more patients it comes to the number in
`simulator_truth`. The hidden classes cancel in differences between neighbouring rows of a stay,
which is how correlation and memory within a class are seen without knowing the class.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit

from privet.data.records.records import PatientRecords
from privet.data.records.simulator import at_night, chances, summaries
from privet.data.records.simulator_design import (
    ADMITTED,
    AGE,
    ARRIVAL,
    DBP,
    DEFAULT,
    DIED,
    DIED_ROW,
    DISPOSITION,
    GENDER,
    HEARTRATE,
    HOUR,
    HOURS,
    NORMAL_TEMPERATURE,
    OLD,
    PAIN,
    RESPRATE,
    RHYTHM,
    RHYTHMS,
    SBP,
    STATUS,
    TEMPERATURE,
    VITALS,
    Design,
    rhythm_of,
    schema,
)
from privet.errors import InputError

SUMMARIES: Final = ("age", "heartrate", "sbp", "temperature", "o2sat")
# Vital signs of the first row from which the hidden class is told.
TELLING: Final = (TEMPERATURE, HEARTRATE, RESPRATE, SBP, DBP)
ROUNDING: Final = 1 / 12  # variance that rounding to whole numbers adds

Floats = NDArray[np.float64]
Found = dict[str, float]


def recovered(records: PatientRecords, design: Design = DEFAULT) -> Found:
    """Every planted fact as these records show it; NaN where they cannot.

    The names are those of `simulator_truth.truth(design)`. The design is used only to tell the
    hidden classes apart (their shares are estimated) and for the AUROC of the true chance.
    """
    _check(records)
    rows = _rows(records)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            **_vitals(rows),
            **_gaps(rows),
            **_missing(rows),
            **_temperature(rows),
            **_rhythms(rows, records),
            **_shares(records),
            **_classes(rows, design),
            **_outcomes(records, design),
            **_rules(records),
        }


@final
@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Rows before a death, and which of them have a neighbour before them in their stay."""

    values: Floats
    times: Floats
    stay: NDArray[np.int64]
    night: NDArray[np.bool_]

    @property
    def later(self) -> NDArray[np.int64]:
        """Places of the rows that are not the first of their stay."""
        return 1 + np.flatnonzero(np.diff(self.stay) == 0)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether a row is the first of its stay."""
        return np.concatenate([[True], np.diff(self.stay) != 0])[: len(self.stay)]


def _check(records: PatientRecords) -> None:
    ours, theirs = schema(1), records.schema
    for kind in ("temporal", "static", "outcomes"):
        expected = [feature.name for feature in getattr(ours, kind)]
        got = [feature.name for feature in getattr(theirs, kind)]
        if got != expected:
            raise InputError(
                f"not records of the simulator: {kind} columns",
                got=", ".join(got),
                expected=", ".join(expected),
            )


def _rows(records: PatientRecords) -> _Rows:
    kept = records.values[:, STATUS] != DIED_ROW
    stay = records.stay_of_row
    night = at_night(records.static[stay, HOUR], records.times)
    return _Rows(
        values=records.values[kept], times=records.times[kept], stay=stay[kept], night=night[kept]
    )


def _vitals(rows: _Rows) -> Found:
    """Correlations within a row, of changes, with the row before; memory and spread."""
    found, values = {}, rows.values
    changes = values[rows.later] - values[rows.later - 1]
    for a, b in ((SBP, DBP), (HEARTRATE, RESPRATE)):
        pair = f"{VITALS[a]}_{VITALS[b]}"
        found[f"corr_{pair}"] = _correlation(values[:, a], values[:, b])
        found[f"change_corr_{pair}"] = _correlation(changes[:, a], changes[:, b])
    heartrate = values[:, HEARTRATE]
    found["autocorr_heartrate"] = _correlation(heartrate[rows.later], heartrate[rows.later - 1])
    minutes = rows.times[rows.later] - rows.times[rows.later - 1]
    found["memory"], found["spread_heartrate"] = _memory(changes[:, HEARTRATE], minutes)
    return found


def _memory(changes: Floats, minutes: Floats) -> tuple[float, float]:
    """By Gaussian quasi-likelihood of changes, whose variance is 2 s^2 (1 - exp(-g / memory))."""
    kept = ~np.isnan(changes) & (minutes > 0)
    squared, minutes = changes[kept] ** 2, minutes[kept]
    if len(squared) < 3:
        return float("nan"), float("nan")

    def loss(logs: Floats) -> float:
        memory, spread = np.exp(logs)
        variance = 2 * (spread**2 * -np.expm1(-minutes / memory) + ROUNDING)
        return float(np.mean(np.log(variance) + squared / variance))

    start = np.log([float(np.mean(minutes)) * 2, float(np.sqrt(np.mean(squared))) + 0.1])
    limits = [(0.0, 10.0), (-3.0, 6.0)]
    memory, spread = np.exp(minimize(loss, start, method="L-BFGS-B", bounds=limits).x)
    return float(memory), float(spread)


def _gaps(rows: _Rows) -> Found:
    """Of the logarithm of the minutes to the next row; below one minute counts as one."""
    logs = np.log(np.maximum(1.0, rows.times[rows.later] - rows.times[rows.later - 1]))
    heartrate = rows.values[rows.later - 1, HEARTRATE]
    seen = ~np.isnan(heartrate)
    slope = _correlation(heartrate, logs) * _ratio(_spread(logs[seen]), _spread(heartrate[seen]))
    return {
        "log_gap_mean": _mean(logs),
        "log_gap_sd": _spread(logs),
        "log_gap_slope_heartrate": slope,
        "rows": _ratio(len(rows.stay), int(rows.first.sum())),
    }


def _missing(rows: _Rows) -> Found:
    gone = np.isnan(rows.values)
    found = {
        f"missing_{name}": _mean(gone[:, column])
        for name, column in (*zip(VITALS, range(len(VITALS)), strict=True), ("rhythm", RHYTHM))
        if column not in (PAIN, DBP)
    }
    seen = ~gone[:, HEARTRATE]
    slope = _logistic(rows.values[seen, HEARTRATE] / 10 - 9, gone[seen, RESPRATE])[1]
    return {
        **found,
        "apart_sbp_dbp": _mean(gone[:, SBP] != gone[:, DBP]),
        "missing_pain_day": _mean(gone[~rows.night, PAIN]),
        "missing_pain_night": _mean(gone[rows.night, PAIN]),
        "missing_resprate_slope": slope,
    }


def _temperature(rows: _Rows) -> Found:
    """Whether temperature is measured, given the last one that was measured in the stay."""
    temperature, place = rows.values[:, TEMPERATURE], np.arange(len(rows.stay))
    measured = ~np.isnan(temperature)
    last = np.maximum.accumulate(np.where(measured, place, -1))[rows.later - 1]
    same = (last >= 0) & (rows.stay[last] == rows.stay[rows.later])
    abnormal = np.abs(temperature[last[same]] - NORMAL_TEMPERATURE)
    intercept, slope = _logistic(abnormal, measured[rows.later[same]])
    return {"temperature_intercept": intercept, "temperature_slope": slope}


def _rhythms(rows: _Rows, records: PatientRecords) -> Found:
    heartrate, rhythm = rows.values[:, HEARTRATE], rows.values[:, RHYTHM]
    fibrillates = rhythm == RHYTHMS.index("atrial fibrillation")
    sinus = ~np.isnan(heartrate) & ~np.isnan(rhythm) & ~fibrillates
    seen, ever = np.zeros((2, len(records)), dtype=bool)
    seen[rows.stay[~np.isnan(rhythm)]] = True
    ever[rows.stay[fibrillates]] = True
    old = records.static[:, AGE] >= OLD
    return {
        "rhythm_agrees": _mean(rhythm[sinus] == rhythm_of(heartrate[sinus])),
        "fibrillation_young": _mean(ever[seen & ~old]),
        "fibrillation_old": _mean(ever[seen & old]),
    }


def _shares(records: PatientRecords) -> Found:
    stays = np.unique(records.patients, return_counts=True)[1]
    return {
        "share_several_stays": _mean(stays > 1),
        "share_female": _mean(records.static[:, GENDER] == 0),
        "share_ambulance": _mean(records.static[:, ARRIVAL] == 1),
    }


def _classes(rows: _Rows, design: Design) -> Found:
    """Shares of the hidden classes, most likely given first rows and the classes' densities."""
    first = rows.values[rows.first][:, TELLING]
    first = first[~np.isnan(first).any(axis=1)]
    spread = np.array(design.spread)[list(TELLING)]
    covariance = np.array(design.correlation)[np.ix_(TELLING, TELLING)] * np.outer(spread, spread)
    means = design.by_class("means")[:, TELLING]
    logs = np.stack([stats.multivariate_normal.logpdf(first, m, covariance) for m in means])
    density = np.exp(logs - logs.max(axis=0)).reshape(len(means), -1)
    shares = np.full(len(means), 1 / len(means))
    for _ in range(200):
        weights = shares[:, None] * density
        shares = (weights / weights.sum(axis=0)).mean(axis=1) if len(first) else shares * np.nan
    return {f"share_{c.name}": float(s) for c, s in zip(design.classes, shares, strict=True)}


def _outcomes(records: PatientRecords, design: Design) -> Found:
    disposition = records.outcomes[:, DISPOSITION]
    survived = disposition != DIED
    admitted = disposition[survived] == ADMITTED
    weights = _logistic(summaries(records)[survived], admitted)
    return {
        "rate_admitted": _mean(disposition == ADMITTED),
        "rate_died": _mean(disposition == DIED),
        **{f"admitted_{name}": w for name, w in zip(SUMMARIES, weights[1:], strict=True)},
        "auroc_admitted": _auroc(chances(records, design)[0][survived], admitted),
    }


def _rules(records: PatientRecords) -> Found:
    """What holds always: shares of the rows or stays in which it does."""
    sbp, dbp = records.values[:, SBP], records.values[:, DBP]
    dead = records.values[:, STATUS] == DIED_ROW
    last = np.zeros(len(dead), dtype=bool)
    last[records.offsets[1:][records.lengths > 0] - 1] = True
    some = records.lengths > 0
    disposition, hours = records.outcomes[some].T[[DISPOSITION, HOURS]]
    end = records.times[last]
    return {
        "sbp_above_dbp": _mean((sbp > dbp)[~np.isnan(sbp) & ~np.isnan(dbp)]),
        "nothing_after_death": 1 - _mean(dead & ~last),
        "death_agrees": _mean((disposition == DIED) == dead[last]),
        "hours_agree": _mean(hours * 60 >= end - 3.5),  # written with one decimal
    }


def _logistic(inputs: Floats, positive: NDArray[np.bool_]) -> list[float]:
    """Intercept and weights of a logistic regression, by Newton steps."""
    design = np.column_stack([np.ones(len(positive)), inputs])
    weights = np.zeros(design.shape[1])
    if positive.all() or not positive.any():
        return [float("nan")] * len(weights)
    ridge = 1e-6 * np.eye(len(weights))  # finite even where the two sides can be told apart
    for _ in range(25):
        chance = expit(design @ weights)
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + ridge
        step = np.linalg.solve(curvature, design.T @ (positive - chance) - 1e-6 * weights)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    return [float(weight) for weight in weights]


def _auroc(score: Floats, positive: NDArray[np.bool_]) -> float:
    ranks, count = stats.rankdata(score), int(positive.sum())
    over = float(ranks[positive].sum()) - count * (count + 1) / 2
    return _ratio(over, count * (len(score) - count))


def _correlation(a: Floats, b: Floats) -> float:
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[both], b[both]
    return _ratio(_mean((a - _mean(a)) * (b - _mean(b))), _spread(a) * _spread(b))


def _mean(values: Floats | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _spread(values: Floats) -> float:
    return float(values.std()) if len(values) else float("nan")


def _ratio(above: float, below: float) -> float:
    return above / below if below else float("nan")
