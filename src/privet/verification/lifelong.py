"""A version of a stream: its event must be the costliest lifetime that its plan allows.

The card lists the steps of every task so far and how the memory is read. From these alone the
lifetimes follow, and which of them costs most. The last task must be the one that the mechanism
describes; what was asked for must cover what is stated.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.lifelong.lifetime import Lifetime
from privet.privacy.events import LIFELONG, of_several_lifetimes
from privet.verification.finding import Finding
from privet.verification.mechanism import sense_of
from privet.verification.statements import events_of, proved

REMEMBERING: Final = ("l2dp", "er", "dpsgd-agem")
SLACK: Final = 1e-3  # of one accountant's rounding against another's


def check_lifelong(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Events against lifetimes, lifetimes against mechanism and settings."""
    lifetime = Lifetime.from_json(trust[LIFELONG])
    yield Finding.of("events match the lifetimes", _events(trust, lifetime), otherwise="as stated")
    yield Finding.of(
        "lifetimes match the mechanism", _tasks(trust, lifetime), otherwise="the last task is this"
    )
    yield sense_of(trust)
    yield Finding.of(
        "settings match the lifetimes", _settings(trust, lifetime), otherwise="as asked for"
    )


def _events(trust: Mapping[str, Any], lifetime: Lifetime) -> Iterator[str]:
    recorded = events_of(trust)
    delta = trust["provenance"]["config"]["delta"]
    worst, event = lifetime.worst(delta)
    if recorded != [event]:
        yield f"the lifetimes imply {event}, recorded are {recorded}"
    if trust[LIFELONG]["costliest"] != worst:
        yield f"units of task {worst} pay most, task {trust[LIFELONG]['costliest']} is named"


def _tasks(trust: Mapping[str, Any], lifetime: Lifetime) -> Iterator[str]:
    mechanism, last = trust["mechanism"], lifetime.tasks[-1]
    steps = mechanism["steps"] + mechanism["redone_steps"]
    for name, here, there in (
        ("rate", last.rate, mechanism["sampling_rate"]),
        ("steps", last.steps, steps),
        ("noise", last.multiplier, mechanism["noise_multiplier"]),
        ("number of tasks", len(lifetime.tasks), trust[LIFELONG]["number"]),
    ):
        if here != there:
            yield f"{name} {here} in the lifetime, {there} in the mechanism"


def _settings(trust: Mapping[str, Any], lifetime: Lifetime) -> Iterator[str]:
    config = trust["provenance"]["config"]
    redone = trust[LIFELONG].get("redone", 0)
    if redone < trust["mechanism"]["redone_steps"]:
        yield f"{redone} steps were redone in all, and in the last task more"
    for guarantee in proved(trust):
        beyond = guarantee.epsilon > config["epsilon"] * (1 + SLACK) and redone == 0
        if guarantee.adjacency == "add-remove" and beyond:
            yield f"epsilon {config['epsilon']:g} was asked for, {guarantee.epsilon:g} is stated"
    if of_several_lifetimes(trust) and any(g.adjacency != "add-remove" for g in proved(trust)):
        yield "tasks differ, so that their costliest lifetime is known for add/remove alone"
    if trust["data"]["learned"]:
        yield "facts were learned privately, and no lifetime counts them"
    if lifetime.shared and len(lifetime.planned) < len(lifetime.tasks):
        yield "units pay for all tasks, and the card does not say how many were planned"
    recall = lifetime.recall
    if recall is None:
        remembers = trust["method"] in REMEMBERING and "admission" in config
        if remembers and (config["horizon"] or len(lifetime.tasks)) > 1:
            yield f"'{trust['method']}' reads a memory, and the card has none"
        return
    if config["horizon"] not in (None, recall.horizon):
        yield f"horizon {config['horizon']} was asked for, {recall.horizon} is stated"
    for name, here in (("admission", recall.admission), ("recall_rate", recall.first_rate)):
        if not math.isclose(here, config[name]):
            yield f"{name} {config[name]} was asked for, {here} is stated"
