"""A release that was trained without privacy: it must say so, and promise nothing."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import dp_accounting as dp

from privet.engine.turns import Turns
from privet.ledger import RunRecord
from privet.privacy.events import from_json
from privet.verification.finding import Finding
from privet.verification.statements import events_of

NONE: Final = "none"


def is_unprotected(trust: Mapping[str, Any]) -> bool:
    """Whether the card says of itself that there was no privacy to analyse."""
    return bool(trust["analysis"] == NONE)


def check_unprotected(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """No word of a guarantee, and settings that give the steps which are stated."""
    yield Finding.of(
        "no privacy, and none is promised",
        _promised(trust),
        otherwise="; ".join(trust["withheld"]),
    )
    yield Finding.of("settings match the steps", _steps(trust), otherwise="as asked for")


def _promised(trust: Mapping[str, Any]) -> Iterator[str]:
    learned = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    if events_of(trust) != [*learned, dp.NonPrivateDpEvent()]:
        yield "its events are not one access without privacy"
    if not trust["withheld"]:
        yield "it gives no reason why there is no guarantee"
    for name in ("epsilon", "delta", "noise_multiplier", "clip_norm"):
        if name in trust["provenance"]["config"] or name in trust["mechanism"]:
            yield f"it names {name}"


def _steps(trust: Mapping[str, Any]) -> Iterator[str]:
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    _, steps = Turns(
        sampler="shuffled",
        batch=mechanism["batch"],
        nominal_size=trust["data"]["nominal_size"],
        epochs=config["epochs"],
    ).resolved()
    stated = {"steps": steps, "steps_run": steps}
    stated |= {name: config[name] for name in ("batch", "precision")}
    for name, value in stated.items():
        if mechanism[name] != value:
            yield f"{name} {value} was asked for, {mechanism[name]} is stated"
    if config["init_seed"] != trust["provenance"]["init_seed"]:
        yield "the first weights are of another seed than was asked for"


def differing(trust: Mapping[str, Any], run: RunRecord) -> Iterator[str]:
    """What the ledger must hold for such a card: one access without privacy, charged."""
    recorded: dict[str, tuple[object, object]] = {
        "data set": (run.dataset, trust["data"]["name"]),
        "charged": (run.charged, 1),
        "event": (run.step_event, dp.NonPrivateDpEvent()),
    }
    for what, (there, here) in recorded.items():
        if there != here:
            yield f"{what}: {there} in the ledger, {here} here"
