"""How a model stands, for console and terminal; for the operator's eyes, not for release."""

import math
from collections import Counter
from functools import lru_cache
from statistics import median_high
from typing import Any

from privet.federation.pacing import Cohort
from privet.federation.server.fleet_ledger import DEVICE
from privet.federation.server.served import ServedModel
from privet.guarantee import Basis
from privet.privacy.accounting import COARSE_INTERVAL, epsilon_of
from privet.privacy.participation import Capped, Sampled, adjacencies


def standing(model: ServedModel, *, now: float, tickets_out: int) -> dict[str, Any]:
    """All of it, as JSON has it.

    round, rounds, opened, deadline (seconds of the model's clock, None: none), now, epoch, version,
    state ('open', 'closed' between rounds, 'stopped' by the operator, 'over'), waiting_updates,
    least (that a step needs), asked (how many devices, where the server chooses and has chosen),
    tickets_out, accepted, refused (by reason), history (of rounds), reports (by version),
    devices_that_took_part, plan, privacy (None: none).
    """
    coordinator, counts = model.coordinator, model.state.counts(model.name)
    with model.lock:
        deadline = coordinator.deadline
        facts = {
            "model": model.name,
            "state": _state(model),
            "round": coordinator.round,
            "rounds": coordinator.rounds,
            "version": coordinator.version,
            "opened": coordinator.opened,
            "deadline": deadline if math.isfinite(deadline) else None,
            "waiting_updates": coordinator.count,
            "least": getattr(coordinator.rule.pacing, "least", None)
            or getattr(coordinator.rule.pacing, "size", None),
            "asked": None if coordinator.asked is None else len(coordinator.asked),
            "devices_that_took_part": len(coordinator.times),
            "rolled_back": coordinator.rolled_back,
        }
        sums, times = coordinator.sums, Counter(coordinator.times.values())
    return facts | {
        "privacy": _privacy(model, sums, times),
        "rule": model.plan.settings.rule,
        "now": now,
        "epoch": model.epoch,
        "weights": model.size,
        "cohort": isinstance(coordinator.rule.pacing, Cohort),
        "plan": model.plan.digest,
        "tickets_out": tickets_out,
        "accepted": counts.get(("accepted", ""), 0),
        "refused": {reason: n for (what, reason), n in counts.items() if what == "refused"},
        "history": [
            {
                "round": row.round,
                "at": row.at,
                "how": row.how,
                "updates": row.updates,
                "version": row.version,
                "staleness": row.staleness,
            }
            for row in model.state.rounds(model.name)
        ],
        "reports": [
            {
                "version": row.version,
                "devices": row.devices,
                "tried": row.tried,
                "right": row.right,
            }
            for row in model.state.reports(model.name)
        ],
    }


def _state(model: ServedModel) -> str:
    if model.coordinator.stopped:
        return "over"
    if model.stopped:
        return "stopped"
    return "open" if model.settled else "closed"


@lru_cache(maxsize=256)
def _spent(part: Capped | Sampled, turns: int, multiplier: float, delta: float) -> float:
    return epsilon_of(part.event_of(multiplier, turns), delta, interval=COARSE_INTERVAL)


def _privacy(model: ServedModel, sums: int, times: Counter[int]) -> dict[str, Any] | None:
    """What a device may have spent at most by now, and what it may spend in all.

    `times`: how many devices took part so often. Not under the model's lock: epsilon takes a while.
    """
    privacy = model.plan.privacy
    if privacy is None:
        return None
    part, settings = privacy.participation, model.plan.settings
    spent = 0.0
    if sums:
        spent = _spent(part, 1 + part.turn_of(sums - 1), privacy.multiplier, settings.delta)
    by_clock = model.plan.rule.pacing.by_clock
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "spent_at_most": spent,
        "basis": Basis.PROVED if model.keys.randomness.secret else "withheld",
        "unit": DEVICE,
        "neighbours": adjacencies(by_clock=by_clock)[0],
        "multiplier": privacy.multiplier,
        "clip": privacy.clip,
        "participation": part.sampler,
        "times": part.times if isinstance(part, Capped) else None,
        "devices_by_times": {str(n): times[n] for n in sorted(times)},
        "spent_by_device": _of_devices(part, times, privacy.multiplier, settings.delta),
    }


def _of_devices(
    part: Capped | Sampled, times: Counter[int], multiplier: float, delta: float
) -> dict[str, float] | None:
    """Epsilon of those that took part: the median (the upper one) and the most; zero-out.

    None: nobody did, or all spend alike, whether they were asked or not.
    """
    if not times or not isinstance(part, Capped):
        return None
    by_times = {"median": median_high(times.elements()), "most": max(times)}
    return {name: _spent(part, n, multiplier, delta) for name, n in by_times.items()}
