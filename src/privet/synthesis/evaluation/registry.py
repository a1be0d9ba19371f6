"""Measures by name."""

import difflib
from collections.abc import Sequence
from typing import Final

from privet.errors import InputError
from privet.synthesis.evaluation import (
    clusters,
    constraints,
    copies,
    dependence,
    discriminative,
    downstream,
    feature_clusters,
    marginals,
    membership,
    missing_patterns,
    missing_rates,
    nearness,
    projection,
    sequence_classifier,
    timing,
    trajectories,
)
from privet.synthesis.evaluation.measure import Measure

MEASURES: Final[dict[str, Measure]] = {
    module.MEASURE.name: module.MEASURE
    for module in (
        marginals,
        missing_rates,
        missing_patterns,
        timing,
        trajectories,
        dependence,
        projection,
        clusters,
        feature_clusters,
        downstream,
        discriminative,
        constraints,
        nearness,
        copies,
        membership,
    )
}


def find_measures(names: Sequence[str] | None) -> list[Measure]:
    """Measures by name, all of `MEASURES` for None; `classes-of:COLUMN` makes one for a column."""
    return list(MEASURES.values()) if names is None else [find_measure(name) for name in names]


def find_measure(name: str) -> Measure:
    """A measure by name; an unknown one is bad input."""
    if name in MEASURES:
        return MEASURES[name]
    kind, _, column = name.partition(":")
    if kind == sequence_classifier.NAME and column:
        return sequence_classifier.measure_of(column)
    near = difflib.get_close_matches(name, MEASURES, n=1)
    raise InputError(
        "unknown measure",
        got=f"'{name}'",
        expected=f"one of {', '.join(MEASURES)}, {sequence_classifier.NAME}:COLUMN",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )
