"""How many steps a task gets."""

import pytest

from privet.errors import InputError
from privet.lifelong.published.schedules import steps_of

SIGNALS = (7_553, 621, 881, 156_033)  # records at 5, 10, 20, 50 Hz


def test_the_schedules_of_the_thesis():
    batches = (62, 5, 7, 1_300)
    assert steps_of("basic", SIGNALS, 120) == batches
    assert steps_of("basic", SIGNALS, 120, epochs=3) == batches, "one epoch, whatever else is said"
    assert steps_of("uniform", SIGNALS, 120, epochs=5) == tuple(5 * n for n in batches)
    assert steps_of("heterogeneous", SIGNALS, 120) == (310, 25, 35, 1_300)
    assert steps_of("heterogeneous", (99, 100, 1_000), 1) == (495, 100, 1_000), "below a tenth"


def test_own_epochs_for_each_task():
    assert steps_of("heterogeneous", (24, 48), 12, epochs=(3, 1)) == (6, 4)
    with pytest.raises(InputError, match="as many numbers of epochs as tasks"):
        steps_of("heterogeneous", (24, 48), 12, epochs=(3, 1, 1))
    with pytest.raises(InputError, match="goes with the heterogeneous"):
        steps_of("uniform", (24, 48), 12, epochs=(3, 1))
    with pytest.raises(InputError, match="goes with the heterogeneous"):
        steps_of("heterogeneous", (24, 48), 12, epochs=3)


def test_balanced_tasks_share_the_steps_equally():
    assert steps_of("balanced", SIGNALS, 120) == (344,) * 4  # 1,374 steps in all
    assert steps_of("balanced", SIGNALS, 120, steps=9) == (9,) * 4
