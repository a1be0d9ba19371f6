"""Records as padded tensors and back, exactly: what a network reads and writes."""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.data.records.records import PatientRecords
from privet.data.records.schema import Schema
from privet.errors import InputError


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RecordTensors:
    """Stays of one length in double precision; what is absent or missing is 0.

    Attributes:
        schema: the public facts.
        values: (stays, steps, temporal columns).
        mask: (stays, steps, temporal columns), true where measured.
        times: (stays, steps), since the stay's start.
        present: (stays, steps), true for the stay's rows: the first ones.
        static, outcomes: (stays, columns); missing ones are NaN.
        patients, stays, starts: as in `PatientRecords`.
    """

    schema: Schema
    values: Tensor
    mask: Tensor
    times: Tensor
    present: Tensor
    static: Tensor
    outcomes: Tensor
    patients: NDArray[np.str_]
    stays: NDArray[np.str_]
    starts: NDArray[np.datetime64] | None = field(default=None)

    def __len__(self) -> int:
        """The number of stays."""
        return len(self.values)


def to_tensors(records: PatientRecords, max_steps: int | None = None) -> RecordTensors:
    """The first `max_steps` rows of every stay (all, if None), padded at the end."""
    if max_steps is not None:
        records = records.first_steps(max_steps)
    n, columns = len(records), len(records.schema.temporal)
    steps = int(records.lengths.max(initial=0)) if max_steps is None else max_steps
    present = np.arange(steps) < records.lengths[:, None]
    values, times = np.zeros((n, steps, columns)), np.zeros((n, steps))
    mask = np.zeros((n, steps, columns), dtype=bool)
    known = ~np.isnan(records.values)
    values[present] = np.where(known, records.values, 0.0)
    mask[present], times[present] = known, records.times
    return RecordTensors(
        schema=records.schema,
        values=torch.from_numpy(values),
        mask=torch.from_numpy(mask),
        times=torch.from_numpy(times),
        present=torch.from_numpy(present),
        static=torch.from_numpy(records.static.copy()),
        outcomes=torch.from_numpy(records.outcomes.copy()),
        patients=records.patients,
        stays=records.stays,
        starts=records.starts,
    )


def from_tensors(tensors: RecordTensors) -> PatientRecords:
    """The records of `to_tensors`, exactly."""
    present = tensors.present.cpu().numpy()
    if (np.diff(present.astype(np.int8), axis=1) > 0).any():
        raise InputError("tensors: rows after an absent one", expected="a stay's rows first")
    values = tensors.values.double().cpu().numpy()[present]
    measured = tensors.mask.cpu().numpy()[present]
    return PatientRecords(
        schema=tensors.schema,
        patients=tensors.patients,
        stays=tensors.stays,
        starts=tensors.starts,
        static=tensors.static.double().cpu().numpy(),
        outcomes=tensors.outcomes.double().cpu().numpy(),
        offsets=np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int64),
        times=tensors.times.double().cpu().numpy()[present],
        values=np.where(measured, values, np.nan),
    )
