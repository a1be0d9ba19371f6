"""Bounds and size of records learned privately, and charged, where their owner cannot declare them.

Guarantee: epsilon-DP for patients under add/remove neighbours. Of every column one value of each
patient counts, chosen by a draw of the patient's own (`one_of_each`), so that a patient moves one
count of each column by one; a patient without a value moves none. Each column has its share of
epsilon and noise of its own; pure epsilons add up.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from privet.data.dataset import LearnedFact, Split
from privet.data.identity import entered_in_ledger
from privet.data.learning import charge, learn_bounds, learn_size, one_of_each
from privet.data.records.cells import Floats, Integers
from privet.data.records.coding import coded_dataset
from privet.data.records.features import Feature, Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.randomness import Randomness

SIZE: Final = "nominal size"


def learn_schema(
    records: PatientRecords,
    columns: Sequence[str],
    *,
    epsilon: float,
    ledger: Ledger,
    size: bool = False,
) -> Schema:
    """The records' schema with learned bounds of numeric `columns`, and if told its size.

    The bounds that stand in the schema until then are not looked at. Everything is charged to the
    ledger before it is computed (even "too little data" is an answer) and listed in `learned`.
    """
    schema = records.schema
    names = [*(f"bounds of {name}" for name in columns), *([SIZE] if size else [])]
    if not names:
        return schema
    for name in columns:
        if not isinstance(schema.feature(name), Numeric):
            raise InputError(f"column '{name}' has no bounds to learn", expected="a numeric column")
    if not 0 < epsilon < np.inf:
        raise InputError("bad epsilon", got=epsilon, expected="a positive, finite number")
    facts = [LearnedFact(name=name, epsilon=epsilon / len(names)) for name in names]
    with entered_in_ledger(coded_dataset(records), ledger, bounds_known=False):
        charge(ledger, schema.name, facts)
    share = facts[0].epsilon
    for name in columns:
        # Fresh keys for each: noise that two columns share would cancel between them.
        schema = _with_bounds(schema, name, _bounds(records, name, share, Randomness.fresh()))
    if size:
        patients = len(np.unique(records.patients))
        learned = learn_size(patients, share, Randomness.fresh().noise)
        schema = replace(schema, nominal_size=learned)
    return replace(schema, learned=(*schema.learned, *facts))


def _bounds(
    records: PatientRecords, name: str, epsilon: float, random: Randomness
) -> tuple[float, float]:
    values, patients = _column(records, name)
    known = ~np.isnan(values)
    units = np.unique(patients[known], return_inverse=True)[1]
    split = Split(x=values[known], y=np.zeros(int(known.sum()), dtype=np.int64), units=units)
    chosen = one_of_each(split, random.sampling) if known.any() else np.zeros(0, dtype=np.int64)
    try:
        ((low, high),) = learn_bounds(values[known][chosen][:, None], epsilon, random.noise)
    except InputError:
        raise InputError(
            f"too little data or epsilon to learn the bounds of column '{name}'",
            fix="declare the bounds, or allow a larger epsilon",
        ) from None
    return low, high


def _column(records: PatientRecords, name: str) -> tuple[Floats, Integers]:
    """The values of a column, and whose they are."""
    schema, patients = records.schema, records.patient_of_stay
    parts = (
        (schema.temporal, records.values, patients[records.stay_of_row]),
        (schema.static, records.static, patients),
        (schema.outcomes, records.outcomes, patients),
    )
    for features, values, owners in parts:
        names = [feature.name for feature in features]
        if name in names:
            return values[:, names.index(name)], owners
    raise InputError("no such column", got=f"'{name}'")


def _with_bounds(schema: Schema, name: str, bounds: tuple[float, float]) -> Schema:
    low, high = bounds

    def changed(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
        return tuple(
            replace(f, low=low, high=high) if isinstance(f, Numeric) and f.name == name else f
            for f in features
        )

    return replace(
        schema,
        temporal=changed(schema.temporal),
        static=changed(schema.static),
        outcomes=changed(schema.outcomes),
    )
