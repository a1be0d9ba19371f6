"""A release of a federation: its events must follow from how often a client may take part.

The settings on the card say which rule there was, who was asked, how updates were clipped and by
what their sum was divided. From them follows everything that is stated: whether rounds end by the
clock, for which neighbours a proof holds, and the mechanism.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from privet.engine.assumptions import SERVED
from privet.errors import InputError
from privet.federation.allowed import require_allowed
from privet.federation.population import dealt_name, dealt_unit
from privet.federation.settings import FederationSettings
from privet.federation.user_privacy import UserPrivacy
from privet.privacy.accounting import LEAST_MULTIPLIER, DpEvent
from privet.privacy.events import from_json
from privet.privacy.participation import FEDERATION, adjacencies, participation_of
from privet.release import CUSTOM
from privet.verification.finding import Finding
from privet.verification.settings import LEFT_UNUSED
from privet.verification.statements import TOLERANCE, ended, events_of, proved
from privet.verification.unprotected import PAPER

EXACT: Final = 1e-9
UNSTATED_START: Final = "a release"


def check_federation(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Events against participation, participation against settings, terms against the rule."""
    recorded, expected = events_of(trust), _expected_events(trust)
    same = recorded == expected
    yield Finding(
        check="events match the mechanism",
        ok=same,
        detail="as stated" if same else f"mechanism implies {expected}, recorded are {recorded}",
    )
    yield Finding.of(
        "mechanism makes sense", _terms(trust), otherwise="noise, unit and neighbours agree"
    )
    yield Finding.of(
        "settings match the mechanism",
        [*_restated(trust), *_target(trust), *_refused(trust)],
        otherwise="as asked for",
    )
    yield check_facts(trust)


def check_facts(trust: Mapping[str, Any]) -> Finding:
    """What the card says of the federation, and of whom it protects, follows from the settings."""
    return Finding.of("federation as asked for", _facts(trust), otherwise=trust["method"])


def _asked(trust: Mapping[str, Any]) -> FederationSettings:
    known, config = {field.name for field in fields(FederationSettings)}, trust["provenance"]
    given = {name: v for name, v in config["config"].items() if name in known}
    return FederationSettings(**given)


def _expected_events(trust: Mapping[str, Any]) -> list[DpEvent]:
    learned = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    mechanism = trust["mechanism"]
    return [*learned, participation_of(mechanism).event(mechanism["noise_multiplier"])]


def _terms(trust: Mapping[str, Any]) -> Iterator[str]:
    data, mechanism = trust["data"], trust["mechanism"]
    if mechanism["noise"] != ("correlated" if mechanism["bands"] else "independent"):
        yield f"{mechanism['noise']} noise with {len(mechanism['bands'])} bands"
    if mechanism["redone_steps"]:
        yield "steps were redone, where a second draw is not accounted"
    allowed = adjacencies(by_clock=trust[FEDERATION]["by_clock"])
    for guarantee in proved(trust):
        if (guarantee.sampler, guarantee.unit) != (mechanism["sampler"], data["unit"]):
            yield f"a guarantee speaks of {guarantee.sampler} clients, unit {guarantee.unit}"
        if guarantee.adjacency not in allowed:
            yield f"nothing is proved for {guarantee.adjacency} where rounds end as they do here"


def _restated(trust: Mapping[str, Any]) -> Iterator[str]:
    """The mechanism that the settings make, against the one that is stated."""
    asked, mechanism = _asked(trust), trust["mechanism"]
    if asked.epsilon is None or asked.divisor is None:
        yield "a mechanism of privacy, and no target or divisor was asked for"
        return
    expected: dict[str, Any] = {
        **asked.participation().to_json(),
        "steps": asked.rounds,
        "steps_run": ended(trust, asked.rounds),
        "clip_norm": asked.clip,
        "normaliser": asked.divisor,
        "contribution": 1,
        "precision": trust["provenance"]["config"].get("precision"),
    }
    for name, value in expected.items():
        if not _same(value, mechanism.get(name)):
            yield f"{name} {value} follows from the settings, {mechanism.get(name)} is stated"
    bands = asked.coefficients() if asked.bands > 1 else ()
    if not (len(bands) == len(mechanism["bands"]) and all(map(_same, bands, mechanism["bands"]))):
        yield f"{asked.bands} bands were asked for, others are stated"
    if asked.noise_seed is not None and not trust["withheld"]:
        yield f"noise from the known seed {asked.noise_seed}, and yet an epsilon is stated"


