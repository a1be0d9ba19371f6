"""Phones made of traces: modes, energy, the battery, and many phones on one clock."""

import threading

import pytest

from privet.errors import InputError
from privet.federation.phone.clock import FastClock
from privet.federation.phone.conditions import Mode, Network
from privet.federation.phone.energy import (
    PIXEL_3,
    PIXEL_3A,
    RECORDS_OF_A_ROUND,
    Battery,
)
from privet.federation.phone.fleet import Fleet
from privet.federation.phone.virtual import Traced
from privet.federation.traces import Phone

MEASURED = [  # FLSys, Table 4.7: minutes in front, on the charger, on battery; mAh; rounds
    (PIXEL_3A, (1.23, 3.94, 85.82), 9.72, 308),
    (PIXEL_3, (0.70, 3.58, 79.96), 3.79, 769),
]


@pytest.mark.parametrize(("profile", "minutes", "charge", "rounds"), MEASURED)
def test_a_round_takes_what_was_measured(profile, minutes, charge, rounds):
    phone = Traced(Phone(speed=profile.speed(Mode.CHARGER)), profile=profile)
    taken = [phone.seconds_for(RECORDS_OF_A_ROUND, mode) / 60 for mode in Mode]
    assert taken == pytest.approx(minutes)
    share = profile.share_of_battery(RECORDS_OF_A_ROUND, Mode.BATTERY)
    assert share * profile.capacity == pytest.approx(charge)
    assert round(profile.rounds_of_a_battery()) == pytest.approx(rounds, abs=1)


def test_a_slower_phone_is_slower_in_every_mode():
    profile = PIXEL_3A.at_speed(PIXEL_3A.speed(Mode.CHARGER) / 2)
    for mode in Mode:
        assert profile.speed(mode) == pytest.approx(PIXEL_3A.speed(mode) / 2)


def test_the_trace_decides_charger_and_network():
    phone = Traced(Phone(stretches=((10.0, 20.0), (30.0, 40.0))))
    seen = [(now, phone.at(now).charging, phone.at(now).network) for now in (5.0, 10.0, 20.0, 35.0)]
    assert seen == [
        (5.0, False, Network.METERED),
        (10.0, True, Network.UNMETERED),
        (20.0, False, Network.METERED),
        (35.0, True, Network.UNMETERED),
    ]
    assert [phone.next_change(now) for now in (0.0, 10.0, 25.0, 40.0)] == [
        10.0,
        20.0,
        30.0,
        float("inf"),
    ]


def test_the_battery_goes_by_the_stretches_that_passed():
    """24 h idle are half of it; an hour of charging half of what there is to fill."""
    day = 86_400.0
    phone = Traced(Phone(stretches=((day, day + 1800.0),)))
    assert phone.at(day - 1e-6).battery == pytest.approx(0.5, abs=1e-6)
    assert phone.at(day + 1800.0).battery == pytest.approx(0.75, abs=1e-6)


def test_training_is_paid_by_the_battery_and_not_by_the_charger():
    phone = Traced(Phone(stretches=(), speed=14.0), battery=0.5)
    phone.spend(RECORDS_OF_A_ROUND, Mode.CHARGER)
    assert phone.battery.left == 0.5
    phone.spend(RECORDS_OF_A_ROUND, Mode.BATTERY)
    assert phone.battery.left == pytest.approx(0.5 - 9.72 / 3000)


def test_a_battery_is_never_below_empty_or_above_full():
    battery = Battery(0.01)
    battery.pay(1.0)
    assert battery.left == 0.0
    battery.pass_by(1e9, charging=True)
    assert battery.left == 1.0


def test_a_fast_clock_is_found_again_where_it_would_stand(tmp_path):
    clock = FastClock.kept_in(tmp_path, speedup=60.0)
    again = FastClock.kept_in(tmp_path, speedup=60.0)
    assert again.began == clock.began
    assert clock.of_wall(2.0) == 120.0
    with pytest.raises(InputError, match="another speed"):
        FastClock.kept_in(tmp_path, speedup=61.0)


class _Scripted:
    """A phone that writes down when it was called."""

    def __init__(self, name, moments, log):
        self.name, self.moments, self.log = name, list(moments), log

    def act(self, now):
        self.log.append(self.name)
        return self.moments.pop(0)


def test_a_fleet_calls_whoever_is_due_first():
    log = []
    clock = FastClock(speedup=1e9, began=0.0)
    now = clock.now()
    phones = [
        _Scripted("a", [now + 3e7, now + 9e7], log),
        _Scripted("b", [now + 6e7, now + 7e7], log),
    ]
    fleet = Fleet(phones, clock, enough=lambda phone: not phone.moments)
    assert fleet.run(threading.Event())
    assert log == ["a", "b", "a", "b"]


def test_a_fleet_that_is_stopped_calls_nobody():
    stop, log = threading.Event(), []
    stop.set()
    assert not Fleet([_Scripted("a", [0.0], log)], FastClock()).run(stop)
    assert log == []
