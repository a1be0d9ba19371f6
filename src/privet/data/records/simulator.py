"""Simulated emergency-department records whose truth is known: the embedded default data.

A patient belongs to one of three hidden classes. Per stay and row t, with g the minutes since the
row before, c the class, z the hidden state of the seven vital signs:

    rows    1 + negative binomial with mean and shape of c, at most 49
    g       log-normal with mean and sd (of the logarithm) of c, in whole minutes
    z_t     r z_(t-1) + sqrt(1 - r^2) e,   r = exp(-g / memory),   e ~ N(0, correlation)
    value   mean of c + spread z; saturation 100 - exp(mean of c - spread z); rounded, clipped

What is measured, which rhythm is seen and how a stay ends are in `Design`, each with its numbers.
`simulator_truth` has what follows from them, `simulator_estimates` finds it again in records.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privet.data.records.features import Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.simulator_design import (
    ADMITTED,
    AGE,
    DBP,
    DEFAULT,
    DIED,
    DIED_ROW,
    HEARTRATE,
    HOME,
    HOUR,
    MOST_HOURS,
    NIGHT,
    NORMAL_TEMPERATURE,
    O2SAT,
    OLD,
    PAIN,
    PRESENT,
    PULSE_PRESSURE,
    RESPRATE,
    RHYTHM,
    RHYTHMS,
    SBP,
    STATUS,
    TEMPERATURE,
    VITALS,
    Design,
    PatientClass,
    arrival_hours,
    rhythm_of,
    schema,
)
from privet.errors import InputError

__all__ = [
    "DEFAULT",
    "Design",
    "PatientClass",
    "at_night",
    "chances",
    "schema",
    "simulate",
    "summaries",
]

_CHUNK: Final = 50_000  # patients at a time, so that what is temporary stays small

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def simulate(n: int, seed: int = 0, *, design: Design = DEFAULT) -> PatientRecords:
    """Records of n patients; the same for the same n, seed and design."""
    for name, value, least in (("number of patients", n, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"bad {name}", got=value, expected=f"at least {least}")
    public, first, parts = schema(n), 0, []
    for key in range(-(-n // _CHUNK)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))
        parts.append(_simulate(min(_CHUNK, n - first), first, public, design, rng))
        first += _CHUNK
    if len(parts) == 1:
        return parts[0]
    stays = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return PatientRecords(
        schema=public,
        patients=np.concatenate([part.patients for part in parts]),
        stays=_names("s", np.arange(stays[-1])),
        static=np.concatenate([part.static for part in parts]),
        outcomes=np.concatenate([part.outcomes for part in parts]),
        offsets=_offsets(np.concatenate([part.lengths for part in parts])),
        times=np.concatenate([part.times for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


def summaries(records: PatientRecords) -> Floats:
    """(stays, 5): what decides how a stay ends, from its rows before a death.

    (age - 55) / 10, (last heartrate - 85) / 15, (130 - lowest sbp) / 20, highest temperature
    - 98.6, (97 - lowest o2sat) / 3; of what was never measured: 0.
    """
    values, stay = records.values, records.stay_of_row
    before = values[:, STATUS] != DIED_ROW

    def extreme(column: int, of: np.ufunc, start: float) -> Floats:
        kept = before & ~np.isnan(values[:, column])
        result = np.full(len(records), start)
        of.at(result, stay[kept], values[kept, column])
        return np.where(np.isinf(result), np.nan, result)

    kept = before & ~np.isnan(values[:, HEARTRATE])
    heartrate = np.full(len(records), np.nan)
    heartrate[stay[kept]] = values[kept, HEARTRATE]  # the last of several writes stays
    columns = (
        (records.static[:, AGE] - 55) / 10,
        (heartrate - 85) / 15,
        (130 - extreme(SBP, np.minimum, np.inf)) / 20,
        extreme(TEMPERATURE, np.maximum, -np.inf) - NORMAL_TEMPERATURE,
        (97 - extreme(O2SAT, np.minimum, np.inf)) / 3,
    )
    return np.nan_to_num(np.stack(columns, axis=1))


def chances(records: PatientRecords, design: Design = DEFAULT) -> tuple[Floats, Floats]:
    """The true chance of each stay to be admitted (if it does not die), and to die."""
    facts = summaries(records)
    admitted, died = (np.array(weights) for weights in (design.admitted, design.died))
    logits = admitted[0] + facts @ admitted[1:], died[0] + facts @ died[1:]
    return np.asarray(expit(logits[0])), np.asarray(expit(logits[1]))


def at_night(hour: Floats, minutes: Floats) -> NDArray[np.bool_]:
    """Whether it is night so many minutes after a full hour of the clock."""
    clock = (hour + minutes / 60) % 24
    return (clock >= NIGHT[0]) | (clock < NIGHT[1])


def _simulate(
    n: int, first: int, public: Schema, design: Design, rng: np.random.Generator
) -> PatientRecords:
    """Patients first, first + 1, ...: stays, then rows, then how they end."""
    patient, kind, static, fibrillates = _stays(n, design, rng)
    lengths = _lengths(kind, design, rng)
    offsets = _offsets(lengths)
    row_kind = np.repeat(kind, lengths)
    gaps = _gaps(row_kind, design, rng)
    gaps[offsets[:-1]] = 0.0
    total = np.cumsum(gaps)
    times = total - np.repeat(total[offsets[:-1]], lengths)
    values = np.empty((len(times), len(public.temporal)))
    values[:, : len(VITALS)] = _vitals(offsets, gaps, row_kind, public, design, rng)
    values[:, RHYTHM] = np.where(
        np.repeat(fibrillates, lengths),
        RHYTHMS.index("atrial fibrillation"),
        rhythm_of(values[:, HEARTRATE]),
    )
    values[:, STATUS] = PRESENT
    night = at_night(np.repeat(static[:, HOUR], lengths), times)
    _hide(values, offsets, night, design.by_class("rhythm")[row_kind], design, rng)
    records = PatientRecords(
        schema=public,
        patients=_names("p", first + patient),
        stays=_names("s", np.arange(len(kind))),
        static=static,
        outcomes=np.full((len(kind), 2), np.nan),
        offsets=offsets,
        times=times,
        values=values,
    )
    return _ended(records, _gaps(kind, design, rng), design, rng)


def _stays(
    n: int, design: Design, rng: np.random.Generator
) -> tuple[Ints, Ints, Floats, NDArray[np.bool_]]:
    """Of each stay: its patient, class, static columns, and whether the atria fibrillate."""
    kind = rng.choice(len(design.classes), n, p=design.by_class("share"))
    age = np.rint(design.by_class("age")[kind] + design.age_spread * rng.standard_normal(n))
    age = np.clip(age, 18, 95)
    gender = (rng.random(n) >= design.female).astype(np.float64)
    race = rng.choice(len(design.races), n, p=np.array(design.races)).astype(np.float64)
    fibrillates = rng.random(n) < np.where(age < OLD, *design.fibrillation)
    patient = np.repeat(np.arange(n), 1 + rng.choice(len(design.stays), n, p=design.stays))
    m = len(patient)
    race = np.where(rng.random(m) < design.race_missing, np.nan, race[patient])
    arrival = (rng.random(m) < design.by_class("ambulance")[kind[patient]]).astype(np.float64)
    hour = rng.choice(24, m, p=arrival_hours()).astype(np.float64)
    static = np.stack([age[patient], gender[patient], race, arrival, hour], axis=1)
    return patient, kind[patient], static, fibrillates[patient]


def _lengths(kind: Ints, design: Design, rng: np.random.Generator) -> Ints:
    below = np.cumsum(design.row_chances(), axis=1)
    draws, lengths = rng.random(len(kind)), np.empty(len(kind), dtype=np.int64)
    for c in range(len(design.classes)):
        of_class = kind == c
        lengths[of_class] = 1 + np.searchsorted(below[c, :-1], draws[of_class], side="right")
    return lengths


def _gaps(kind: Ints, design: Design, rng: np.random.Generator) -> Floats:
    mean, spread = design.by_class("gap")[kind].T
    minutes = np.exp(mean + spread * rng.standard_normal(len(kind)))
    return np.asarray(np.maximum(1.0, np.rint(minutes)))


def _vitals(
    offsets: Ints,
    gaps: Floats,
    kind: Ints,
    public: Schema,
    design: Design,
    rng: np.random.Generator,
) -> Floats:
    """(rows, 7): the vital signs as a device would show them, nothing missing yet."""
    root = np.linalg.cholesky(np.array(design.correlation))
    state = rng.standard_normal((len(gaps), len(VITALS))) @ root.T
    kept = np.exp(-gaps / design.memory)[:, None]
    for now in _steps(offsets):
        state[now] = kept[now] * state[now - 1] + np.sqrt(1 - kept[now] ** 2) * state[now]
    state *= np.array(design.spread)
    means = design.by_class("means")
    state[:, O2SAT] = 100 - np.exp(means[kind, O2SAT] - state[:, O2SAT])
    for i in set(range(len(VITALS))) - {O2SAT}:
        state[:, i] += means[kind, i]
    for i, feature in enumerate(public.temporal[: len(VITALS)]):
        assert isinstance(feature, Numeric)
        state[:, i] = np.clip(
            np.round(state[:, i], feature.decimals or 0), feature.low, feature.high
        )
    state[:, DBP] = np.minimum(state[:, DBP], state[:, SBP] - PULSE_PRESSURE)
    return state


def _steps(offsets: Ints) -> list[Ints]:
    """The second rows of all stays that have one, then the third ones, and so on."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, longest_first = offsets[:-1][order], -lengths[order]
    return [
        starts[: np.searchsorted(longest_first, -step)] + step
        for step in range(1, int(lengths.max()))
    ]