def _refused(trust: Mapping[str, Any]) -> Iterator[str]:
    """What the coordinator would not have begun with: no proof covers it, whatever is stated."""
    asked, mechanism = _asked(trust), trust["mechanism"]
    rule = asked.made_rule()
    try:
        privacy = UserPrivacy(
            clip=mechanism["clip_norm"],
            multiplier=mechanism["noise_multiplier"],
            participation=participation_of(mechanism),
            divisor=mechanism["normaliser"],
            bands=tuple(mechanism["bands"]) or (1.0,),
        )
        require_allowed(rule, rule.gathering(1), privacy, secure_sum=False, rounds=asked.rounds)
    except InputError as error:
        yield str(error)


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, float) and isinstance(there, int | float):
        return math.isclose(here, there, rel_tol=EXACT)
    return bool(here == there)


def _target(trust: Mapping[str, Any]) -> Iterator[str]:
    asked, noise = _asked(trust), trust["mechanism"]["noise_multiplier"]
    first = adjacencies(by_clock=trust[FEDERATION]["by_clock"])[0]
    for guarantee in proved(trust):
        if guarantee.delta != asked.delta:
            yield f"delta {asked.delta:g} was asked for, {guarantee.delta:g} is stated"
        if guarantee.adjacency != first or asked.epsilon is None:
            continue
        least = noise <= LEAST_MULTIPLIER * (1 + TOLERANCE)
        above = guarantee.epsilon > asked.epsilon * (1 + TOLERANCE)
        below = guarantee.epsilon < asked.epsilon * (1 - LEFT_UNUSED) and not least
        if above or below:
            yield f"epsilon {asked.epsilon:g} was asked for, {guarantee.epsilon:.4g} is stated"


def _facts(trust: Mapping[str, Any]) -> Iterator[str]:
    try:
        asked = _asked(trust)
    except InputError as error:
        yield f"settings that cannot be: {error}"
        return
    facts, data = trust[FEDERATION], trust["data"]
    expected: dict[str, Any] = {
        "rule": asked.rule,
        "rounds": asked.rounds,
        "by_clock": asked.made_rule().pacing.by_clock,
        "made_up": asked.clients is not None,
        "pool": asked.public_pool if asked.pool else None,
        "trace_file": asked.reads_traces or None,
    }
    for name, value in expected.items():
        if facts.get(name) != value:
            yield f"{name} {value} follows from the settings, {facts.get(name)} is stated"
    yield from _of_the_start(trust, asked)
    if trust["analysis"] == PAPER:
        yield "a paper's analysis, and no paper's claim is known of a federation"
    if trust["method"] != asked.rule:
        yield f"the method is stated as {trust['method']}, the rule was {asked.rule}"
    if SERVED in facts:
        yield from _of_the_server(facts[SERVED], asked)
    run = ended(trust, asked.rounds)
    if facts["by_clock"] and facts["sums"] != run:
        yield f"{facts['sums']} sums of {run} rounds that all end by the clock"
    if not 0 <= facts["sums"] <= run <= facts["rounds"]:
        yield f"{facts['sums']} sums in {run} rounds"
    if not data["grouped"]:
        yield "clients are the units, and nothing says whose records are whose"
    if asked.clients is not None:
        yield from _dealt(data, asked)


def _of_the_server(served: Mapping[str, Any], asked: FederationSettings) -> Iterator[str]:
    """How far it had come."""
    if served["finished"] != (served["rounds_run"] + served["rolled_back"] >= asked.rounds):
        yield f"finished is {served['finished']} after {served['rounds_run']} of {asked.rounds}"
    if asked.clients is not None:
        yield "devices of a server, and clients that records were dealt out to"
    if asked.epsilon is not None and served["start"] == UNSTATED_START:
        yield "a private model from a release that nobody states to be public"


def _of_the_start(trust: Mapping[str, Any], asked: FederationSettings) -> Iterator[str]:
    """First weights that no seed here makes are public by assumption alone."""
    other = trust[FEDERATION].get(SERVED, {}).get("start") is not None
    seed = None if asked.model == CUSTOM or other else asked.init_seed
    if trust["provenance"]["init_seed"] != seed:
        stated = trust["provenance"]["init_seed"]
        yield f"first weights of seed {seed} follow from the settings, {stated} is stated"


def _dealt(data: Mapping[str, Any], asked: FederationSettings) -> Iterator[str]:
    """Of made-up clients: the deal is in the name of the data and of the unit."""
    whole, slash, deal = data["name"].rpartition("/")
    if not slash or deal != dealt_name(asked):
        yield f"the data are stated as {data['name']}, the deal was {dealt_name(asked)}"
    if data["unit"] != dealt_unit(asked, whole):
        yield f"the unit is stated as {data['unit']}, dealt was {dealt_unit(asked, whole)}"
    if data["nominal_size"] != asked.clients:
        yield f"{asked.clients} clients were dealt to, nominal size {data['nominal_size']}"
