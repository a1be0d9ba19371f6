"""Patient records as they were read: ragged, in double precision, gaps as NaN."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.data.records.schema import Schema
from privet.errors import InputError

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PatientRecords:
    """Stays, one after the other; the rows of stay i are offsets[i] : offsets[i + 1].

    Attributes:
        schema: the public facts.
        patients: id of each stay's patient, as written in the file.
        stays: id of each stay; the patient's where a patient has one sequence.
        starts: when each stay began, for timestamps; None for relative times.
        static: (stays, static columns); categories as places in their vocabulary, NaN missing.
        outcomes: (stays, outcome columns), likewise.
        offsets: (stays + 1).
        times: of each row, in `schema.time_unit` since its stay's start; never decreasing.
        values: (rows, temporal columns), NaN where not measured.
    """

    schema: Schema
    patients: NDArray[np.str_]
    stays: NDArray[np.str_]
    starts: NDArray[np.datetime64] | None = None
    static: Floats
    outcomes: Floats
    offsets: NDArray[np.int64]
    times: Floats
    values: Floats

    def __post_init__(self) -> None:
        schema, n, rows = self.schema, len(self.stays), len(self.times)
        shapes = {
            "patients": (self.patients.shape, (n,)),
            "static": (self.static.shape, (n, len(schema.static))),
            "outcomes": (self.outcomes.shape, (n, len(schema.outcomes))),
            "offsets": (self.offsets.shape, (n + 1,)),
            "values": (self.values.shape, (rows, len(schema.temporal))),
        }
        for name, (got, expected) in shapes.items():
            if got != expected:
                raise InputError(f"records: bad shape of {name}", got=got, expected=f"{expected}")
        if n and (self.offsets[0] != 0 or self.offsets[-1] != rows or (self.lengths < 0).any()):
            raise InputError("records: offsets do not cover the rows")
        if schema.stay is None and len(np.unique(self.patients)) < n:
            raise InputError(
                "records: a patient has several stays",
                expected="one each, where the schema names no column of stays",
                fix="give the schema a `stay` column, by which patients stay one unit",
            )
        back = (np.diff(self.times) < 0) & (np.diff(self.stay_of_row) == 0)
        if back.any() or not np.isfinite(self.times).all():
            raise InputError("records: times of a stay decrease or are not finite")

    def __len__(self) -> int:
        """The number of stays."""
        return len(self.stays)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each stay."""
        return np.diff(self.offsets)

    @property
    def stay_of_row(self) -> NDArray[np.int64]:
        """Which stay each row belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def step_of_row(self) -> NDArray[np.int64]:
        """The place of each row in its stay, from 0."""
        return np.arange(len(self.times)) - np.repeat(self.offsets[:-1], self.lengths)

    @property
    def gaps(self) -> Floats:
        """Time of each row since the one before; of a stay's first row, since its start."""
        first = self.step_of_row == 0
        before = np.concatenate([[0.0], self.times[:-1]]) if len(self.times) else self.times
        return self.times - np.where(first, 0.0, before)

    @property
    def patient_of_stay(self) -> NDArray[np.int64]:
        """Patients numbered from 0 without gaps."""
        return np.unique(self.patients, return_inverse=True)[1].astype(np.int64)

    def part(self, chosen: NDArray[np.generic] | Sequence[int] | slice) -> "PatientRecords":
        """Some stays, by place, by a mask or by a slice, in the given order."""
        if not isinstance(chosen, slice):
            chosen = np.asarray(chosen) if len(chosen) else slice(0)
        places = np.arange(len(self))[chosen]
        lengths = self.lengths[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        rows = np.repeat(self.offsets[:-1][places], lengths) + within
        return PatientRecords(
            schema=self.schema,
            patients=self.patients[places],
            stays=self.stays[places],
            starts=None if self.starts is None else self.starts[places],
            static=self.static[places],
            outcomes=self.outcomes[places],
            offsets=offsets,
            times=self.times[rows],
            values=self.values[rows],
        )

    def first_steps(self, most: int) -> "PatientRecords":
        """The first rows of every stay, `most` at the most."""
        keep = self.step_of_row < most
        lengths = np.minimum(self.lengths, most)
        return PatientRecords(
            schema=self.schema,
            patients=self.patients,
            stays=self.stays,
            starts=self.starts,
            static=self.static,
            outcomes=self.outcomes,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            times=self.times[keep],
            values=self.values[keep],
        )
