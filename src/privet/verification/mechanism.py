"""The mechanism of a card: its events must be those that it makes, and it must make sense."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from privet.engine.fixed_parts import counted_with, fixed_parts_of
from privet.engine.tuned import Tuning, score_noise
from privet.errors import InputError
from privet.privacy.accounting import DpEvent
from privet.privacy.correlated import BandedNoise
from privet.privacy.events import from_json
from privet.privacy.geometry import Geometry
from privet.privacy.sampling import sampler_of
from privet.verification.finding import Finding
from privet.verification.statements import events_of, proved


def check_mechanism(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Events against mechanism, and the parts of the mechanism against each other."""
    recorded, expected = events_of(trust), _expected_events(trust)
    same = recorded == expected
    yield Finding(
        check="events match the mechanism",
        ok=same,
        detail="as stated" if same else f"mechanism implies {expected}, recorded are {recorded}",
    )
    yield sense_of(trust)


def sense_of(trust: Mapping[str, Any]) -> Finding:
    """Whether the parts of the mechanism agree with each other."""
    return Finding.of(
        "mechanism makes sense",
        [
            *_steps(trust["mechanism"]),
            *_noise(trust["mechanism"]),
            *_units(trust),
            *_normaliser(trust),
            *_score(trust),
            *_terms(trust),
        ],
        otherwise="steps, rate, normaliser, noise, unit and sampler agree",
    )


def _expected_events(trust: Mapping[str, Any]) -> list[DpEvent]:
    mechanism = trust["mechanism"]
    learned: list[DpEvent] = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    sampler = sampler_of(mechanism)
    turns = sampler.turns(mechanism["steps"]) + mechanism["redone_steps"]
    run = sampler.event(mechanism["noise_multiplier"], turns)
    own = [*learned, Tuning.from_json(trust["tuning"]).event(run)]
    counted = counted_with(fixed_parts_of(trust), [("", event) for event in own])
    return [event for _, event in counted]


def _steps(mechanism: Mapping[str, Any]) -> Iterator[str]:
    if mechanism["steps_run"] > mechanism["steps"]:
        yield f"{mechanism['steps_run']} steps were run of {mechanism['steps']} planned"
    sampler = sampler_of(mechanism)
    if mechanism["redone_steps"] > 0 and not sampler.redoable:
        yield f"steps were redone under {sampler.name} sampling, where every unit has its turn once"


def _noise(mechanism: Mapping[str, Any]) -> Iterator[str]:
    bands, sampler = tuple(mechanism["bands"]), sampler_of(mechanism)
    if mechanism["noise"] != ("correlated" if bands else "independent"):
        yield f"{mechanism['noise']} noise with {len(bands)} bands"
    try:
        Geometry.from_json(mechanism["clipping"])
        if bands:
            BandedNoise(
                multiplier=mechanism["noise_multiplier"],
                sensitivity=mechanism["clip_norm"],
                coefficients=bands,
            ).require_valid_with(sampler.name, sampler.cycle)
    except InputError as error:
        yield str(error)


def _units(trust: Mapping[str, Any]) -> Iterator[str]:
    """What a unit may bring, and who draws among it."""
    data, mechanism = trust["data"], trust["mechanism"]
    if data["grouped"] and not mechanism["torch_draws"]:
        yield "PyTorch draws among the records of a unit, and the card says that it draws nothing"
    if not data["grouped"] and mechanism["contribution"] != 1:
        yield f"{mechanism['contribution']} records of a unit in a step, where each is a unit"


def _normaliser(trust: Mapping[str, Any]) -> Iterator[str]:
    mechanism = trust["mechanism"]
    size = Tuning.from_json(trust["tuning"]).training_size(trust["data"]["nominal_size"])
    if not math.isclose(mechanism["sampling_rate"] * size, mechanism["normaliser"]):
        yield "normaliser is not the expected batch at the nominal size"


def _score(trust: Mapping[str, Any]) -> Iterator[str]:
    tuning, mechanism = Tuning.from_json(trust["tuning"]), trust["mechanism"]
    if tuning.selected is not None:
        sampler = sampler_of(mechanism)
        turns = sampler.turns(mechanism["steps"])
        least = score_noise(sampler.turn_rate, mechanism["noise_multiplier"], turns)
        stated = tuning.selected.score_multiplier
        if stated < least * (1 - 1e-9):
            yield f"the noise of the scores is {stated:g}, the runs' own asks for {least:g}"


def _terms(trust: Mapping[str, Any]) -> Iterator[str]:
    """Unit, sampler and neighbours of every proved statement."""
    sampler, unit = sampler_of(trust["mechanism"]), trust["data"]["unit"]
    for guarantee in proved(trust):
        if (guarantee.sampler, guarantee.unit) != (sampler.name, unit):
            yield f"a guarantee speaks of {guarantee.sampler} sampling, unit {guarantee.unit}"
        if guarantee.adjacency not in sampler.adjacencies:
            yield f"nothing is proved for {guarantee.adjacency} under {sampler.name} sampling"
