"""What the simulator plants: every number of it, and the public schema of its records."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Ends, Order, Schema
from privet.errors import InputError

VITALS: Final = ("temperature", "heartrate", "resprate", "o2sat", "sbp", "dbp", "pain")
TEMPERATURE, HEARTRATE, RESPRATE, O2SAT, SBP, DBP, PAIN = range(7)
RHYTHM, STATUS = 7, 8
RHYTHMS: Final = (
    "sinus rhythm",
    "sinus tachycardia",
    "sinus bradycardia",
    "atrial fibrillation",
)
PRESENT, DIED_ROW = 0, 1
HOME, ADMITTED, DIED = 0, 1, 2
AGE, GENDER, RACE, ARRIVAL, HOUR = range(5)
DISPOSITION, HOURS = 0, 1
MOST_ROWS: Final = 49  # with the row of a death, 50
OLD: Final = 70  # years, from which the atria fibrillate more often
NORMAL_TEMPERATURE: Final = 98.6
NIGHT: Final = (22, 7)  # from, to: hours of the clock
MOST_HOURS: Final = 120.0  # of a stay
PULSE_PRESSURE: Final = 10.0  # the least: systolic less diastolic

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class PatientClass:
    """One hidden class of patients; vital signs in the order of `VITALS`.

    Attributes:
        name: of the class.
        share: of patients.
        means: of vital signs; of saturation, the mean logarithm of what is lacking to 100 %.
        gap: mean and standard deviation of the logarithm of the minutes between rows.
        rows: mean and shape of the negative binomial number of rows after the first.
        age: mean age before clipping.
        ambulance: chance to arrive by ambulance.
        rhythm: chance that a row has a rhythm.
    """

    name: str
    share: float
    means: tuple[float, ...]
    gap: tuple[float, float]
    rows: tuple[float, float]
    age: float
    ambulance: float
    rhythm: float


CLASSES: Final = (
    PatientClass(
        name="stable",
        share=0.62,
        means=(98.1, 80.0, 16.8, 0.2, 136.0, 78.0, 3.6),
        gap=(4.4, 0.6),
        rows=(3.5, 2.0),
        age=46.0,
        ambulance=0.25,
        rhythm=0.03,
    ),
    PatientClass(
        name="inflamed",
        share=0.26,
        means=(99.9, 98.0, 19.0, 0.7, 126.0, 72.0, 4.4),
        gap=(4.0, 0.6),
        rows=(6.0, 2.5),
        age=54.0,
        ambulance=0.4,
        rhythm=0.08,
    ),
    PatientClass(
        name="critical",
        share=0.12,
        means=(98.9, 108.0, 23.0, 1.4, 106.0, 60.0, 2.0),
        gap=(3.2, 0.5),
        rows=(14.0, 3.0),
        age=67.0,
        ambulance=0.8,
        rhythm=0.3,
    ),
)
CORRELATION: Final = (
    (1.00, 0.35, 0.20, -0.05, 0.00, 0.00, 0.00),
    (0.35, 1.00, 0.50, -0.20, 0.00, 0.15, 0.15),
    (0.20, 0.50, 1.00, -0.35, 0.00, 0.00, 0.15),
    (-0.05, -0.20, -0.35, 1.00, 0.00, 0.00, 0.00),
    (0.00, 0.00, 0.00, 0.00, 1.00, 0.70, 0.20),
    (0.00, 0.15, 0.00, 0.00, 0.70, 1.00, 0.15),
    (0.00, 0.15, 0.15, 0.00, 0.20, 0.15, 1.00),
)


@final
@dataclass(frozen=True, kw_only=True)
class Design:
    """Every number of the simulation.

    Attributes:
        classes: the hidden classes.
        spread: standard deviation of each vital sign within a class.
        correlation: of the vital signs within a row and a class.
        memory: minutes in which the correlation of a vital sign with itself falls to 1/e.
        missing: chance that heartrate, resprate, o2sat and the pair (sbp, dbp) are missing in a
            row, whatever else happens.
        temperature: (a, b): after the first row, which always has it, temperature is measured
            with logit a + b |last measured - 98.6|.
        pain: (a, b): pain is missing with logit a, at night a + b.
        fibrillation: chance of atrial fibrillation below 70 years, and from then on.
        stays: chances of 1, 2, ... stays of a patient.
        age_spread: standard deviation of age in a class.
        female: chance that a patient is female.
        races: chances of the words of "race".
        race_missing: chance that a stay does not state it.
        admitted: intercept and weights of `summaries`, of the logit of being admitted for those
            who do not die.
        died: likewise of dying.
    """

    classes: tuple[PatientClass, ...] = CLASSES
    spread: tuple[float, ...] = (0.8, 13.0, 2.5, 0.75, 16.0, 10.5, 3.2)
    correlation: tuple[tuple[float, ...], ...] = CORRELATION
    memory: float = 180.0
    missing: tuple[float, float, float, float] = (0.03, 0.08, 0.05, 0.04)
    temperature: tuple[float, float] = (-0.6, 0.9)
    pain: tuple[float, float] = (-1.4, 1.2)
    fibrillation: tuple[float, float] = (0.04, 0.2)
    stays: tuple[float, ...] = (0.80, 0.13, 0.05, 0.02)
    age_spread: float = 17.0
    female: float = 0.54
    races: tuple[float, ...] = (0.58, 0.22, 0.09, 0.05, 0.06)
    race_missing: float = 0.03
    admitted: tuple[float, ...] = (-1.6, 0.3, 0.5, 0.6, 0.45, 0.4)
    died: tuple[float, ...] = (-6.8, 0.35, 0.4, 0.7, 0.0, 0.4)

    def __post_init__(self) -> None:
        for name, chances in {
            "class shares": [c.share for c in self.classes],
            "stays": self.stays,
            "races": self.races,
        }.items():
            if min(chances) < 0 or abs(sum(chances) - 1) > 1e-9:
                raise InputError(f"bad {name}", got=list(chances), expected="chances, together 1")
        for vector in (self.spread, *(c.means for c in self.classes), *self.correlation):
            if len(vector) != len(VITALS):
                raise InputError(
                    "bad vital signs", got=f"{len(vector)} numbers", expected=", ".join(VITALS)
                )
        matrix = np.array(self.correlation)
        if (matrix != matrix.T).any() or np.linalg.eigvalsh(matrix).min() <= 0:
            raise InputError("bad correlation", expected="symmetric and positive definite")

    def by_class(self, name: str) -> Floats:
        """A number (or several) of each class, first axis classes."""
        return np.array([getattr(c, name) for c in self.classes], dtype=np.float64)

    def row_chances(self) -> Floats:
        """(classes, 49): the chance of 1, 2, ... rows."""
        mean, shape = self.by_class("rows").T
        after = np.arange(MOST_ROWS)[None, :]
        chances = stats.nbinom.pmf(after, shape[:, None], (shape / (shape + mean))[:, None])
        return np.asarray(chances / chances.sum(axis=1, keepdims=True), dtype=np.float64)


DEFAULT: Final = Design()


def schema(n: int) -> Schema:
    """The public facts about simulated records of n patients."""
    return Schema(
        name="simulator",
        patient="subject_id",
        stay="stay_id",
        time="minutes",
        time_decimals=0,
        temporal=(
            Numeric(name="temperature", low=94, high=106, bins=30, decimals=1),
            Numeric(name="heartrate", low=30, high=190, bins=32, decimals=0),
            Numeric(name="resprate", low=6, high=46, bins=41, decimals=0),
            Numeric(name="o2sat", low=70, high=100, bins=31, decimals=0),
            Numeric(name="sbp", low=50, high=230, bins=36, decimals=0),
            Numeric(name="dbp", low=30, high=140, bins=22, decimals=0),
            Numeric(name="pain", low=0, high=10, bins=11, decimals=0),
            Categorical(name="rhythm", values=RHYTHMS),
            Categorical(name="status", values=("present", "died")),
        ),
        static=(
            Numeric(name="age", low=18, high=95, decimals=0),
            Categorical(name="gender", values=("F", "M")),
            Categorical(name="race", values=("white", "black", "hispanic", "asian", "other")),
            Categorical(name="arrival", values=("walk in", "ambulance")),
            Numeric(name="hour", low=0, high=23, bins=24, decimals=0),
        ),
        outcomes=(
            Categorical(name="disposition", values=("home", "admitted", "died")),
            Numeric(name="hours", low=0, high=MOST_HOURS, bins=24, scale="log", decimals=1),
        ),
        constraints=(Order(above="sbp", below="dbp"), Ends(column="status", value="died")),
        max_steps=MOST_ROWS + 1,
        nominal_size=n,
        licence="CC0",
    )


def arrival_hours() -> Floats:
    """The chance to arrive in each hour of the day: most at three in the afternoon."""
    return (1 + 0.6 * np.cos(2 * np.pi * (np.arange(24) - 15) / 24)) / 24


def rhythm_of(heartrate: Floats) -> Floats:
    """The place in `RHYTHMS` of the sinus rhythm with this heart rate."""
    return np.where(heartrate > 100, 1.0, np.where(heartrate < 60, 2.0, 0.0))
