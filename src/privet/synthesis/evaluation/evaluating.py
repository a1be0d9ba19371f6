"""Compare synthetic records with real ones, and real ones with each other as the yardstick.

Everything here reads real records without charge. What it returns is for their owner.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.errors import InputError
from privet.synthesis.evaluation.measure import Comparison, Figures, Measure
from privet.synthesis.evaluation.registry import find_measures
from privet.synthesis.evaluation.result import FidelityResult, Row
from privet.synthesis.evaluation.side import Side

LEAST: Final = 20  # stays on each side: below, no figure means anything

Watch = Callable[[int, int], object]


def evaluate(
    real_train: PatientRecords,
    real_test: PatientRecords,
    synthetic: PatientRecords,
    *,
    measures: Sequence[str] | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> FidelityResult:
    """Figures of synthetic records, beside those of real ones in their place.

    Everything is compared with `real_test`. As many synthetic as training records take part, drawn
    at random where there are more, so that both figures have the same sampling noise; measures of
    privacy take all (`Measure.private`).

    Args:
        real_train: what the generator learned from.
        real_test: records of other patients that it never saw.
        synthetic: what it made, under the same schema.
        measures: names from `MEASURES`, or "classes-of:COLUMN"; None for all of `MEASURES`.
        seed: of everything drawn at random; the same records and seed give the same figures.
        watch: told how many measures of how many are done.
    """
    chosen = find_measures(measures)
    _check(real_train, real_test, synthetic)
    drawing = _Pairs(real_train, real_test, synthetic, seed)
    found: dict[str, tuple[Figures, Figures]] = {}
    figures: dict[str, Figures] = {}
    seconds: dict[str, float] = {}
    for done, measure in enumerate(chosen):
        began = time.perf_counter()
        ours, yardstick = (measure.compare(c) for c in drawing.of(measure))
        found[measure.name] = ours.figures, yardstick.figures
        figures[measure.name] = {"synthetic": ours.drawn, "real": yardstick.drawn}
        seconds[measure.name] = round(time.perf_counter() - began, 2)
        if watch is not None:
            watch(done + 1, len(chosen))
    return FidelityResult(
        data=real_train.schema.name,
        stays=drawing.stays,
        seed=seed,
        measures={n: {"synthetic": a, "real": b} for n, (a, b) in found.items()},
        rows=_rows(chosen, found),
        figures=figures,
        cautions=_cautions(real_train, real_test),
        seconds=seconds,
    )


class _Pairs:
    """The comparison of the synthetic records, and that of the yardstick."""

    def __init__(
        self, train: PatientRecords, test: PatientRecords, synthetic: PatientRecords, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        whole, held_out, made = Side(train), Side(test), Side(synthetic)
        n = min(len(train), len(synthetic))
        as_many = [side.at_most(n, rng) for side in (made, whole)]
        halves = _halves(held_out, rng)
        self._open = [_comparison(c, held_out, whole, seed) for c in as_many]
        self._private = [
            _comparison(made, held_out, whole, seed),
            _comparison(halves[0], halves[1], whole, seed),
        ]
        sizes = {"train": train, "test": test, "synthetic": synthetic}
        self.stays = {name: len(records) for name, records in sizes.items()} | {"compared": n}

    def of(self, measure: Measure) -> list[Comparison]:
        return self._private if measure.private else self._open


def _halves(side: Side, rng: np.random.Generator) -> tuple[Side, Side]:
    """Stays of one half of the patients, and those of the others."""
    patient = side.records.patient_of_stay
    n = int(patient.max()) + 1
    first = (rng.permutation(n) < n // 2)[patient]
    return side.part(np.flatnonzero(first)), side.part(np.flatnonzero(~first))


def _comparison(candidate: Side, test: Side, train: Side, seed: int) -> Comparison:
    return Comparison(candidate=candidate, test=test, train=train, seed=seed)


def _rows(chosen: Sequence[Measure], found: dict[str, tuple[Figures, Figures]]) -> tuple[Row, ...]:
    return tuple(
        Row(
            measure=measure.name,
            headline=headline,
            synthetic=found[measure.name][0].get(headline.figure),
            real=found[measure.name][1].get(headline.figure),
        )
        for measure in chosen
        for headline in measure.headlines
    )


def _check(train: PatientRecords, test: PatientRecords, synthetic: PatientRecords) -> None:
    named = {"real_train": train, "real_test": test, "synthetic": synthetic}
    for name, records in named.items():
        if len(records) < LEAST:
            raise InputError(
                f"{name}: too few stays", got=len(records), expected=f"at least {LEAST}"
            )
        if _columns(records.schema) != _columns(train.schema):
            raise InputError(
                f"{name} has another schema than real_train",
                got=", ".join(f.name for f in records.schema.features),
                expected="the same columns, bounds, words, time unit and number of rows",
            )


def _columns(schema: Schema) -> tuple[object, ...]:
    """What must be the same for figures to be comparable."""
    columns = schema.static, schema.temporal, schema.outcomes, schema.constraints
    return *columns, schema.time_unit, schema.max_steps, schema.max_gap


def _cautions(train: PatientRecords, test: PatientRecords) -> tuple[str, ...]:
    shared = len(np.intersect1d(train.patients, test.patients))
    if not shared:
        return ()
    return (
        f"{shared} patient ids stand among the training and the test records. If they are the same "
        "people, the yardstick is too kind and the figures on privacy mean nothing.",
    )
