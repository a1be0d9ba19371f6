"""PhysioNet/CinC Challenge 2012: 12,000 adult intensive-care stays, their first 48 hours.

Read from `patients.csv.gz` and `events_{a,b,c}.csv.gz` (a row for each time, blank where nothing
was measured). Bounds are literal clinical ranges, not read off the records.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from privet.data.locate import locate
from privet.data.records.cleaning import merge_rows, without_empty_rows, without_impossible
from privet.data.records.features import Categorical, Numeric
from privet.data.records.reading import ReadingNotes, outside_bounds, read_with_notes
from privet.data.records.records import PatientRecords
from privet.data.records.schema import Order, Schema

NAME: Final = "physionet2012"
FILES: Final = ("patients.csv.gz", "events_a.csv.gz", "events_b.csv.gz", "events_c.csv.gz")
MERGE_WITHIN: Final = 60.0  # minutes
HORIZON: Final = 2880.0  # minutes: what was recorded are the first 48 hours


def _number(
    name: str, low: float, high: float, bins: int, decimals: int, scale: str = "linear"
) -> Numeric:
    return Numeric(name=name, low=low, high=high, bins=bins, decimals=decimals, scale=scale)


TEMPORAL: Final = (
    _number("HR", 0, 250, 25, 0),
    _number("SysABP", 0, 300, 24, 0),
    _number("DiasABP", 0, 200, 24, 0),
    _number("MAP", 0, 200, 24, 0),
    _number("NISysABP", 0, 300, 24, 0),
    _number("NIDiasABP", 0, 200, 24, 0),
    _number("NIMAP", 0, 200, 24, 2),
    _number("RespRate", 0, 80, 20, 0),
    _number("Temp", 32, 42, 20, 1),
    _number("SaO2", 76, 100, 25, 0),
    _number("GCS", 3, 15, 13, 0),
    _number("FiO2", 0.2, 1, 16, 2),
    Categorical(name="MechVent", values=("0", "1")),
    _number("Urine", 0, 3000, 24, 0, "log"),
    _number("Weight", 30, 230, 20, 1),
    _number("ALP", 0, 5000, 24, 0, "log"),
    _number("ALT", 0, 15000, 24, 0, "log"),
    _number("AST", 0, 20000, 24, 0, "log"),
    _number("Albumin", 1, 6, 20, 1),
    _number("BUN", 0, 200, 24, 0, "log"),
    _number("Bilirubin", 0, 80, 24, 1, "log"),
    _number("Cholesterol", 0, 400, 16, 0),
    _number("Creatinine", 0, 22, 24, 1, "log"),
    _number("Glucose", 0, 1500, 24, 0, "log"),
    _number("HCO3", 4, 52, 24, 0),
    _number("HCT", 10, 60, 20, 1),
    _number("K", 2, 8, 24, 1),
    _number("Lactate", 0, 30, 24, 1, "log"),
    _number("Mg", 0.5, 5.5, 20, 1),
    _number("Na", 110, 170, 24, 0),
    _number("PaCO2", 10, 100, 18, 0),
    _number("PaO2", 20, 500, 24, 0),
    _number("Platelets", 0, 1500, 24, 0, "log"),
    _number("TroponinI", 0, 50, 20, 1, "log"),
    _number("TroponinT", 0, 30, 24, 2, "log"),
    _number("WBC", 0, 200, 24, 1, "log"),
    _number("pH", 6.8, 7.8, 20, 2),
)

SCHEMA: Final = Schema(
    name=NAME,
    patient="record_id",
    time="t_min",
    time_unit="minutes",
    time_decimals=0,
    temporal=TEMPORAL,
    static=(
        _number("age", 15, 90, 15, 0),
        Categorical(name="gender", values=("0", "1")),
        _number("height_cm", 120, 220, 20, 1),
        Categorical(name="icu_type", values=("1", "2", "3", "4")),
    ),
    outcomes=(Categorical(name="in_hospital_death", values=("0", "1")),),
    constraints=(
        Order(above="SysABP", below="DiasABP"),
        Order(above="NISysABP", below="NIDiasABP"),
    ),
    max_steps=50,
    max_gap=720.0,
    horizon=HORIZON,
    nominal_size=12_000,
    licence="ODC-By 1.0",
)

# No living patient has values outside these: they are slips of the keyboard, other units, or
# "-1". Read as missing. What is outside the schema's bounds but possible is kept.
POSSIBLE: Final = {
    "SysABP": (1.0, 400.0),
    "DiasABP": (1.0, 300.0),
    "NISysABP": (1.0, 400.0),
    "NIDiasABP": (1.0, 300.0),
    "MAP": (1.0, 400.0),
    "NIMAP": (1.0, 400.0),
    "Temp": (20.0, 45.0),
    "Weight": (20.0, 500.0),
    "SaO2": (10.0, 100.0),
    "PaO2": (10.0, 700.0),
    "PaCO2": (5.0, 250.0),
    "Mg": (0.1, 20.0),
    "WBC": (0.0, 1000.0),
    "pH": (6.3, 8.0),
    "height_cm": (50.0, 250.0),
}
# Where the file itself writes a number for "unknown".
UNKNOWN: Final = {"gender": ("-1",), "height_cm": ("-1",), "age": ("-1",)}


def load_physionet2012(
    data_dir: str | Path | None = None, *, merge_within: float = MERGE_WITHIN
) -> PatientRecords:
    """The stays of all three sets; see `read_physionet2012`."""
    return read_physionet2012(data_dir, merge_within=merge_within)[0]


def read_physionet2012(
    data_dir: str | Path | None = None, *, merge_within: float = MERGE_WITHIN
) -> tuple[PatientRecords, ReadingNotes]:
    """The stays and what was done to them.

    Impossible values (`POSSIBLE`) are read as missing. The rows of each window of `merge_within`
    minutes since admission are merged into one at the time of the last; of several values of one
    column the last counts. Zero merges nothing. Rows without any value are left out.
    """
    folder = locate(NAME, has_files, data_dir)
    patients, *events = (folder / name for name in FILES)
    records, notes = read_with_notes(events, SCHEMA, static_path=patients, missing=UNKNOWN)
    records, impossible = without_impossible(records, POSSIBLE)
    records, merged, overwritten = merge_rows(records, merge_within)
    records, empty = without_empty_rows(records)
    done = {
        **{f"impossible values of {name} read as missing": n for name, n in impossible.items()},
        "rows merged into another": merged,
        "values replaced by a later one in merging": overwritten,
        "rows without any value left out": empty,
    }
    return records, replace(notes, outside=outside_bounds(records), done=done)


def has_files(folder: Path) -> bool:
    """Whether the data set lies in a folder."""
    return all((folder / name).is_file() for name in FILES)
