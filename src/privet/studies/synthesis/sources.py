"""Which records may be studied, and how they are parted.

A study trains many models on the same records, some without any privacy; so it takes the public
sources by name and no file. MIMIC-IV-ED is for those with access, and therefore none of them. The
simulator makes so many patients that `records` of them are left to learn from: 14,024 by default,
as many as the papers had.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.data.dataset import Dataset
from privet.data.records import eicu, mimic, physionet
from privet.data.records.coding import coded_dataset
from privet.data.records.features import Numeric
from privet.data.records.parts import parted
from privet.data.records.records import PatientRecords
from privet.data.records.sources import SIMULATED, SIMULATOR, load_records
from privet.errors import InputError

HOLDOUT: Final = 0.2


@final
@dataclass(frozen=True, kw_only=True)
class Shown:
    """Columns of a source that stand for those of the papers.

    Attributes:
        heart_rate, systolic: of the papers' tables by feature.
        label: the one whose classes are learned, diastolic blood pressure in the paper.
    """

    heart_rate: str
    systolic: str
    label: str

    @property
    def trajectories(self) -> tuple[str, ...]:
        """Whose means by row are drawn."""
        return self.heart_rate, self.systolic, self.label


_VITALS: Final = Shown(heart_rate="heartrate", systolic="sbp", label="dbp")
PUBLIC: Final[Mapping[str, Shown]] = {
    SIMULATOR: _VITALS,
    physionet.NAME: Shown(heart_rate="HR", systolic="NISysABP", label="NIDiasABP"),
    mimic.DEMO: _VITALS,
    eicu.NAME: Shown(
        heart_rate="noninvasivemean", systolic="noninvasivesystolic", label="noninvasivediastolic"
    ),
}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Studied:
    """Records of a public source.

    Attributes:
        name: of the source.
        facts: what decides on the records.
        train, test: of the patients to learn from, and of the others.
        shown: columns that stand for the papers'.
        reference: how `privet resume` finds the records again; nothing where it cannot.
    """

    name: str
    facts: Mapping[str, Any]
    train: PatientRecords
    test: PatientRecords
    shown: Shown
    reference: Mapping[str, Any]

    @property
    def dataset(self) -> Dataset:
        """What the engine trains on."""
        return coded_dataset(self.train)


def studied(
    name: str,
    data_dir: Path | None = None,
    *,
    records: int | None = None,
    data_seed: int | None = None,
    holdout: float = HOLDOUT,
    label: str | None = None,
) -> Studied:
    """The records of a public source, parted.

    Args:
        name: of the source.
        data_dir: where its files are.
        records: of the simulator: patients to learn from.
        data_seed: of the simulator.
        holdout: share of the patients that nobody learns from.
        label: the column whose classes are learned; default: diastolic blood pressure.
    """
    if name not in PUBLIC:
        raise InputError(
            "a study trains many models, some without privacy: on public records only",
            got=f"'{name}'",
            expected=f"one of {', '.join(PUBLIC)}",
            fix="your own records: privet synthesize fit, which charges your ledger",
        )
    if name != SIMULATOR and (records is not None or data_seed is not None):
        raise InputError(
            "--records and --data-seed are the simulator's", got=f"'{name}'", fix="leave them out"
        )
    if not 0 < holdout < 1:
        raise InputError("bad holdout", got=holdout, expected="0 < holdout < 1")
    facts: dict[str, Any] = {"holdout": holdout}
    if name == SIMULATOR:
        facts["records"] = SIMULATED if records is None else records
        facts["data_seed"] = data_seed or 0
        whole = _simulated(facts["records"], facts["data_seed"], holdout)
    else:
        whole = load_records(name, data_dir)
    train, test = parted(whole, holdout)
    where = data_dir and str(data_dir.resolve())
    return Studied(
        name=name,
        facts=facts,
        train=train,
        test=test,
        shown=_shown(name, train, label),
        reference={} if name == SIMULATOR else {"kind": "records", "name": name, "data_dir": where},
    )


def _simulated(records: int, seed: int, holdout: float) -> PatientRecords:
    from privet.data.records.simulator import simulate  # scipy's special functions load slowly

    if records < 1:
        raise InputError("bad number of records", got=records, expected="at least 1")
    return simulate(round(records / (1 - holdout)), seed)


def _shown(name: str, records: PatientRecords, label: str | None) -> Shown:
    usual = PUBLIC[name]
    if label is None:
        return usual
    numeric = [f.name for f in records.schema.temporal if isinstance(f, Numeric)]
    if label not in numeric:
        raise InputError(
            "no such column to learn classes of",
            got=f"'{label}'",
            expected=f"a numeric temporal one: {', '.join(numeric)}",
        )
    return Shown(heart_rate=usual.heart_rate, systolic=usual.systolic, label=label)
