"""What a release says that was learned by a federation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import dp_accounting as dp

from privet.data.dataset import LearnedFact
from privet.engine.assumptions import assumptions_of
from privet.engine.handover import (
    KNOWN_NOISE,
    accuracy_figures,
    data_facts,
    provenance,
    release_config,
)
from privet.federation.coordinator import Coordinator
from privet.federation.running import Federation
from privet.federation.settings import FederationSettings
from privet.federation.user_privacy import UserPrivacy
from privet.guarantee import Basis, Privacy
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent, total_accountant, total_epsilon
from privet.privacy.events import to_json
from privet.privacy.participation import FEDERATION, adjacencies
from privet.release import CUSTOM, Release
from privet.training.recipes import tuning_of

NO_PRIVACY: Final = (
    "trained without privacy: the weights may reveal any record that they were trained on"
)


def stated(federation: Federation, *, ledger: Ledger, run_id: str, secret: bool) -> Release:
    """The release with its card; without an epsilon where the noise is not secret."""
    data, settings, privacy = federation.data, federation.settings, federation.privacy
    assert settings.model is not None
    events, config = events_for(data.learned, privacy), settings.on_card()
    trust: dict[str, Any] = {
        "format": "privet-trust/1",
        "method": settings.rule,
        "analysis": "none" if privacy is None else "sound",
        "data": data_facts(data),
        "privacy": [],
        "withheld": withheld(privacy, secret=secret),
        "tuning": tuning_of(None, data.name, config).to_json(),
        "mechanism": mechanism_of(settings, privacy, steps_run=federation.next_step),
        FEDERATION: facts_of(settings, federation.simulator.coordinator),
        "events": [{"label": label, "event": to_json(event)} for label, event in events],
        "robustness": [],
        "attacks": [],
        "audit": [],
        "utility": {},
        "provenance": provenance(
            data,
            federation.model,
            ledger=ledger,
            run_id=run_id,
            init_seed=None if settings.model == CUSTOM else settings.init_seed,
            config=config,
        ),
    }
    if privacy is not None and secret:
        proved = guarantees(trust, [event for _, event in events], settings.delta)
        trust["privacy"] = [guarantee.to_json() for guarantee in proved]
    release = Release(
        model=federation.released_model(),
        config=release_config(data, settings.model),
        trust=trust,
    )
    if data.test_is_public:
        trust["utility"] = accuracy_figures(release, data)
    return release


def withheld(privacy: UserPrivacy | None, *, secret: bool) -> list[str]:
    """Why no epsilon is stated, if none is."""
    if privacy is None:
        return [NO_PRIVACY]
    return [] if secret else [KNOWN_NOISE]


def mechanism_of(
    settings: FederationSettings, privacy: UserPrivacy | None, *, steps_run: int
) -> dict[str, Any]:
    """What the card says of the steps."""
    plain = {
        "steps": settings.rounds,
        "steps_run": steps_run,
        "precision": settings.precision,
        "contribution": 1,
    }
    if privacy is None:
        return {**plain, "batch": settings.batch, "noise": "none"}
    return {
        **plain,
        **privacy.participation.to_json(),
        "redone_steps": 0,
        "clip_norm": privacy.clip,
        "noise": "correlated" if len(privacy.bands) > 1 else "independent",
        "bands": list(privacy.bands) if len(privacy.bands) > 1 else [],
        "noise_multiplier": privacy.multiplier,
        "normaliser": privacy.divisor,
    }


def facts_of(settings: FederationSettings, coordinator: Coordinator) -> dict[str, Any]:
    """What the card says of rounds and clients."""
    facts = {
        "rule": settings.rule,
        "rounds": settings.rounds,
        "sums": coordinator.sums,
        "by_clock": coordinator.rule.pacing.by_clock,
        "made_up": settings.clients is not None,
        "pool": settings.public_pool if settings.pool else None,
        "trace_file": settings.reads_traces or None,
        "parameters_sent": coordinator.weights.numel(),
    }
    return {name: value for name, value in facts.items() if value is not None}


def events_for(
    learned: Sequence[LearnedFact], privacy: UserPrivacy | None
) -> list[tuple[str, DpEvent]]:
    """What happened to the data, each with its name."""
    before = [(f"learned: {fact.name}", dp.LaplaceDpEvent(1.0 / fact.epsilon)) for fact in learned]
    own = dp.NonPrivateDpEvent() if privacy is None else privacy.event
    return [*before, ("federate", own)]


def guarantees(trust: Mapping[str, Any], events: list[DpEvent], delta: float) -> list[Privacy]:
    """What is proved, for the neighbours that the proof is for."""
    return [
        Privacy(
            epsilon=total_epsilon(events, delta, adjacency),
            delta=delta,
            unit=trust["data"]["unit"],
            adjacency=adjacency,
            basis=Basis.PROVED,
            accountant=total_accountant(events),
            sampler=trust["mechanism"]["sampler"],
            assumptions=assumptions_of(trust),
        )
        for adjacency in adjacencies(by_clock=trust[FEDERATION]["by_clock"])
    ]


def rounds_of(federation: Federation) -> dict[str, Any]:
    """Accuracy by round and by the virtual clock; on test records, so as public as they are."""
    return {
        "rounds": federation.history,
        "clients": len(federation.simulator.phones),
        "settings": asdict(federation.settings),
    }
