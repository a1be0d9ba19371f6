"""Parts of records put together: what was drawn or read chunk by chunk, as one set."""

from collections.abc import Iterable

import numpy as np

from privet.data.records.records import PatientRecords
from privet.errors import InputError


def joined(parts: Iterable[PatientRecords]) -> PatientRecords:
    """The stays of all parts, in their order, under the schema of the first."""
    found = list(parts)
    if not found:
        raise InputError("no records", got="no parts", expected="at least one")
    first = found[0]
    if any(part.schema != first.schema for part in found):
        raise InputError("records of different schemas", expected="parts of one set")
    starts = [part.starts for part in found if part.starts is not None]
    if starts and len(starts) < len(found):
        raise InputError("records with and without dates", expected="parts of one set")
    lengths = np.concatenate([part.lengths for part in found])
    return PatientRecords(
        schema=first.schema,
        patients=np.concatenate([part.patients for part in found]),
        stays=np.concatenate([part.stays for part in found]),
        starts=np.concatenate(starts) if starts else None,
        static=np.concatenate([part.static for part in found]),
        outcomes=np.concatenate([part.outcomes for part in found]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=np.concatenate([part.times for part in found]),
        values=np.concatenate([part.values for part in found]),
    )
