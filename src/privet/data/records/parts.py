"""A part of the patients set aside, the same each time.

Whether a patient is set aside follows from a hash of their own id: not from who else is there, so a
private run on the rest is a run on fewer patients, and nothing more.
"""

import hashlib
from dataclasses import replace

import numpy as np

from privet.data.records.records import PatientRecords
from privet.errors import InputError

_STEPS = 2**32


def parted(records: PatientRecords, share: float) -> tuple[PatientRecords, PatientRecords]:
    """The records to learn from, and those of about this share of the patients, set aside.

    The schema of the first counts so many fewer patients.
    """
    if not 0 <= share < 1:
        raise InputError("bad holdout", got=share, expected="0 <= holdout < 1")
    aside = np.array([_place(patient) < share for patient in records.patients], dtype=bool)
    size = max(1, round(records.schema.nominal_size * (1 - share)))
    rest = records.part(~aside)
    return (
        replace(rest, schema=replace(records.schema, nominal_size=size)),
        records.part(aside),
    )


def _place(patient: str) -> float:
    digest = hashlib.blake2b(patient.encode(), digest_size=4, person=b"privet holdout")
    return int.from_bytes(digest.digest(), "big") / _STEPS
