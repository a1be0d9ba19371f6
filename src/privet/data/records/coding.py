"""From records to codes and back: what a generator learns from and what it makes.

A stay becomes a matrix of bytes: row 0 has the codes of static and outcome columns; row t has the
code of the gap before the stay's row t (0: there is no such row) and the codes of the temporal
columns (0: not measured). Its shape follows from the schema alone.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Bounds, Dataset, Split
from privet.data.records.features import Codes, Feature
from privet.data.records.records import Floats, PatientRecords
from privet.data.records.schema import PATIENT, SECONDS, Schema
from privet.data.records.schema_file import schema_to_json
from privet.errors import InputError

CODE_BOUNDS: Final = Bounds(low=(0.0,), high=(255.0,))
SYNTHETIC_START: Final = np.datetime64("2000-01-01T00:00:00")  # where there are dates


def code_shape(schema: Schema) -> tuple[int, int]:
    """Rows and columns of one stay's matrix."""
    fixed = len(schema.static) + len(schema.outcomes)
    return 1 + schema.max_steps, max(fixed, 1 + len(schema.temporal))


def encode(records: PatientRecords) -> Codes:
    """(stays, *code_shape); rows beyond `max_steps` are left out, values outside bounds moved."""
    schema = records.schema
    records = records.first_steps(schema.max_steps)
    codes = np.zeros((len(records), *code_shape(schema)), dtype=np.uint8)
    values = np.concatenate([records.static, records.outcomes], axis=1)
    codes[:, 0, : values.shape[1]] = _encoded((*schema.static, *schema.outcomes), values)
    stay, step = records.stay_of_row, 1 + records.step_of_row
    codes[stay, step, 0] = schema.gap.encode(records.gaps)
    codes[stay, step, 1 : 1 + len(schema.temporal)] = _encoded(schema.temporal, records.values)
    return codes


def decode(codes: Codes, schema: Schema, rng: np.random.Generator) -> PatientRecords:
    """Records of codes; what a bin does not tell is drawn. Ids are numbers from 1 on."""
    n, statics, temporal = len(codes), len(schema.static), len(schema.temporal)
    present = codes[:, 1:, 0] > 0
    present = np.logical_and.accumulate(present, axis=1)  # nothing after the first absent row
    stay, step = np.nonzero(present)
    rows = codes[stay, 1 + step]
    fixed = codes[:, 0]
    gaps = schema.gap.decode(rows[:, 0], rng)
    offsets = np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int64)
    ids = np.array([str(1 + k) for k in range(n)], dtype=np.str_)
    return PatientRecords(
        schema=schema,
        patients=ids,
        stays=ids,
        starts=np.full(n, SYNTHETIC_START) if schema.timestamps else None,
        static=_decoded(schema.static, fixed[:, :statics], rng),
        outcomes=_decoded(schema.outcomes, fixed[:, statics : statics + len(schema.outcomes)], rng),
        offsets=offsets,
        times=_rounded(_running(gaps, offsets), schema),
        values=_decoded(schema.temporal, rows[:, 1 : 1 + temporal], rng),
    )


def decode_static(codes: Codes, schema: Schema, rng: np.random.Generator) -> Floats:
    """Values of the static columns alone."""
    return _decoded(schema.static, codes, rng)


def coded_dataset(records: PatientRecords) -> Dataset:
    """What the engine trains on; the unit of privacy is the patient."""
    schema = records.schema
    if not len(records):
        raise InputError("no records", got="a set of zero stays", expected="at least one")
    several = schema.stay is not None
    codes = encode(records)
    return Dataset(
        name=schema.name,
        train=Split(
            x=codes,
            y=np.zeros(len(codes), dtype=np.int64),
            units=records.patient_of_stay if several else None,
        ),
        test=Split(x=codes[:0], y=np.zeros(0, dtype=np.int64)),
        bounds=CODE_BOUNDS,
        classes=(),
        nominal_size=schema.nominal_size,
        licence=schema.licence,
        source=schema.name,
        unit=PATIENT,
        learned=schema.learned,
        schema=schema_to_json(schema),
        originals=tuple(_original(records, stay) for stay in range(len(records))),
    )


def _original(records: PatientRecords, stay: int) -> bytes:
    """By which a stay is known again: whose it is, and when its rows were written, to the second.

    Other columns, bins, units of time or a column of starts do not change it. Other ids or times
    do: the ledger knows records again that were declared anew, not ones that were disguised.
    """
    rows = slice(records.offsets[stay], records.offsets[stay + 1])
    seconds = np.rint(records.times[rows] * SECONDS[records.schema.time_unit])
    if records.starts is not None:
        seconds += float(records.starts[stay].astype("datetime64[s]").astype(np.int64))
    name = str(records.patients[stay]).encode()
    return b"%d:%b%b" % (len(name), name, seconds.astype("<f8").tobytes())


def _encoded(features: tuple[Feature, ...], values: Floats) -> Codes:
    codes = np.zeros(values.shape, dtype=np.uint8)
    for place, feature in enumerate(features):
        codes[:, place] = feature.encode(values[:, place])
    return codes


def _decoded(features: tuple[Feature, ...], codes: Codes, rng: np.random.Generator) -> Floats:
    values = np.full(codes.shape, np.nan)
    for place, feature in enumerate(features):
        values[:, place] = feature.decode(codes[:, place], rng)
    return values


def _rounded(times: Floats, schema: Schema) -> Floats:
    return times if schema.time_decimals is None else np.round(times, schema.time_decimals)


def _running(gaps: Floats, offsets: NDArray[np.int64]) -> Floats:
    """Sums of gaps that begin anew with each stay."""
    total = np.concatenate([[0.0], np.cumsum(gaps)])
    before: Floats = np.repeat(total[offsets[:-1]], np.diff(offsets))
    return np.asarray(total[1:] - before, dtype=np.float64)
