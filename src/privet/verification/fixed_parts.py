"""Parts that were taken as they came: named, as was stated, and the very ones released."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from privet.engine.fixed_parts import (
    FIELD,
    FixedPart,
    digest_of,
    fixed_parts_of,
    reasons_to_withhold,
)
from privet.errors import InputError
from privet.privacy.sampling import sampler_of
from privet.release import read_weights
from privet.verification.finding import Finding
from privet.verification.statements import events_of

CLASSIFIER: Final = "classifier"


def check_fixed_parts(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Nothing to say of the many cards that have no such part and should have none."""
    asked = trust["provenance"]["config"].get(CLASSIFIER) is not None
    if not asked and FIELD not in trust:
        return
    parts = _read(trust)
    yield Finding.of(
        "parts that were not learned here",
        [*_named(trust, parts), *_stated(trust, parts), *_bytes(folder, parts)],
        otherwise="; ".join(f"{part.part}: {part.statement}" for part in parts.values()),
    )


def _read(trust: Mapping[str, Any]) -> dict[str, FixedPart]:
    try:
        return {part.part: part for part in fixed_parts_of(trust)}
    except TypeError as error:
        raise InputError(f"malformed trust.json: '{FIELD}'", got=error) from None


def _named(trust: Mapping[str, Any], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """Each part that the settings name, as they name it."""
    config = trust["provenance"]["config"]
    asked = {CLASSIFIER: (config.get(CLASSIFIER), config.get("classifier_digest"))}
    if config.get("start") is not None:
        asked["first denoiser"] = (config["start"], config.get("start_digest"))
    for name in {*asked, *parts}:
        if name not in parts:
            yield f"the {name} is not named"
        elif name not in asked or (parts[name].source, parts[name].digest) != asked[name]:
            yield f"the {name} is not the one that was asked for"


def _stated(trust: Mapping[str, Any], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """What was said about the classifier, and what follows if records had a part in it."""
    config, behind = trust["provenance"]["config"], parts.get(CLASSIFIER)
    if behind is None:
        return
    if behind.public == bool(config.get("private_classifier")):
        yield "whether the classifier is public is stated otherwise than was said"
    if behind.public and behind.statement != config.get("public_classifier"):
        yield "the statement about the classifier is not the one that was made"
    if not behind.public and config.get("stability"):
        yield "a classifier that may have seen the records has judged every image"
    if trust["analysis"] != "sound":
        return
    mechanism = trust["mechanism"]
    reasons = reasons_to_withhold(
        list(parts.values()), events_of(trust), float(config["delta"]),
        sampler_of(mechanism).adjacencies[0],
    )  # fmt: skip
    if not set(reasons) <= set(trust["withheld"]):
        yield "a part may have seen the records, and the card does not say what that means"


def _bytes(folder: Path, parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """The classifier that is released is the one that was stated."""
    prefix = f"{CLASSIFIER}."
    released = {
        name.removeprefix(prefix): value
        for name, value in read_weights(folder / "weights.safetensors").items()
        if name.startswith(prefix)
    }
    if CLASSIFIER in parts and digest_of(released) != parts[CLASSIFIER].digest:
        yield "the classifier's weights are not those that the card names"
