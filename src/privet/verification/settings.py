"""What was asked for, against what the card states: settings, target, choice of the settings.

A release of `train` records all its settings; one from a user's own loop records what the user
gave, and what bears the name of a setting is taken at its word. What is not there is not checked.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.engine.tuned import Tuning
from privet.errors import InputError
from privet.privacy.accounting import LEAST_MULTIPLIER
from privet.privacy.geometry import BY_INPUT, Geometry
from privet.privacy.precision import FULL
from privet.privacy.sampling import sampler_for, sampler_of
from privet.training.adlm import FACT, AdlmSettings
from privet.training.recipes import tuning_of
from privet.verification.finding import Finding
from privet.verification.statements import TOLERANCE, proved

# Calibration comes nearer to its target; far below it, other noise was asked for than stated.
LEFT_UNUSED: Final = 0.01


def check_settings(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Nothing that was asked for may be stated otherwise."""
    yield Finding.of(
        "settings match the mechanism",
        [
            *_restated(trust),
            *_batch(trust),
            *_draws(trust),
            *_target(trust),
            *_relevance(trust),
        ],
        otherwise="as asked for" if trust["provenance"]["config"] else "none are recorded",
    )
    yield from check_choice(trust)


def check_choice(trust: Mapping[str, Any]) -> Iterator[Finding]:
    """How the settings were chosen is stated as it was."""
    yield Finding.of(
        "choice of the settings", _choice(trust), otherwise=str(trust["tuning"]["kind"])
    )


def _restated(trust: Mapping[str, Any]) -> Iterator[str]:
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    stated = {
        "sampler": mechanism["sampler"],
        "clip_norm": mechanism["clip_norm"],
        "clipping": mechanism["clipping"]["name"],
        "precision": mechanism.get("precision", FULL.name),  # there was no other before
        "bands": len(mechanism["bands"]) or 1,
        "init_seed": trust["provenance"]["init_seed"],
    }
    if trust["data"]["grouped"]:
        stated["contribution"] = mechanism["contribution"]
    if config.get("cycle") is not None:
        stated["cycle"] = mechanism["cycle"]
    if "epochs" in config:
        steps = max(1, round(config["epochs"] / mechanism["sampling_rate"]))
        if steps != mechanism["steps"]:
            yield f"{config['epochs']} epochs make {steps} steps, {mechanism['steps']} are stated"
    for name, value in stated.items():
        if name in config and config[name] != value:
            yield f"{name} {config[name]} was asked for, {value} is stated"


def _batch(trust: Mapping[str, Any]) -> Iterator[str]:
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    asked = config.get("batch")
    if asked is None:
        return
    size = Tuning.from_json(trust["tuning"]).training_size(trust["data"]["nominal_size"])
    sampler = sampler_for(
        mechanism["sampler"],
        batch=asked,
        nominal_size=size,
        cycle=config.get("cycle", mechanism["cycle"]),
        bands=len(mechanism["bands"]),
    )
    if not math.isclose(sampler.rate * size, mechanism["normaliser"]):
        yield f"batch {asked} was asked for, the normaliser is {mechanism['normaliser']}"
    elif sampler.cycle != mechanism["cycle"]:
        yield f"batch {asked} makes cycles of {sampler.cycle}, {mechanism['cycle']} is stated"


def _draws(trust: Mapping[str, Any]) -> Iterator[str]:
    config = trust["provenance"]["config"]
    if config.get("noise_seed") is not None and not trust["withheld"]:
        yield f"noise from the known seed {config['noise_seed']}, and yet an epsilon is stated"
    if trust["mechanism"]["torch_draws"]:
        return
    drawn = (("augment", "none"), ("input_noise", 0.0), ("adversarial", "none"), ("sigma", None))
    for name, unset in drawn:
        if config.get(name, unset) != unset:
            yield f"PyTorch draws the views ({config[name]}), the card says it draws nothing"


def _target(trust: Mapping[str, Any]) -> Iterator[str]:
    """Redone steps go beyond the target; the least noise may stay far below it."""
    config, mechanism = trust["provenance"]["config"], trust["mechanism"]
    target, first = config.get("epsilon"), sampler_of(mechanism).adjacencies[0]
    for guarantee in proved(trust):
        if config.get("delta", guarantee.delta) != guarantee.delta:
            yield f"delta {config['delta']:g} was asked for, {guarantee.delta:g} is stated"
        if target is None or guarantee.adjacency is not first:
            continue
        above = guarantee.epsilon > target * (1 + TOLERANCE) and mechanism["redone_steps"] == 0
        least = mechanism["noise_multiplier"] <= LEAST_MULTIPLIER * (1 + TOLERANCE)
        below = guarantee.epsilon < target * (1 - LEFT_UNUSED) and not least
        if above or below:
            yield f"epsilon {target:g} was asked for, {guarantee.epsilon:.4g} is stated"


def _relevance(trust: Mapping[str, Any]) -> Iterator[str]:
    """Weights of inputs come from a release of their own, which must be among what was paid."""
    if trust["method"] != AdlmSettings.method or trust["mechanism"]["clipping"]["name"] != BY_INPUT:
        return
    asked = AdlmSettings(**trust["provenance"]["config"])
    if {"name": FACT, "epsilon": asked.relevance_epsilon} not in trust["data"]["learned"]:
        yield f"relevance for epsilon {asked.relevance_epsilon:g} is not among what was learned"
    if asked.extras().geometry != Geometry.from_json(trust["mechanism"]["clipping"]):
        yield "the weights of the inputs do not follow from the relevance"


def _choice(trust: Mapping[str, Any]) -> Iterator[str]:
    config, tuning = trust["provenance"]["config"], Tuning.from_json(trust["tuning"])
    if trust["tuning"]["assumption"] != tuning.assumption:
        yield f"'{tuning.kind}' rests on another assumption: '{tuning.assumption}'"
    try:
        by_recipe = tuning_of(config.get("recipe"), trust["data"]["name"], config)
    except InputError as error:
        yield str(error)
        return
    searched = config.get("search")
    if tuning.selected is not None:
        yield from _search(config, searched, by_recipe)
    elif searched is not None:
        yield f"a search is recorded, and the choice stated as {tuning.kind}"
    elif (tuning.kind, tuning.detail) != (by_recipe.kind, by_recipe.detail):
        yield f"stated as {tuning.kind} ({tuning.detail}), but {by_recipe.kind}: {by_recipe.detail}"


def _search(config: Mapping[str, Any], searched: Any, by_recipe: Tuning) -> Iterator[str]:
    if not isinstance(searched, Mapping) or not searched:
        yield "a search was charged, and none is recorded"
        return
    for name, values in searched.items():
        if config.get(name) not in values:
            yield f"{name} {config.get(name)} was chosen among {values}"
    if by_recipe.kind == "uncharged":
        yield by_recipe.detail
