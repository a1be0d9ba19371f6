"""The curves of a card, recomputed from the events that it records."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from privet.guarantee import Privacy, strongest_proved
from privet.privacy.accounting import COARSE_INTERVAL, epsilon_of, sampled_gaussian, tradeoff_of
from privet.privacy.events import from_json
from privet.reports.curves import Curves

POINTS: Final = 20


def curves_of(trust: Mapping[str, Any]) -> Curves:
    """The plots' data; empty where epsilon is withheld.

    Where public facts were learned first, the mechanisms were not fixed beforehand: only epsilons
    may be added then, so there is no joint trade-off curve to draw.
    """
    stated = strongest_proved(Privacy.from_json(record) for record in trust["privacy"])
    if stated is None:
        return Curves()
    learned = sum(fact["epsilon"] for fact in trust["data"].get("learned", []))
    by_step = _epsilon_by_step(trust["mechanism"], stated.delta, learned)
    if learned:
        return Curves(epsilon_by_step=by_step)
    training = tradeoff_of(from_json(trust["events"][-1]["event"]))
    epsilons = np.linspace(0.0, 2.0 * stated.epsilon, 60)
    rates = np.unique(np.concatenate([np.logspace(-4, 0, 81), np.linspace(0, 1, 101), [0.01]]))
    return Curves(
        epsilon_by_step=by_step,
        profile=tuple((float(e), training.delta(float(e))) for e in epsilons),
        tradeoff=tuple((float(a), training.beta(float(a))) for a in rates),
    )


def _epsilon_by_step(
    mechanism: Mapping[str, Any], delta: float, before: float
) -> tuple[tuple[int, float], ...]:
    total = mechanism["steps"] + mechanism["redone_steps"]
    steps = sorted({max(1, round(total * i / POINTS)) for i in range(1, POINTS + 1)})
    multiplier, rate = mechanism["noise_multiplier"], mechanism["sampling_rate"]
    return tuple(
        (step, before + epsilon_of(event, delta, interval=COARSE_INTERVAL))
        for step in steps
        for event in [sampled_gaussian(multiplier, rate, step)]
    )
