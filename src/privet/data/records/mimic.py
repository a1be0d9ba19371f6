"""MIMIC-IV-ED in its own tables: `edstays`, `triage` and `vitalsign`, whole or as the open demo.

A subject is a patient and may have several stays. Triage is a stay's first row, at `intime`.
Bounds are literal clinical ranges, not read off the records.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np

from privet.data.locate import locate
from privet.data.records.cells import NO_TIME, Dates, Integers, Numbers, Rated, Replaced, Words
from privet.data.records.cleaning import without_empty_rows, without_impossible
from privet.data.records.features import Categorical, Numeric
from privet.data.records.layouts import VALUE, CellReader, Layout, Table, read_columns
from privet.data.records.reading import ReadingNotes, outside_bounds
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Order, Schema
from privet.data.records.stays import assemble, places_of, put_in_order
from privet.errors import InputError

DEMO: Final = "mimic-iv-ed-demo"
WHOLE: Final = "mimic-iv-ed"
TABLES: Final = ("edstays", "triage", "vitalsign")
SUFFIXES: Final = (".csv.gz", ".csv")
COLDEST_FAHRENHEIT: Final = 45.0  # what is below was written in Celsius

# The words of the tables, and the group of each. A word that is not here is OTHER as well.
RACES: Final = {
    "WHITE": "WHITE",
    "WHITE - BRAZILIAN": "WHITE",
    "WHITE - EASTERN EUROPEAN": "WHITE",
    "WHITE - OTHER EUROPEAN": "WHITE",
    "WHITE - RUSSIAN": "WHITE",
    "PORTUGUESE": "WHITE",
    "BLACK/AFRICAN": "BLACK",
    "BLACK/AFRICAN AMERICAN": "BLACK",
    "BLACK/CAPE VERDEAN": "BLACK",
    "BLACK/CARIBBEAN ISLAND": "BLACK",
    "HISPANIC OR LATINO": "HISPANIC",
    "HISPANIC/LATINO - CENTRAL AMERICAN": "HISPANIC",
    "HISPANIC/LATINO - COLUMBIAN": "HISPANIC",
    "HISPANIC/LATINO - CUBAN": "HISPANIC",
    "HISPANIC/LATINO - DOMINICAN": "HISPANIC",
    "HISPANIC/LATINO - GUATEMALAN": "HISPANIC",
    "HISPANIC/LATINO - HONDURAN": "HISPANIC",
    "HISPANIC/LATINO - MEXICAN": "HISPANIC",
    "HISPANIC/LATINO - PUERTO RICAN": "HISPANIC",
    "HISPANIC/LATINO - SALVADORAN": "HISPANIC",
    "SOUTH AMERICAN": "HISPANIC",
    "ASIAN": "ASIAN",
    "ASIAN - ASIAN INDIAN": "ASIAN",
    "ASIAN - CHINESE": "ASIAN",
    "ASIAN - KOREAN": "ASIAN",
    "ASIAN - SOUTH EAST ASIAN": "ASIAN",
    "AMERICAN INDIAN/ALASKA NATIVE": "OTHER",
    "MULTIPLE RACE/ETHNICITY": "OTHER",
    "NATIVE HAWAIIAN OR OTHER PACIFIC ISLANDER": "OTHER",
    "OTHER": "OTHER",
    "UNKNOWN": "",
    "UNABLE TO OBTAIN": "",
    "PATIENT DECLINED TO ANSWER": "",
}

SCHEMA: Final = Schema(
    name=DEMO,
    patient="subject_id",
    stay="stay_id",
    time="charttime",
    time_unit="minutes",
    time_decimals=0,
    timestamps=True,
    start="intime",
    temporal=(
        Numeric(name="temperature", low=90, high=108, bins=24, decimals=1),
        Numeric(name="heartrate", low=0, high=250, bins=25, decimals=0),
        Numeric(name="resprate", low=0, high=80, bins=20, decimals=0),
        Numeric(name="o2sat", low=76, high=100, bins=25, decimals=0),
        Numeric(name="sbp", low=0, high=300, bins=24, decimals=0),
        Numeric(name="dbp", low=0, high=200, bins=24, decimals=0),
        Numeric(name="pain", low=0, high=10, bins=11, decimals=0),
    ),
    static=(
        Categorical(name="gender", values=("F", "M")),
        Categorical(name="race", values=("WHITE", "BLACK", "HISPANIC", "ASIAN", "OTHER")),
        Categorical(
            name="arrival_transport",
            values=("AMBULANCE", "WALK IN", "HELICOPTER", "OTHER", "UNKNOWN"),
        ),
        Numeric(name="acuity", low=1, high=5, bins=5, decimals=0),
    ),
    outcomes=(
        Categorical(
            name="disposition",
            values=(
                "ADMITTED",
                "HOME",
                "TRANSFER",
                "LEFT AGAINST MEDICAL ADVICE",
                "LEFT WITHOUT BEING SEEN",
                "ELOPED",
                "EXPIRED",
                "OTHER",
            ),
        ),
    ),
    constraints=(Order(above="sbp", below="dbp"),),
    max_steps=24,
    max_gap=1440.0,
    nominal_size=64,
    licence="ODbL 1.0",
)
SIZES: Final = {DEMO: 64, WHOLE: 205_000}
LICENCES: Final = {DEMO: "ODbL 1.0", WHOLE: "PhysioNet Credentialed Health Data License 1.5.0"}

# No living patient has values outside these, after the change to Fahrenheit. Read as missing.
POSSIBLE: Final = {
    "temperature": (70.0, 115.0),
    "heartrate": (1.0, 350.0),
    "resprate": (1.0, 120.0),
    "o2sat": (10.0, 100.0),
    "sbp": (10.0, 400.0),
    "dbp": (1.0, 300.0),
}


def load_mimic_iv_ed(data_dir: str | Path | None = None, *, name: str = DEMO) -> PatientRecords:
    """The stays of the demo or of the whole; see `read_mimic_iv_ed`."""
    return read_mimic_iv_ed(data_dir, name=name)[0]


def read_mimic_iv_ed(
    data_dir: str | Path | None = None, *, name: str = DEMO
) -> tuple[PatientRecords, ReadingNotes]:
    """The stays and what was done to them.

    Temperatures below 45 are Celsius and are converted. Pain that is no number from 0 to 10 is
    missing, as are impossible values (`POSSIBLE`). Races are put into five groups (`RACES`). Rows
    before `intime` count as at `intime`; those after `outtime` are kept. Rows without any value
    are left out; rows that repeat another one are dropped.
    """
    folder = locate(name, has_files, data_dir)
    schema = replace(SCHEMA, name=name, nominal_size=SIZES[name], licence=LICENCES[name])
    tables = _read_tables(folder, Layout(schema=schema))
    order = put_in_order(tables.layout, tables.rows, tables.stays, unique=True)
    records = assemble(tables.layout, tables.rows, [tables.triage, tables.stays], order)
    records, converted = _in_fahrenheit(records)
    records, impossible = without_impossible(records, POSSIBLE)
    records, empty = without_empty_rows(records)
    done = {
        **tables.done,
        "temperatures converted from Celsius": converted,
        **{f"impossible values of {name} read as missing": n for name, n in impossible.items()},
        "rows without any value left out": empty,
    }
    return records, ReadingNotes(
        rows=len(tables.rows),
        patients=len(np.unique(records.patients)),
        stays=len(records),
        duplicates=order.duplicates,
        unsorted=order.unsorted,
        outside=outside_bounds(records),
        done=done,
    )


def has_files(folder: Path) -> bool:
    """Whether the data set lies in a folder."""
    return all(_path(folder, table) is not None for table in TABLES)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Tables:
    layout: Layout
    rows: Table
    triage: Table
    stays: Table
    done: dict[str, int]


def _read_tables(folder: Path, layout: Layout) -> _Tables:
    races = Replaced(Words(_words("race")), RACES, otherwise="OTHER")
    pain = Rated(0, 10)
    facts: dict[str, CellReader] = {**layout.facts(), "race": races}
    facts.pop("acuity")
    values: dict[str, CellReader] = {
        **{feature.name: Numbers() for feature in SCHEMA.temporal},
        "pain": pain,
    }
    stays = _read(folder, "edstays", {**layout.keys(), **facts, "outtime": Dates()})
    triage = _read(folder, "triage", {**layout.keys(), "acuity": Numbers()}, values)
    vitals = _read(folder, "vitalsign", {**layout.keys(), **layout.times()}, values)
    rows, before, after = _together(stays, triage, vitals)
    done = {
        "races that are in no group read as OTHER": races.unlisted,
        "pains that are no number from 0 to 10 read as missing": pain.unusable,
        "rows before intime read as at intime": before,
        "rows after outtime kept": after,
    }
    return _Tables(layout=layout, rows=rows, triage=triage, stays=stays, done=done)


def _together(stays: Table, triage: Table, vitals: Table) -> tuple[Table, int, int]:
    """Triage and vital signs as one table of rows; rows before intime and after outtime."""
    starts, ends = stays.columns["intime"], stays.columns["outtime"]
    first = starts[_stays_of(triage, stays)]
    own = _stays_of(vitals, stays)
    charted = vitals.columns["charttime"]
    before = (charted < starts[own]) & (charted != NO_TIME)
    after = (charted > ends[own]) & (ends[own] != NO_TIME)
    times = np.concatenate([first, np.where(before, starts[own], charted)])
    columns = {
        name: np.concatenate([triage.columns[name], vitals.columns[name]])
        for name in (SCHEMA.patient, SCHEMA.stay or "", VALUE)
    }
    rows = Table(
        paths=(*triage.paths, *vitals.paths),
        ends=np.array([len(triage), len(triage) + len(vitals)]),
        lines=np.concatenate([triage.lines, vitals.lines]),
        columns={**columns, SCHEMA.time: times},
    )
    return rows, int(before.sum()), int(after.sum())


def _stays_of(table: Table, stays: Table) -> Integers:
    """The line of `edstays` that each row of a table belongs to."""
    found = places_of(table.columns[SCHEMA.stay or ""], stays.columns[SCHEMA.stay or ""])
    wrong = np.flatnonzero(found < 0)
    if len(wrong):
        raise InputError(
            f"{table.place(int(wrong[0]))}: a stay that {stays.paths[0].name} does not have"
        )
    return found


def _in_fahrenheit(records: PatientRecords) -> tuple[PatientRecords, int]:
    values = records.values.copy()
    names = [feature.name for feature in records.schema.temporal]
    column = values[:, names.index("temperature")]
    celsius = column < COLDEST_FAHRENHEIT
    column[celsius] = np.round(column[celsius] * 1.8 + 32.0, 1)
    return replace(records, values=values), int(celsius.sum())


def _words(name: str) -> tuple[str, ...]:
    feature = SCHEMA.feature(name)
    return feature.values if isinstance(feature, Categorical) else ()


def _read(
    folder: Path,
    table: str,
    readers: dict[str, CellReader],
    values: dict[str, CellReader] | None = None,
) -> Table:
    path = _path(folder, table)
    assert path is not None  # `has_files` was asked
    return read_columns([path], readers, values)


def _path(folder: Path, table: str) -> Path | None:
    places = (root / f"{table}{suffix}" for root in (folder / "ed", folder) for suffix in SUFFIXES)
    return next((path for path in places if path.is_file()), None)
