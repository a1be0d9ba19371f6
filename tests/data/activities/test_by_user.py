"""Examples of users as a data set: who is on which side, and who is known again."""

from dataclasses import replace

import numpy as np
import pytest

from privet.data.activities.by_user import (
    WHOLE_RANGE,
    About,
    Examples,
    dataset_of,
    in_ranges,
    present,
    within_users,
)
from privet.data.identity import enter_in_ledger, set_digest
from privet.errors import InputError
from privet.ledger import Ledger

ABOUT = About(
    name="study",
    classes=("walk", "rest"),
    bounds=WHOLE_RANGE,
    users=tuple(range(1, 9)),
    test_users=(4, 8),
    licence="none",
    source="made up",
)


def examples(users, seed=0):
    rng = np.random.default_rng(seed)
    users = np.array(users)
    x = rng.normal(0, 1, (len(users), 1, 3, 5)).astype(np.float32)
    return Examples(x=x, y=np.arange(len(users)) % 2, users=users)


def test_users_are_units_and_on_one_side():
    made = examples([1, 1, 4, 2, 3, 3, 8, 2, 1, 8])
    data = dataset_of(made, ABOUT, name="s")
    assert data.train.units.tolist() == [0, 0, 1, 2, 2, 1, 0]
    assert data.test.units.tolist() == [0, 1, 1]
    assert (data.unit, data.nominal_size, data.test_is_public) == ("user", 6, True)
    assert present(made, ABOUT.train_users).tolist() == [1, 2, 3]


def test_the_size_is_declared_and_one_user_more_moves_no_other():
    few = dataset_of(examples([1, 1, 2, 4, 4]), ABOUT, name="s")
    more = dataset_of(examples([1, 1, 2, 4, 4, 3, 7, 7]), ABOUT, name="s")
    assert few.nominal_size == more.nominal_size == 6
    assert np.array_equal(few.train.x, more.train.x[:3])
    assert np.array_equal(few.test.x, more.test.x)


def test_values_are_within_the_bounds():
    data = dataset_of(examples([1, 2, 3, 4] * 20), ABOUT, name="s")
    assert (data.train.x.min(), data.train.x.max()) == (-1.0, 1.0)
    signal = np.array([[1.0, -9.0], [-4.0, 2.0]])
    assert in_ranges(signal, (2.0, 8.0)).tolist() == [[0.5, -1.0], [-1.0, 0.25]]


def test_a_user_is_known_again_whatever_was_measured(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    made = {
        "slow": dataset_of(examples([1, 1, 2, 4], 0), ABOUT, name="slow", users=(1, 2)),
        "fast": dataset_of(examples([2, 2, 3, 4], 1), ABOUT, name="fast", users=(2, 3)),
        "others": dataset_of(examples([5, 6, 4], 2), ABOUT, name="others", users=(5, 6)),
        "elsewhere": dataset_of(
            examples([1, 2, 4], 3), replace(ABOUT, name="else"), name="elsewhere", users=(1, 2)
        ),
    }
    for data in made.values():
        enter_in_ledger(data, ledger)
    assert ledger.account("slow").related == ("fast",)
    assert ledger.account("others").related == ledger.account("elsewhere").related == ()
    assert set_digest(made["slow"], b"k" * 32) != set_digest(made["fast"], b"k" * 32)
    ledger.close()


def test_strangers_and_straddlers_are_refused():
    with pytest.raises(InputError, match=r"none of the study's.*1\.\.8"):
        dataset_of(examples([1, 2, 9, 4]), ABOUT, name="s")
    with pytest.raises(InputError, match="both for training and for testing"):
        dataset_of(examples([1, 2, 4]), ABOUT, name="s", users=(1, 4))


def test_within_users_everybody_is_on_both_sides_and_figures_stay_inside(tmp_path):
    train, test = examples([1, 4, 4, 8, 2]), examples([4, 1, 8], seed=1)
    data = within_users(train, test, ABOUT, name="s")
    assert data.train.units.tolist() == [0, 2, 2, 3, 1]
    assert data.test.units.tolist() == [1, 0, 2]
    assert (data.nominal_size, data.unit, data.test_is_public) == (8, "user", False)
    ledger = Ledger(tmp_path / "ledger.db")
    enter_in_ledger(data, ledger)
    enter_in_ledger(dataset_of(examples([1, 2, 4]), ABOUT, name="s/new-users"), ledger)
    assert ledger.account("s").related == ("s/new-users",)
    ledger.close()
    with pytest.raises(InputError, match="none of the study's"):
        within_users(train, examples([9, 1, 2]), ABOUT, name="s")
