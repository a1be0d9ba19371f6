"""What a phone does under which conditions, line by line."""

import pytest

from privet.errors import InputError
from privet.federation.phone.conditions import Conditions, Mode, Network
from privet.federation.phone.policies import Policies, Waiting, order_of

BEST = Conditions()
UNPLUGGED = Conditions(charging=False, battery=0.5)
EMPTY = Conditions(charging=False, battery=0.29)
IN_USE = Conditions(idle=False)
HOT = Conditions(hot=True)
METERED = Conditions(network=Network.METERED)
OFFLINE = Conditions(network=Network.NONE)

USUAL = Policies()
ON_BATTERY = Policies(only_charging=False)
ANY_NETWORK = Policies(only_unmetered=False)
WHEN_IDLE = Policies(only_idle=True)


@pytest.mark.parametrize(
    ("policies", "now", "trains", "talks"),
    [
        (USUAL, BEST, True, True),
        (USUAL, UNPLUGGED, False, True),
        (USUAL, EMPTY, False, True),
        (USUAL, IN_USE, True, True),
        (USUAL, HOT, False, True),
        (USUAL, METERED, True, False),
        (USUAL, OFFLINE, True, False),
        (ON_BATTERY, UNPLUGGED, True, True),
        (ON_BATTERY, EMPTY, False, True),
        (ON_BATTERY, Conditions(battery=0.0), True, True),
        (ON_BATTERY, Conditions(charging=False, battery=0.3), True, True),
        (ANY_NETWORK, METERED, True, True),
        (ANY_NETWORK, OFFLINE, True, False),
        (WHEN_IDLE, IN_USE, False, True),
        (WHEN_IDLE, BEST, True, True),
    ],
)
def test_the_table(policies, now, trains, talks):
    assert policies.goes_on(now) is trains
    assert policies.uploads(now) is talks
    assert policies.downloads(now) is talks
    assert policies.ready(now, records=10, asked_for=1) is (trains and talks)


@pytest.mark.parametrize(
    ("own", "asked_for", "records", "ready"),
    [
        (1, 1, 0, False),
        (1, 1, 1, True),
        (1, 20, 19, False),
        (30, 20, 29, False),
        (30, 20, 30, True),
    ],
)
def test_the_amount_of_data(own, asked_for, records, ready):
    policies = Policies(least_records=own)
    assert policies.ready(BEST, records=records, asked_for=asked_for) is ready


def test_a_training_begins_only_if_it_can_end_in_time():
    assert USUAL.starts(seconds_left=125.0, expected=100.0)
    assert not USUAL.starts(seconds_left=124.9, expected=100.0)


def test_sensors_save_on_a_low_battery_or_by_wish():
    assert not USUAL.saves(UNPLUGGED)
    assert USUAL.saves(EMPTY)
    assert USUAL.saves(Conditions(saver=True))


def test_models_are_trained_in_the_order_of_use_then_deadline_then_time():
    def waiting(model, uses, deadline, took):
        return Waiting(model=model, uses=uses, deadline=deadline, took=took)

    models = [
        waiting("slow", 1, 50.0, 9.0),
        waiting("quick", 1, 50.0, 2.0),
        waiting("late", 1, 60.0, 1.0),
        waiting("used", 5, 90.0, 99.0),
    ]
    assert [one.model for one in order_of(models)] == ["used", "quick", "slow", "late"]


@pytest.mark.parametrize(
    ("now", "mode"),
    [
        (Conditions(foreground=True, charging=False), Mode.FOREGROUND),
        (BEST, Mode.CHARGER),
        (UNPLUGGED, Mode.BATTERY),
    ],
)
def test_modes(now, mode):
    assert now.mode is mode


@pytest.mark.parametrize(
    "bad", [{"least_battery": 1.5}, {"least_records": 0}, {"margin": 0.9}, {"margin": float("nan")}]
)
def test_bad_policies_are_refused(bad):
    with pytest.raises(InputError):
        Policies(**bad)
