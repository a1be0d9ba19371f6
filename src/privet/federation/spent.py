"""What clients have spent, seen from both sides: as they took part, and had a server sampled.

Only the figure for what happened is a guarantee. The other one says what self-selection costs, or
what sampling gains: the same noise, the same rounds.
"""

from typing import Any

import numpy as np

from privet.federation.coordinator import Coordinator
from privet.federation.user_privacy import UserPrivacy
from privet.privacy.accounting import epsilon_of
from privet.privacy.participation import Capped, Sampled


def both_ways(
    privacy: UserPrivacy, *, rounds: int, population: int, delta: float
) -> dict[str, float]:
    """Epsilon under either kind of participation, at this noise; `rate`: of the server's coins."""
    happened = privacy.participation
    rate = min(1.0, privacy.divisor / population)
    if isinstance(happened, Capped):
        ways = (happened, Sampled(rate=rate, steps=rounds))
    else:
        ways = (Capped(times=rounds), happened)
    spent = {way.sampler: epsilon_of(way.event(privacy.multiplier), delta) for way in ways}
    return {**spent, "rate": happened.rate if isinstance(happened, Sampled) else rate}


def spent_by_clients(coordinator: Coordinator, *, clients: int, delta: float) -> dict[str, Any]:
    """How much single clients spent that selected themselves; for the curator's eyes."""
    privacy = coordinator.privacy
    if privacy is None or not isinstance(privacy.participation, Capped):
        return {}
    spent = list(privacy.odometer(delta, coordinator.times).values())
    spent += [0.0] * (clients - len(spent))
    return {
        "least": float(np.min(spent)),
        "median": float(np.median(spent)),
        "most": float(np.max(spent)),
    }
