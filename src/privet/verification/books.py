"""The card against a ledger that knows the run: what was charged, for which unit, on which data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dp_accounting as dp

from privet.engine.assumptions import SERVED
from privet.engine.fixed_parts import fixed_parts_of
from privet.engine.tuned import Tuning
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.ledger import Ledger, RunRecord
from privet.privacy.accounting import DpEvent
from privet.privacy.participation import FEDERATION, adjacencies, participation_of
from privet.privacy.sampling import sampler_of
from privet.verification.finding import Finding
from privet.verification.local import differing_charge, is_local
from privet.verification.unprotected import differing, is_unprotected


def run_in(ledger: Ledger | None, trust: Mapping[str, Any]) -> RunRecord | None:
    """The run of this release, if the ledger knows it."""
    if ledger is None:
        return None
    try:
        return ledger.run(trust["provenance"]["run"])
    except InputError:
        return None


def check_ledger(trust: Mapping[str, Any], ledger: Ledger | None) -> Iterator[Finding]:
    """The ledger must have been charged for what the card states."""
    run = run_in(ledger, trust)
    if run is not None and ledger is not None:
        yield Finding.of(
            "ledger",
            [*_charges(trust, run), *_other_data(trust, run, ledger), *_parts(trust, ledger)],
            otherwise=_charged_words(run, trust),
        )


def _charges(trust: Mapping[str, Any], run: RunRecord) -> Iterator[str]:
    if is_unprotected(trust):
        return differing(trust, run)
    return differing_charge(trust, run) if is_local(trust) else _differing(trust, run)


def _differing(trust: Mapping[str, Any], run: RunRecord) -> Iterator[str]:
    mechanism, charged = trust["mechanism"], _charged(trust)
    recorded: dict[str, tuple[object, object]] = {
        "data set": (run.dataset, trust["data"]["name"]),
        "planned turns": (run.planned, charged.planned),
        "charged turns": (run.charged, charged.done),
        "redone steps": (run.redone, mechanism["redone_steps"]),
        "neighbours": (run.adjacency, charged.adjacency),
        "step": (run.step_event, run.step_event if trust["withheld"] else charged.step),
    }
    if _goes_on(trust) and run.charged > charged.done:
        del recorded["charged turns"]  # of versions that came after this one
    for what, (there, here) in recorded.items():
        if there != here:
            yield f"{what}: {there} in the ledger, {here} here"


def _goes_on(trust: Mapping[str, Any]) -> bool:
    """Whether the model was trained on after the release was made."""
    served = trust.get(FEDERATION, {}).get(SERVED)
    return served is not None and not served["finished"]


def _other_data(trust: Mapping[str, Any], run: RunRecord, ledger: Ledger) -> Iterator[str]:
    """The digest binds all facts of the data, the learned ones too; the unit has its own line."""
    data, unit = trust["data"], ledger.unit(run.dataset)
    if data["unit"] != unit.name or unit.grouped not in (None, data["grouped"]):
        counted = "grouped by a unit column" if data["grouped"] else "each record one"
        yield f"unit: {unit} in the ledger, '{data['unit']}' ({counted}) here"
    known = [ledger.commitment(s, run.id, facts=data) for s in ledger.snapshots(run.dataset)]
    if trust["provenance"].get("data_digest") not in known:
        yield (
            "the digest is of no version of the data in the ledger with the facts stated here"
            " (unit, size, bounds, classes, what was learned)"
        )


def _parts(trust: Mapping[str, Any], ledger: Ledger) -> Iterator[str]:
    """What was counted for a part must have been charged, by a run of its own."""
    for part in fixed_parts_of(trust):
        if part.paid is None:
            continue
        if not ledger.knows(part.paid.run):
            yield f"run {part.paid.run}, of the {part.part}, is not in the ledger"
            continue
        run = ledger.run(part.paid.run)
        turns = run.planned + run.redone
        if run.dataset != part.paid.data:
            yield f"the {part.part} was charged to '{run.dataset}', not to '{part.paid.data}'"
        if dp.SelfComposedDpEvent(run.step_event, turns) != part.paid.plan:
            yield f"the {part.part}: {turns} times {run.step_event} in the ledger, not so here"


def _charged_words(run: RunRecord, trust: Mapping[str, Any]) -> str:
    """What was charged, by its name: steps, turns of several steps, or a whole search."""
    if is_unprotected(trust):
        return "entered as an access without privacy"
    if is_local(trust):
        return "all records randomised once, and charged"
    if Tuning.from_json(trust["tuning"]).selected is not None:
        return "the whole search charged, as one"
    mechanism = trust["mechanism"]
    if FEDERATION in trust:
        return f"{run.charged} turns of a client charged"
    cycle = sampler_of(mechanism).cycle
    if cycle == 1:
        return f"{run.charged} steps charged, {run.redone} redone"
    return f"{run.charged} turns charged: {mechanism['steps_run']} steps in cycles of {cycle}"


@dataclass(frozen=True, kw_only=True)
class _Charged:
    """What the ledger must hold for a card: an event, how often it was reserved and charged."""

    step: DpEvent
    planned: int
    done: int
    adjacency: Adjacency


def _charged(trust: Mapping[str, Any]) -> _Charged:
    if FEDERATION in trust:
        return _charged_to_clients(trust)
    mechanism, sampler = trust["mechanism"], sampler_of(trust["mechanism"])
    neighbours = sampler.adjacencies[0]
    planned = sampler.turns(mechanism["steps"])
    turn = sampler.turn_event(mechanism["noise_multiplier"])
    tuning = Tuning.from_json(trust["tuning"])
    if tuning.selected is not None:  # all runs and the choice among them are one event
        whole = tuning.event(sampler.event(mechanism["noise_multiplier"], planned))
        return _Charged(step=whole, planned=1, done=1, adjacency=neighbours)
    done = sampler.turns(mechanism["steps_run"])
    return _Charged(step=turn, planned=planned, done=done, adjacency=neighbours)


def _charged_to_clients(trust: Mapping[str, Any]) -> _Charged:
    """Turns of a client, as far as noisy sums were made; rounds that were given up made none."""
    mechanism = trust["mechanism"]
    part = participation_of(mechanism)
    sums = trust[FEDERATION]["sums"]
    return _Charged(
        step=part.turn_event(mechanism["noise_multiplier"]),
        planned=part.turns,
        done=1 + part.turn_of(sums - 1) if sums else 0,
        adjacency=adjacencies(by_clock=trust[FEDERATION]["by_clock"])[0],
    )
