"""What training costs a phone: by mode, beside what FLSys measured, and by its user's policies.

The first table is FLSys's round (650 records, five times) in one mode. Virtual phones reproduce it
by construction: their speeds and charges are literals of that table. The second follows from the
policies: 100 drawn phones, a week, a round a day that begins at midnight and lasts 24 hours.

    python benchmarks/federation_phones.py
"""

import argparse
import json
import math
import platform
from pathlib import Path
from statistics import median

from privet.federation.phone.conditions import Mode
from privet.federation.phone.energy import PIXEL_3, PIXEL_3A, RECORDS_OF_A_ROUND, Profile
from privet.federation.phone.policies import Policies
from privet.federation.phone.virtual import Traced
from privet.federation.traces import DAY, Phone, drawn

BATCH = 64
PHONES, DAYS, LOOK = 100, 7, 600.0
MEASURED = {  # FLSys, Table 4.7, HAR: minutes, and mAh of a round
    "Pixel 3a": {"foreground": 1.23, "charger": 3.94, "battery": 85.82, "mAh": 9.72},
    "Pixel 3": {"foreground": 0.70, "charger": 3.58, "battery": 79.96, "mAh": 3.79},
}
POLICIES = {
    "charger and free network": Policies(),
    "on battery too, above 30 %": Policies(only_charging=False, only_unmetered=False),
    "on battery too, above 80 %": Policies(
        only_charging=False, only_unmetered=False, least_battery=0.8
    ),
}


def round_in(profile: Profile, mode: Mode) -> dict[str, float | None]:
    """One round, batch by batch: minutes, mAh, and rounds until the battery is empty."""
    phone = Traced(
        Phone(
            stretches=((0.0, math.inf),) if mode is Mode.CHARGER else (),
            speed=profile.speed(Mode.CHARGER),
        ),
        profile=profile,
        foreground=mode is Mode.FOREGROUND,
    )
    seconds = 0.0
    for first in range(0, RECORDS_OF_A_ROUND, BATCH):
        seconds += phone.spend(min(BATCH, RECORDS_OF_A_ROUND - first), phone.at(0.0).mode)
    spent = (1.0 - phone.battery.left) * profile.capacity
    return {
        "minutes": round(seconds / 60, 2),
        "mAh": round(spent, 2),
        "rounds_of_a_battery": round(profile.capacity / spent) if spent else None,
    }


def trained(phone: Traced, policies: Policies, begin: float, end: float) -> tuple[float, float]:
    """One round: hours until it is done (infinite: never), and the share of the battery it took."""
    now, left, spent = begin, RECORDS_OF_A_ROUND, 0.0
    while left > 0 and now < end:
        conditions = phone.at(now)
        if not (policies.goes_on(conditions) and policies.downloads(conditions)):
            now = min(phone.next_change(now), now + LOOK)
            continue
        records, before = min(BATCH, left), phone.battery.left
        now += phone.spend(records, conditions.mode)
        spent += before - phone.battery.left
        left -= records
    return ((now - begin) / 3600 if left <= 0 else math.inf), spent


def week_under(policies: Policies) -> dict[str, float]:
    """All phones, a round a day."""
    hours, spent = [], []
    for phone in drawn(PHONES, days=DAYS, seed=0):
        traced = Traced(phone, profile=PIXEL_3A)
        for day in range(DAYS):
            took, share = trained(traced, policies, day * DAY, (day + 1) * DAY)
            hours.append(took)
            spent.append(share)
    done = [took for took in hours if took < math.inf]
    return {
        "rounds_done_share": round(len(done) / len(hours), 3),
        "median_hours_until_done": round(median(done), 2),
        "battery_share_of_a_round": round(sum(spent) / len(spent), 5),
    }


def main() -> None:
    """Print and write both tables."""
    parser = argparse.ArgumentParser()
    out = Path("benchmarks/results/federation_phones.json")
    parser.add_argument("--out", type=Path, default=out)
    record = {
        "command": "python benchmarks/federation_phones.py",
        "python": platform.python_version(),
        "modes": {
            profile.name: {mode.value: round_in(profile, mode) for mode in Mode}
            for profile in (PIXEL_3A, PIXEL_3)
        },
        "measured_by_FLSys": MEASURED,
        "week": {name: week_under(policies) for name, policies in POLICIES.items()},
        "phones": PHONES,
        "seed": 0,
    }
    parser.parse_args().out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
