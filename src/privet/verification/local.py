"""A release of randomised records: its noise must be that of the settings, its events those of it.

Steps, batches and models come behind the noise. They are compared with the settings, and no figure
rests on them.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.engine.turns import Turns
from privet.guarantee import Adjacency
from privet.ledger import RunRecord
from privet.models.local import seen_shape
from privet.privacy.accounting import DpEvent
from privet.privacy.events import from_json
from privet.privacy.local import LOCAL, RecordRandomiser
from privet.training.local_card import mechanism_of
from privet.training.local_records import LocalSettings
from privet.verification.finding import Finding
from privet.verification.statements import events_of, proved

EXACT: Final = 1e-9


def is_local(trust: Mapping[str, Any]) -> bool:
    """Whether the card is of records that were randomised one by one."""
    return bool(trust["mechanism"].get("sampler") == LOCAL)


def check_local(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Events against mechanism, mechanism against settings and data."""
    recorded, expected = events_of(trust), _expected_events(trust)
    same = recorded == expected
    yield Finding(
        check="events match the mechanism",
        ok=same,
        detail="as stated" if same else f"mechanism implies {expected}, recorded are {recorded}",
    )
    yield Finding.of(
        "mechanism makes sense", _terms(trust), otherwise="places, unit and neighbours agree"
    )
    yield Finding.of(
        "settings match the mechanism",
        [*_noise(trust), *_training(trust)],
        otherwise="as asked for",
    )


def stated_randomiser(trust: Mapping[str, Any]) -> RecordRandomiser:
    """The one that the card describes."""
    mechanism = trust["mechanism"]
    return RecordRandomiser(
        norm=mechanism["record_norm"],
        scale=mechanism["noise_scale"],
        redrawn=mechanism["redrawn"],
        dimensions=mechanism["dimensions"],
        classes=mechanism["classes"],
    )


def _expected_events(trust: Mapping[str, Any]) -> list[DpEvent]:
    learned = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    return [*learned, stated_randomiser(trust).event]


def _terms(trust: Mapping[str, Any]) -> Iterator[str]:
    data, mechanism = trust["data"], trust["mechanism"]
    if data["grouped"]:
        yield "units of several records, where the noise hides one record"
    if mechanism["places"] != data["nominal_size"]:
        yield f"{mechanism['places']} places, nominal size {data['nominal_size']}"
    for guarantee in proved(trust):
        if (guarantee.sampler, guarantee.unit) != (LOCAL, data["unit"]):
            yield f"a guarantee speaks of {guarantee.sampler} sampling, unit {guarantee.unit}"
        if guarantee.adjacency is Adjacency.ZERO_OUT:
            yield f"nothing is stated for {guarantee.adjacency}"
        if guarantee.delta != 0.0:
            yield f"pure privacy has no delta, {guarantee.delta:g} is stated"


def _noise(trust: Mapping[str, Any]) -> Iterator[str]:
    """The mechanism that the settings ask for, calibrated again."""
    data, mechanism = trust["data"], trust["mechanism"]
    asked = LocalSettings(**trust["provenance"]["config"])
    assert asked.pool is not None
    assert asked.record_norm is not None
    randomiser = RecordRandomiser.calibrate(
        epsilon=asked.epsilon - sum(fact["epsilon"] for fact in data["learned"]),
        label_share=asked.label_share,
        norm=asked.record_norm,
        dimensions=math.prod(seen_shape(tuple(data["shape"]), asked.pool)),
        classes=len(data["classes"]),
    )
    for name, value in mechanism_of(randomiser, data["nominal_size"]).items():
        given = mechanism[name]
        number = isinstance(value, float)
        if not (math.isclose(value, given, rel_tol=EXACT) if number else value == given):
            yield f"{name} {value} follows from the settings, {given} is stated"
    if asked.method != trust["method"]:
        yield f"the method is stated as {trust['method']}"


def _training(trust: Mapping[str, Any]) -> Iterator[str]:
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    _, steps = Turns(
        sampler="shuffled",
        batch=config["batch"],
        nominal_size=trust["data"]["nominal_size"],
        epochs=config["epochs"],
    ).resolved()
    expected = {
        "steps": steps,
        "steps_run": steps,
        "batch": config["batch"],
        "precision": config["precision"],
    }
    for name, value in expected.items():
        if mechanism[name] != value:
            yield f"{name} {value} follows from the settings, {mechanism[name]} is stated"
    if config["init_seed"] != trust["provenance"]["init_seed"]:
        yield "the first weights are of another seed than was asked for"


def differing_charge(trust: Mapping[str, Any], run: RunRecord) -> Iterator[str]:
    """What the ledger must hold for such a card: all records randomised, once."""
    event = stated_randomiser(trust).event
    recorded: dict[str, tuple[object, object]] = {
        "data set": (run.dataset, trust["data"]["name"]),
        "planned": (run.planned, 1),
        "charged": (run.charged, 1),
        "redone": (run.redone, 0),
        "neighbours": (run.adjacency, Adjacency.ADD_REMOVE),
        "event": (run.step_event, run.step_event if trust["withheld"] else event),
    }
    for what, (there, here) in recorded.items():
        if there != here:
            yield f"{what}: {there} in the ledger, {here} here"
