"""Parts that were taken as they came: named, as was stated, and the very ones released."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from privet.data.catalogue import share_records
from privet.engine.fixed_parts import (
    FIELD,
    FixedPart,
    digest_of,
    fixed_parts_of,
    reasons_to_withhold,
)
from privet.errors import InputError
from privet.files import read_json
from privet.models.denoised import DENOISED
from privet.privacy.sampling import sampler_of
from privet.release import read_weights
from privet.verification.finding import Finding
from privet.verification.statements import events_of

CLASSIFIER: Final = "classifier"
START: Final = "first denoiser"


def check_fixed_parts(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Nothing to say of the many releases that have no such part and should have none."""
    released = _released(folder)
    model = str(read_json(folder / "config.json").get("model"))
    asked = trust["provenance"]["config"].get(CLASSIFIER) is not None
    if not (asked or released or FIELD in trust or model.startswith(f"{DENOISED}:")):
        return
    parts = _read(trust)
    yield Finding.of(
        "parts that were not learned here",
        [
            *_named(trust, parts),
            *_stated(trust, parts),
            *_related(trust, parts),
            *_bytes(released, parts),
        ],
        otherwise="; ".join(f"{part.part}: {part.statement}" for part in parts.values()),
    )


def _read(trust: Mapping[str, Any]) -> dict[str, FixedPart]:
    try:
        parts = fixed_parts_of(trust)
    except TypeError as error:
        raise InputError(f"malformed trust.json: '{FIELD}'", got=error) from None
    named = {part.part: part for part in parts}
    if len(named) < len(parts):
        raise InputError(f"malformed trust.json: '{FIELD}'", got="a part that is named twice")
    return named


def _released(folder: Path) -> dict[str, Tensor]:
    """The classifier's tensors in the release, by their names in the classifier."""
    prefix = f"{CLASSIFIER}."
    weights = read_weights(folder / "weights.safetensors")
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


def _named(trust: Mapping[str, Any], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """Each part that the settings name, as they name it."""
    config = trust["provenance"]["config"]
    asked = {CLASSIFIER: _asked(config, CLASSIFIER)}
    if config.get("start") is not None:
        asked[START] = _asked(config, "start")
    for name in {*asked, *parts}:
        if name not in parts:
            yield f"the {name} is not named"
            continue
        part = parts[name]
        if name not in asked or (part.source, part.digest, list(part.data)) != asked[name]:
            yield f"the {name} is not the one that was asked for"


def _asked(config: Mapping[str, Any], name: str) -> tuple[Any, Any, list[str]]:
    """Source, digest, and the data behind, as the settings have them."""
    behind = str(config.get(f"{name}_data") or "").splitlines()
    return config.get(name), config.get(f"{name}_digest"), behind


def _stated(trust: Mapping[str, Any], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """What was said about the classifier, and what follows if records had a part in it."""
    config, behind = trust["provenance"]["config"], parts.get(CLASSIFIER)
    if behind is None:
        return
    if behind.public == bool(config.get("private_classifier")):
        yield "whether the classifier is public is stated otherwise than was said"
    if behind.public and behind.statement != config.get("public_classifier"):
        yield "the statement about the classifier is not the one that was made"
    first = parts.get(START)
    if first and (first.statement != config.get("public_start") or not first.public):
        yield f"the statement about the {START} is not the one that was made"
    if not behind.public and config.get("stability"):
        yield "a classifier that may have seen the records has judged every image"
    if trust["analysis"] != "sound":
        return
    mechanism = trust["mechanism"]
    reasons = reasons_to_withhold(
        list(parts.values()), events_of(trust), float(config["delta"]),
        sampler_of(mechanism).adjacencies[0], secret=config.get("noise_seed") is None,
    )  # fmt: skip
    if not set(reasons) <= set(trust["withheld"]):
        yield "a part may have seen the records, and the card does not say what that means"


def _related(trust: Mapping[str, Any], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """No public part may be made of the records, by the names of what it was made of."""
    for part in parts.values():
        for name in part.data if part.public else ():
            if share_records(name, trust["data"]["name"]):
                yield f"the {part.part} is called public, and was made of '{name}'"


def _bytes(released: Mapping[str, Tensor], parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """The classifier that is released is the one that was stated."""
    if CLASSIFIER in parts and digest_of(released) != parts[CLASSIFIER].digest:
        yield "the classifier's weights are not those that the card names"