def _hide(
    values: Floats,
    offsets: Ints,
    night: NDArray[np.bool_],
    rhythm: Floats,
    design: Design,
    rng: np.random.Generator,
) -> None:
    """Makes missing what was not measured."""
    rows = len(values)
    for column, chance in zip((HEARTRATE, RESPRATE, O2SAT, SBP), design.missing, strict=True):
        values[rng.random(rows) < chance, column] = np.nan
    values[np.isnan(values[:, SBP]), DBP] = np.nan  # one cuff measures both
    values[rng.random(rows) < expit(design.pain[0] + design.pain[1] * night), PAIN] = np.nan
    values[rng.random(rows) >= rhythm, RHYTHM] = np.nan
    a, b = design.temperature
    last, draws = values[:, TEMPERATURE].copy(), rng.random(rows)
    for now in _steps(offsets):
        chance = expit(a + b * np.abs(last[now - 1] - NORMAL_TEMPERATURE))
        skipped = now[draws[now] >= chance]
        last[skipped] = last[skipped - 1]
        values[skipped, TEMPERATURE] = np.nan


def _ended(
    records: PatientRecords, after: Floats, design: Design, rng: np.random.Generator
) -> PatientRecords:
    """With outcomes, and with a last row "died", in which nothing is measured, for those who do."""
    admitted, died = (rng.random(len(records)) < chance for chance in chances(records, design))
    end = records.times[records.offsets[1:] - 1] + after
    disposition = np.where(died, DIED, np.where(admitted, ADMITTED, HOME))
    at = records.offsets[1:][died]
    row = np.full((1, records.values.shape[1]), np.nan)
    row[0, STATUS] = DIED_ROW
    return replace(
        records,
        outcomes=np.stack([disposition, np.round(np.minimum(end / 60, MOST_HOURS), 1)], axis=1),
        offsets=_offsets(records.lengths + died),
        times=np.insert(records.times, at, end[died]),
        values=np.insert(records.values, at, row, axis=0),
    )


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _names(letter: str, numbers: Ints) -> NDArray[np.str_]:
    return np.asarray(np.char.add(letter, np.char.zfill(numbers.astype(np.str_), 7)))
