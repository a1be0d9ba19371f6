"""A release without proved privacy: it must say so, and prove nothing.

One that was trained without privacy promises nothing at all. One that was trained as a paper says
states what the paper claims, as claimed, and for the target that was asked for.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import dp_accounting as dp

from privet.engine.turns import Turns
from privet.guarantee import Basis
from privet.ledger import RunRecord
from privet.privacy.events import from_json
from privet.privacy.participation import FEDERATION
from privet.verification.finding import Finding
from privet.verification.statements import ended, events_of

NONE: Final = "none"
PAPER: Final = "paper"


def is_unprotected(trust: Mapping[str, Any]) -> bool:
    """Whether the card says of itself that nothing is proved."""
    return trust["analysis"] in (NONE, PAPER)


def check_unprotected(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """No word of a proof, and settings that give the steps and the claims which are stated."""
    claims = trust["analysis"] == PAPER
    yield Finding.of(
        "nothing is proved, and that is said" if claims else "no privacy, and none is promised",
        [*_accessed(trust), *(_claimed(trust) if claims else _promised(trust))],
        otherwise="; ".join(trust["withheld"]),
    )
    yield Finding.of(
        "settings match the steps",
        [*_restated(trust), *([] if claims else _steps(trust))],
        otherwise="as asked for",
    )


def _accessed(trust: Mapping[str, Any]) -> Iterator[str]:
    learned = [
        from_json({"type": "Laplace", "noise_multiplier": 1.0 / fact["epsilon"]})
        for fact in trust["data"]["learned"]
    ]
    if events_of(trust) != [*learned, dp.NonPrivateDpEvent()]:
        yield "its events are not one access without privacy"
    if not trust["withheld"]:
        yield "it gives no reason why there is no guarantee"


def _claimed(trust: Mapping[str, Any]) -> Iterator[str]:
    """Claims and nothing else, each for the target that was asked for."""
    asked = trust["provenance"]["config"]["epsilon"]
    asked = _by_its_noise(trust) if asked is None else asked
    for stated in trust["privacy"]:
        if stated["basis"] == Basis.PROVED:
            yield "a proved figure beside a paper's analysis"
        elif stated["basis"] == Basis.CLAIMED and not math.isclose(stated["epsilon"], asked):
            yield f"epsilon {asked} was asked for, {stated['epsilon']} is claimed"


def _by_its_noise(trust: Mapping[str, Any]) -> float:
    """What is claimed where noise was asked for, and no epsilon; NaN where nothing can be."""
    from privet.synthesis.fitting import METHODS

    config, method = trust["provenance"]["config"], METHODS.get(trust["method"])
    if method is None or config.get("sigma") is None:
        return math.nan
    variant = method.under(PAPER)
    settings = variant.settings(**{k: v for k, v in config.items() if k in variant.options})
    learned = sum(fact["epsilon"] for fact in trust["data"]["learned"])
    size, steps = trust["data"]["nominal_size"], trust["mechanism"]["steps"]
    return float(settings.claimed(size, steps, learned=learned))


def _promised(trust: Mapping[str, Any]) -> Iterator[str]:
    for name in ("epsilon", "delta", "noise_multiplier", "clip_norm"):
        if name in trust["provenance"]["config"] or name in trust["mechanism"]:
            yield f"it names {name}"


def _steps(trust: Mapping[str, Any]) -> Iterator[str]:
    mechanism, planned = trust["mechanism"], _planned(trust)
    for name, steps in (("steps", planned), ("steps_run", ended(trust, planned))):
        if mechanism[name] != steps:
            yield f"{name} {steps} follows from the settings, {mechanism[name]} is stated"


def _planned(trust: Mapping[str, Any]) -> int:
    """Rounds of a federation, steps of everything else."""
    config = trust["provenance"]["config"]
    if FEDERATION in trust:
        return int(config["rounds"])
    _, steps = Turns(
        sampler="shuffled",
        batch=trust["mechanism"]["batch"],
        nominal_size=trust["data"]["nominal_size"],
        epochs=config["epochs"],
    ).resolved()
    return steps


def _restated(trust: Mapping[str, Any]) -> Iterator[str]:
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    for name in ("batch", "precision"):
        if mechanism[name] != config[name]:
            yield f"{name} {config[name]} was asked for, {mechanism[name]} is stated"
    if mechanism["steps_run"] != ended(trust, mechanism["steps"]):
        yield f"{mechanism['steps_run']} steps were run of {mechanism['steps']}"
    if trust["provenance"]["init_seed"] not in (config["init_seed"], None):
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
