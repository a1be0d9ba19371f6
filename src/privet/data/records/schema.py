"""What is public about a set of patient records: columns, time, constraints, size.

Everything here is declared by whoever knows the data, or learned privately and listed in
`learned`. A release contains it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from privet.data.dataset import LearnedFact
from privet.data.records.features import Categorical, Feature, Numeric
from privet.errors import InputError

SECONDS: Final = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
GAP_BINS: Final = 24
MOST_STEPS: Final = 4096
PATIENT: Final = "patient"  # the unit of privacy


@final
@dataclass(frozen=True, kw_only=True)
class Order:
    """In every row in which both are there, the numeric column `above` is at least `below`."""

    above: str
    below: str


@final
@dataclass(frozen=True, kw_only=True)
class Ends:
    """Nothing comes after the first row in which the categorical `column` has this `value`."""

    column: str
    value: str


Constraint = Order | Ends


@final
@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public facts about records; a stay is one sequence, a patient may have several.

    Attributes:
        name: of the set, as the ledger knows it.
        patient: column with the patient's id: the unit of privacy.
        stay: column with the stay's id; None where a patient has one sequence.
        time: column with the time of a row.
        time_unit: of relative times, and of `max_gap`.
        time_decimals: of synthetic times, in `time_unit`; None for as they come.
        timestamps: whether the time column has dates; else numbers since the stay's start.
        start: column with the date on which a stay began, for timestamps; None for its first row.
        temporal: columns measured again and again, at irregular times, any of them missing.
        static: columns that are known when a stay begins.
        outcomes: columns that are known when a stay is over.
        constraints: what is true of every record, and will be of synthetic ones.
        max_steps: the most rows of a stay that are used: the first ones.
        max_gap: the longest time between rows; longer ones count as it.
        horizon: the longest time since the start that synthetic rows have; None for no limit.
        gap_bins: codes of gaps.
        nominal_size: public number of patients, about.
        learned: facts that were learned privately, and their price.
        licence: of the records.
    """

    name: str
    patient: str = "patient"
    stay: str | None = None
    time: str = "time"
    time_unit: str = "minutes"
    time_decimals: int | None = None
    timestamps: bool = False
    start: str | None = None
    temporal: tuple[Feature, ...]
    static: tuple[Feature, ...] = ()
    outcomes: tuple[Feature, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    max_steps: int = 50
    max_gap: float = 1440.0
    horizon: float | None = None
    gap_bins: int = GAP_BINS
    nominal_size: int
    learned: tuple[LearnedFact, ...] = ()
    licence: str = "not stated"

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_names()
        for constraint in self.constraints:
            self._check_constraint(constraint)
        self._check_order()
        for fact in self.learned:
            if not 0 < fact.epsilon < float("inf"):
                raise InputError(
                    f"bad epsilon of learned '{fact.name}'",
                    got=fact.epsilon,
                    expected="a positive, finite number",
                )

    @cached_property
    def gap(self) -> Numeric:
        """The time between a row and the one before (of the first: since the start)."""
        return Numeric(
            name="gap", low=0.0, high=self.max_gap, bins=self.gap_bins, scale="log", decimals=None
        )

    @property
    def features(self) -> Iterator[Feature]:
        """All columns with values."""
        yield from (*self.static, *self.temporal, *self.outcomes)

    def feature(self, name: str) -> Feature:
        """A column by name; an unknown one is bad input."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise InputError(
            "no such column",
            got=f"'{name}'",
            expected=f"one of {', '.join(f.name for f in self.features)}",
        )

    def _check_numbers(self) -> None:
        if self.time_unit not in SECONDS:
            raise InputError(
                "bad time_unit", got=f"'{self.time_unit}'", expected=f"one of {', '.join(SECONDS)}"
            )
        if not 1 <= self.max_steps <= MOST_STEPS:
            raise InputError("bad max_steps", got=self.max_steps, expected=f"1 to {MOST_STEPS}")
        if self.nominal_size < 1:
            raise InputError("bad nominal_size", got=self.nominal_size, expected="at least 1")
        if self.horizon is not None and not 0 < self.horizon < float("inf"):
            raise InputError("bad horizon", got=self.horizon, expected="a positive number")
        if self.time_decimals is not None and not 0 <= self.time_decimals <= 12:
            raise InputError("bad time_decimals", got=self.time_decimals, expected="0 to 12")
        if not self.temporal:
            raise InputError("no temporal column", expected="at least one")
        _ = self.gap

    def _check_names(self) -> None:
        if self.start is not None and not self.timestamps:
            raise InputError("a start column without timestamps", got=f"'{self.start}'")
        special = (self.patient, self.stay, self.time, self.start)
        declared = [feature.name for feature in self.features]
        names = [*(name for name in special if name is not None), *declared]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError("a column is declared twice", got=f"'{twice[0]}'")

    def _check_order(self) -> None:
        """Columns above one another in a circle could only be equal."""
        left = {(c.above, c.below) for c in self.constraints if isinstance(c, Order)}
        while left:
            lowest = {below for _, below in left} - {above for above, _ in left}
            if not lowest:
                raise InputError(
                    "constraints go round in a circle",
                    got=", ".join(sorted({name for pair in left for name in pair})),
                    fix="leave one of them out",
                )
            left = {pair for pair in left if pair[1] not in lowest}

    def _check_constraint(self, constraint: Constraint) -> None:
        names = {f.name: f for f in self.temporal}
        if isinstance(constraint, Order):
            known = all(
                isinstance(names.get(n), Numeric) for n in (constraint.above, constraint.below)
            )
            if not known or constraint.above == constraint.below:
                raise InputError(
                    "bad constraint",
                    got=f"'{constraint.above}' above '{constraint.below}'",
                    expected="two numeric temporal columns",
                )
            return
        feature = names.get(constraint.column)
        if not isinstance(feature, Categorical) or constraint.value not in feature.values:
            raise InputError(
                "bad constraint",
                got=f"an end by '{constraint.column}' = '{constraint.value}'",
                expected="a categorical temporal column and one of its values",
            )
