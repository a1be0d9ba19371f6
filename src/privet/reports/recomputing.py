"""The curves of a card, recomputed from the events that it records."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import dp_accounting as dp
import numpy as np

from privet.guarantee import Privacy, strongest_proved
from privet.privacy.accounting import (
    COARSE_INTERVAL,
    DpEvent,
    accountant_for,
    epsilon_of,
    pure_epsilon,
    tradeoff_of,
)
from privet.privacy.events import LIFELONG, from_json, of_several_lifetimes
from privet.privacy.participation import FEDERATED, participation_of
from privet.privacy.sampling import sampler_of
from privet.reports.curves import Curves

POINTS: Final = 20


def curves_of(trust: Mapping[str, Any]) -> Curves:
    """The plots' data; empty where epsilon is withheld.

    Where public facts were learned first, the mechanisms were not fixed beforehand: only epsilons
    may be added then, so there is no joint trade-off curve to draw. The best of several runs has
    only one epsilon. Of a stream whose tasks differ the event is that of some units, and holds for
    all at one delta; and its steps are not those of one run.
    """
    stated = strongest_proved(Privacy.from_json(record) for record in trust["privacy"])
    if stated is None or of_several_lifetimes(trust):
        return Curves()
    training_event = from_json(trust["events"][-1]["event"])
    if accountant_for(training_event) != "pld":
        return Curves()
    facts = trust["data"].get("learned", [])
    # Facts that were learned for a part which is counted here follow those of the data.
    for_parts = [from_json(entry["event"]) for entry in trust["events"][len(facts) : -1]]
    learned = sum(fact["epsilon"] for fact in facts) + sum(map(pure_epsilon, for_parts))
    by_step = (
        ()
        if LIFELONG in trust
        else _epsilon_by_step(trust["mechanism"], stated, learned, training_event)
    )
    if learned:
        return Curves(epsilon_by_step=by_step)
    training = tradeoff_of(training_event, stated.adjacency)
    epsilons = np.linspace(0.0, 2.0 * stated.epsilon, 60)
    rates = np.unique(np.concatenate([np.logspace(-4, 0, 81), np.linspace(0, 1, 101), [0.01]]))
    return Curves(
        epsilon_by_step=by_step,
        profile=tuple((float(e), training.delta(float(e))) for e in epsilons),
        tradeoff=tuple((float(a), training.beta(float(a))) for a in rates),
    )


def _epsilon_by_step(
    mechanism: Mapping[str, Any], stated: Privacy, before: float, whole: DpEvent
) -> tuple[tuple[int, float], ...]:
    """A part that is counted here was there before the first step."""
    turns, stride, spent = _course(mechanism)
    parts = whole.events[:-1] if isinstance(whole, dp.ComposedDpEvent) else []
    total = turns + mechanism["redone_steps"]
    return tuple(
        (
            turn * stride,
            before + epsilon_of(event, stated.delta, stated.adjacency, interval=COARSE_INTERVAL),
        )
        for turn in sorted({max(1, round(total * i / POINTS)) for i in range(1, POINTS + 1)})
        for run in [spent(turn)]
        for event in [dp.ComposedDpEvent([*parts, run]) if parts else run]
    )


def _course(mechanism: Mapping[str, Any]) -> tuple[int, int, Callable[[int], DpEvent]]:
    """How many turns there are, the steps from one to the next, and what so many turns cost."""
    noise = mechanism["noise_multiplier"]
    if mechanism["sampler"] in FEDERATED:
        part = participation_of(mechanism)
        return part.turns, part.apart, partial(part.event_of, noise)
    sampler = sampler_of(mechanism)
    return sampler.turns(mechanism["steps"]), sampler.cycle, partial(sampler.event, noise)
