"""Records by name or by file: what `--data` may be for records.

simulator, physionet2012, mimic-iv-ed-demo, mimic-iv-ed, eicu-demo; or a file with its schema.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from privet.data.locate import find_folder
from privet.data.records import eicu, mimic, physionet
from privet.data.records.chunks import KINDS
from privet.data.records.reading import ReadingNotes, outside_bounds, read_with_notes
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.schema_file import read_schema
from privet.errors import InputError

SIMULATOR: Final = "simulator"
SIMULATED: Final = 14_024  # patients, as in the paper's training records

Read = Callable[[str | Path | None], tuple[PatientRecords, ReadingNotes]]


@final
@dataclass(frozen=True, kw_only=True)
class Source:
    """Records that are known by name.

    Attributes:
        name: of the source.
        note: what it is, in a line.
        read: from the folder that a user names, or where it is usually found.
        holds: whether a folder has its files; None for what needs none.
    """

    name: str
    note: str
    read: Read
    holds: Callable[[Path], bool] | None = None

    def found(self, data_dir: str | Path | None = None) -> bool:
        """Whether it can be read; looks for its files, reads none."""
        return self.holds is None or find_folder(self.name, self.holds, data_dir) is not None


def load_records(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    schema: Schema | str | Path | None = None,
    **how: Any,
) -> PatientRecords:
    """The records of `read_source`, which see."""
    return read_source(name_or_path, data_dir, schema, **how)[0]


def read_source(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    schema: Schema | str | Path | None = None,
    **how: Any,
) -> tuple[PatientRecords, ReadingNotes]:
    """Records by name, or of a file with its schema; and what was done to them.

    Args:
        name_or_path: a name in `SOURCES`, or a CSV or Parquet file.
        data_dir: where the files of a named source lie.
        schema: of a file, or the path of its schema file (.toml).
        how: of a file, as `read_with_notes` takes it.
    """
    name = str(name_or_path)
    if name in SOURCES:
        if schema is not None or how:
            raise InputError(f"'{name}' has a schema of its own", fix="leave the schema out")
        return SOURCES[name].read(data_dir)
    if not name.lower().endswith(KINDS):
        near = difflib.get_close_matches(name.lower(), SOURCES, 1)
        raise InputError(
            "unknown records",
            got=f"'{name}'",
            expected=f"one of {', '.join(SOURCES)}, or a file ending in {', '.join(KINDS)}",
            fix=f"did you mean '{near[0]}'?" if near else "",
        )
    if schema is None:
        raise InputError(
            "a file alone does not tell what is public about it",
            got=name,
            expected="its schema as well",
            fix="add --schema schema.toml; privet synthesize schema drafts one",
        )
    declared = schema if isinstance(schema, Schema) else read_schema(schema)
    return read_with_notes(name_or_path, declared, **how)


def _simulated(_folder: str | Path | None) -> tuple[PatientRecords, ReadingNotes]:
    from privet.data.records.simulator import simulate  # scipy's special functions load slowly

    records = simulate(SIMULATED)
    return records, ReadingNotes(
        rows=len(records.times),
        patients=len(np.unique(records.patients)),
        stays=len(records),
        outside=outside_bounds(records),
    )


_SOURCES: Final = (
    Source(
        name=SIMULATOR,
        note="simulated emergency stays whose truth is known; embedded",
        read=_simulated,
    ),
    Source(
        name=physionet.NAME,
        note="12,000 intensive-care stays of 48 hours, 37 vital signs and laboratory values",
        read=physionet.read_physionet2012,
        holds=physionet.has_files,
    ),
    Source(
        name=mimic.DEMO,
        note="222 emergency stays of 64 patients; too small for a private fit",
        read=partial(mimic.read_mimic_iv_ed, name=mimic.DEMO),
        holds=mimic.has_files,
    ),
    Source(
        name=mimic.WHOLE,
        note="425,000 emergency stays; from PhysioNet, for those with access",
        read=partial(mimic.read_mimic_iv_ed, name=mimic.WHOLE),
        holds=mimic.has_files,
    ),
    Source(
        name=eicu.NAME,
        note="2,520 intensive-care stays of 186 hospitals, blood pressures",
        read=eicu.read_eicu_demo,
        holds=eicu.has_files,
    ),
)
SOURCES: Final[dict[str, Source]] = {source.name: source for source in _SOURCES}
