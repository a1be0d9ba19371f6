"""Patients set aside: by their own id, whoever else is there."""

import numpy as np
import pytest

from privet.data.records.parts import parted
from privet.data.records.simulator import simulate
from privet.errors import InputError


def test_patients_are_on_one_side_with_all_their_stays():
    records = simulate(800)
    train, aside = parted(records, 0.25)
    assert len(train) + len(aside) == len(records)
    assert not set(train.patients) & set(aside.patients)
    assert 0.19 < len(np.unique(aside.patients)) / 800 < 0.31
    assert train.schema.nominal_size == 600
    assert aside.schema.nominal_size == 800


def test_whether_a_patient_is_set_aside_hangs_on_nobody_else():
    records = simulate(300)
    without = records.part(records.patients != records.patients[7])
    before = set(parted(records, 0.3)[1].patients) - {records.patients[7]}
    assert set(parted(without, 0.3)[1].patients) == before


def test_nothing_is_set_aside_unless_asked():
    records = simulate(50)
    train, aside = parted(records, 0.0)
    assert (len(train), len(aside)) == (len(records), 0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_bad_shares_are_refused(share):
    with pytest.raises(InputError, match="holdout"):
        parted(simulate(10), share)
