"""Methods that learn to make records, by name: `fit("autoregressive", records, epsilon=1.5)`."""

from functools import partial
from pathlib import Path
from typing import Any, Final

from privet.data.records.coding import coded_dataset
from privet.data.records.parts import parted
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.engine.arguments import shown
from privet.errors import InputError
from privet.release import Release
from privet.synthesis import igamt
from privet.synthesis.autoregressive import (
    NAME,
    AutoregressiveSettings,
    PlainAutoregressiveSettings,
)
from privet.synthesis.family import FAMILY
from privet.synthesis.published.igamt import published_variants
from privet.synthesis.published.settings import AsPublished
from privet.training import dpsgd, unprotected
from privet.training.plain import plain_mechanism, plain_trainer
from privet.training.registry import SOUND, Method, Variant, find_in, foreign, require_target
from privet.training.unprotected import Unprotected

NONE: Final = "none"
RUN: Final = frozenset({"out", "ledger", "watch", "reference"})  # no settings: of one run
QUICK_BATCH: Final = 128
QUICK_CELLS: Final = 2.5e7  # what two cores learn from in about a minute

_PLAIN: Final = Unprotected(
    method=NAME,
    settings=PlainAutoregressiveSettings,
    build=plain_trainer,
    mechanism=plain_mechanism,
)

METHODS: Final = {
    NAME: Method(
        name=NAME,
        summary="a transformer over discretised rows, whose every update is private",
        analyses={
            SOUND: Variant(
                promises="(epsilon, delta)-DP for the patient, proved",
                settings=AutoregressiveSettings,
                run=dpsgd.run,
                resume=partial(dpsgd.resume, kind=AutoregressiveSettings),
            ),
            NONE: Variant(
                promises="no privacy",
                settings=PlainAutoregressiveSettings,
                run=partial(unprotected.run, _PLAIN),
                resume=partial(unprotected.resume, _PLAIN),
            ),
        },
    )
} | {
    member.name: Method(
        name=member.name,
        summary=member.summary,
        analyses={SOUND: igamt.sound(member.name), **published_variants(member)},
    )
    for member in FAMILY.values()
}


def find_method(name: str) -> Method:
    """A method by name; an unknown one is bad input."""
    return find_in(METHODS, name, where="privet synthesize methods")


def fit(
    method: str,
    records: PatientRecords,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    quick: bool = False,
    **options: Any,
) -> Release:
    """Learn to make records like these.

    Args:
        method: see `privet synthesize methods`.
        records: from `privet.data.records`.
        epsilon: target for the patient, add/remove neighbours.
        delta: of the target; default 1e-5.
        analysis: 'sound', the default; 'paper', where there is one: as published, its epsilon
            claimed; or 'none': without privacy.
        quick: about a minute on two cores, for a first look.
        options: the method's settings, and `out` (folder), `ledger`, `watch`.
    """
    _require_records(records)
    chosen = require_target(find_method(method), epsilon, delta, analysis)
    given = {name: value for name, value in options.items() if name not in RUN}
    settings = settings_of(method, epsilon=epsilon, delta=delta, analysis=analysis, **given)
    part = parted(records, settings.holdout)[0]
    if quick:
        first = quick_settings(chosen.settings, records.schema, part.schema.nominal_size)
        given = first | given
        settings = settings_of(method, epsilon=epsilon, delta=delta, analysis=analysis, **given)
    rest = {name: value for name, value in options.items() if name in RUN}
    return chosen.run(coded_dataset(part), settings, **rest)


def settings_of(
    method: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    **options: Any,
) -> Any:
    """Of a method, as asked for: what no record is needed for is checked, and refused here."""
    chosen = require_target(find_method(method), epsilon, delta, analysis)
    unknown = set(options) - chosen.options
    if unknown:
        raise foreign(METHODS, method, sorted(unknown), chosen)
    target = {"epsilon": epsilon, "delta": delta}
    given = {name: value for name, value in target.items() if value is not None}
    return chosen.settings(**options | given)


def resume(
    out: str | Path, records: PatientRecords, *, method: str, analysis: str | None, **options: Any
) -> Release:
    """Go on with a killed run."""
    from privet.training.run_folder import RunFolder

    _, record = RunFolder.open(out)
    data = coded_dataset(parted(records, record["settings"]["holdout"])[0])
    return find_method(method).under(analysis).resume(out, data, **options)


def quick_settings(kind: type[Any], schema: Schema, patients: int) -> dict[str, Any]:
    """Of a first look, at so many patients that nobody set aside.

    As published, batches are small and rows are made one after the other.
    """
    if not issubclass(kind, AsPublished):
        return {"epochs": quick_epochs(schema)}
    return {"epochs": 1.0, "batch": min(QUICK_BATCH, patients), "model": kind.small()}


def quick_epochs(schema: Schema) -> float:
    """Passes over the data that take about a minute; by public sizes alone."""
    cells = schema.nominal_size * schema.max_steps * len(schema.temporal)
    return min(10.0, max(1.0, QUICK_CELLS / cells))


def _require_records(records: object) -> None:
    if not isinstance(records, PatientRecords):
        raise InputError(
            "no patient records",
            got=shown(records),
            expected="what privet.data.records.load_records gives",
        )
