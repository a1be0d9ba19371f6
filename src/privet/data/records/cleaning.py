"""What the readers of known sources do to rows before anyone sees them; each returns its counts."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privet.data.records.records import PatientRecords
from privet.errors import InputError


def without_impossible(
    records: PatientRecords, possible: Mapping[str, tuple[float, float]]
) -> tuple[PatientRecords, dict[str, int]]:
    """Values outside what is possible at all become missing; how many of each column did."""
    schema, counts = records.schema, {}
    values, static = records.values.copy(), records.static.copy()
    for features, matrix in ((schema.temporal, values), (schema.static, static)):
        for place, feature in enumerate(features):
            low, high = possible.get(feature.name, (-np.inf, np.inf))
            wrong = (matrix[:, place] < low) | (matrix[:, place] > high)
            matrix[wrong, place] = np.nan
            if feature.name in possible:
                counts[feature.name] = int(wrong.sum())
    return replace(records, values=values, static=static), counts


def merge_rows(records: PatientRecords, within: float) -> tuple[PatientRecords, int, int]:
    """Merge the rows of each window since the stay's start into one, at the time of the last.

    Of several values of one column the last counts. Returns as well how many rows were merged
    into another and how many values a later one replaced. Zero merges nothing.
    """
    if not 0 <= within < np.inf:
        raise InputError("bad merge_within", got=within, expected="0 or a positive number")
    if within == 0 or not len(records.times):
        return records, 0, 0
    window = np.floor_divide(records.times, within)
    new = np.ones(len(window), dtype=bool)
    new[1:] = (np.diff(window) != 0) | (np.diff(records.stay_of_row) != 0)
    group = np.cumsum(new) - 1
    values = np.full((int(new.sum()), records.values.shape[1]), np.nan)
    known = 0
    for place, column in enumerate(records.values.T):
        there = np.flatnonzero(~np.isnan(column))
        values[group[there], place] = column[there]  # of equal places, the last one stands
        known += len(there)
    last = np.append(np.flatnonzero(new)[1:], len(new)) - 1
    merged = replace(
        records,
        offsets=_offsets(records, new),
        times=records.times[last],
        values=values,
    )
    return merged, len(new) - len(values), known - int((~np.isnan(values)).sum())


def without_empty_rows(records: PatientRecords) -> tuple[PatientRecords, int]:
    """Leave out rows in which nothing was measured; and how many those were."""
    some = np.asarray((~np.isnan(records.values)).any(axis=1))
    kept = replace(
        records,
        offsets=_offsets(records, some),
        times=records.times[some],
        values=records.values[some],
    )
    return kept, int((~some).sum())


def _offsets(records: PatientRecords, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    lengths = np.bincount(records.stay_of_row[kept], minlength=len(records))
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
