"""The eICU demo in its own tables: `patient` and `vitalAperiodic`.

`uniquepid` is the patient, `patientunitstayid` the stay, times are minutes since admission to the
unit. Bounds are literal clinical ranges, not read off the records.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from privet.data.locate import locate
from privet.data.records.cells import Numbers, Replaced
from privet.data.records.cleaning import without_empty_rows, without_impossible
from privet.data.records.features import Categorical, Numeric
from privet.data.records.layouts import VALUE, CellReader, Layout, Table, read_columns
from privet.data.records.reading import ReadingNotes, outside_bounds
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Order, Schema
from privet.data.records.stays import assemble, places_of, put_in_order
from privet.errors import InputError

NAME: Final = "eicu-demo"
FILES: Final = ("patient.csv.gz", "vitalAperiodic.csv.gz")
AGES: Final = {"> 89": "90"}
MISSING: Final = {"gender": ("Unknown", "Other")}

SCHEMA: Final = Schema(
    name=NAME,
    patient="uniquepid",
    stay="patientunitstayid",
    time="observationoffset",
    time_unit="minutes",
    time_decimals=0,
    temporal=(
        Numeric(name="noninvasivesystolic", low=0, high=300, bins=24, decimals=0),
        Numeric(name="noninvasivediastolic", low=0, high=200, bins=24, decimals=0),
        Numeric(name="noninvasivemean", low=0, high=200, bins=24, decimals=0),
        Numeric(name="cardiacoutput", low=0, high=20, bins=20, decimals=1),
        Numeric(name="svr", low=0, high=4000, bins=20, decimals=0),
    ),
    static=(
        Categorical(name="gender", values=("Female", "Male")),
        Numeric(name="age", low=15, high=90, bins=15, decimals=0),
        Categorical(
            name="ethnicity",
            values=(
                "Caucasian",
                "African American",
                "Hispanic",
                "Asian",
                "Native American",
                "Other/Unknown",
            ),
        ),
        Categorical(
            name="unittype",
            values=(
                "Med-Surg ICU",
                "MICU",
                "SICU",
                "Cardiac ICU",
                "CCU-CTICU",
                "CSICU",
                "CTICU",
                "Neuro ICU",
            ),
        ),
        Numeric(name="admissionweight", low=30, high=230, bins=20, decimals=1),
    ),
    outcomes=(Categorical(name="hospitaldischargestatus", values=("Alive", "Expired")),),
    constraints=(Order(above="noninvasivesystolic", below="noninvasivediastolic"),),
    max_steps=64,
    max_gap=1440.0,
    nominal_size=1_841,
    licence="ODbL 1.0",
)

# No living patient has values outside these: read as missing.
POSSIBLE: Final = {
    "noninvasivesystolic": (1.0, 400.0),
    "noninvasivediastolic": (1.0, 300.0),
    "noninvasivemean": (1.0, 400.0),
    "cardiacoutput": (0.5, 30.0),
    "svr": (1.0, 8000.0),
    "admissionweight": (20.0, 500.0),
}


def load_eicu_demo(data_dir: str | Path | None = None) -> PatientRecords:
    """The stays of the demo; see `read_eicu_demo`."""
    return read_eicu_demo(data_dir)[0]


def read_eicu_demo(data_dir: str | Path | None = None) -> tuple[PatientRecords, ReadingNotes]:
    """The stays and what was done to them.

    The age "> 89" is 90. Impossible values (`POSSIBLE`) are missing. Rows before admission to the
    unit count as at admission. Rows without any value are left out; rows that repeat another one
    are dropped. Stays without vital signs are kept, without rows.
    """
    folder = locate(NAME, has_files, data_dir)
    patient, vitals = (folder / name for name in FILES)
    layout = Layout(schema=SCHEMA, missing=MISSING)
    facts: dict[str, CellReader] = {**layout.facts(), "age": Replaced(Numbers(), AGES)}
    stays = read_columns([patient], {**layout.keys(), **facts})
    rows, before = _rows(vitals, layout, stays)
    order = put_in_order(layout, rows, stays, unique=True)
    records = assemble(layout, rows, [stays], order)
    records, impossible = without_impossible(records, POSSIBLE)
    records, empty = without_empty_rows(records)
    done = {
        "rows before admission read as at admission": before,
        **{f"impossible values of {name} read as missing": n for name, n in impossible.items()},
        "rows without any value left out": empty,
    }
    return records, ReadingNotes(
        rows=len(rows),
        patients=len(np.unique(records.patients)),
        stays=len(records),
        duplicates=order.duplicates,
        unsorted=order.unsorted,
        outside=outside_bounds(records),
        done=done,
    )


def has_files(folder: Path) -> bool:
    """Whether the data set lies in a folder."""
    return all((folder / name).is_file() for name in FILES)


def _rows(path: Path, layout: Layout, stays: Table) -> tuple[Table, int]:
    """The vital signs with their patients; and how many rows stand before admission."""
    stay = SCHEMA.stay or ""
    values = {feature.name: layout.reader_of(feature) for feature in SCHEMA.temporal}
    table = read_columns([path], {stay: layout.stays, SCHEMA.time: Numbers()}, values)
    own = places_of(table.columns[stay], stays.columns[stay])
    times = table.columns[SCHEMA.time]
    wrong = np.flatnonzero((own < 0) | np.isnan(times))
    if len(wrong):
        raise InputError(
            f"{table.place(int(wrong[0]))}: no time, or a stay that {stays.paths[0].name} "
            "does not have"
        )
    columns = {
        SCHEMA.patient: stays.columns[SCHEMA.patient][own],
        stay: table.columns[stay],
        SCHEMA.time: np.maximum(times, 0.0),
        VALUE: table.columns[VALUE],
    }
    return replace(table, columns=columns), int((times < 0).sum())
