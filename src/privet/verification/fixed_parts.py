"""Parts that were taken as they came: named, as was stated, and the very ones released."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from privet.data.catalogue import share_records
from privet.engine.fixed_parts import (
    ATTACKER,
    FIELD,
    PAID,
    FixedPart,
    digest_of,
    fixed_parts_of,
    reasons_to_withhold,
)
from privet.engine.spent import Spent
from privet.errors import FaultyEnvironment, InputError
from privet.files import read_json
from privet.models.attacked import ATTACKED
from privet.models.denoised import DENOISED
from privet.privacy.sampling import sampler_of
from privet.release import read_weights
from privet.verification.finding import Finding
from privet.verification.statements import events_of, proved

CLASSIFIER: Final = "classifier"
START: Final = "first denoiser"
OWN_NAMES: Final = {"classifier": CLASSIFIER, "start": START, "attacker": ATTACKER}  # by setting


def check_fixed_parts(folder: Path, trust: Mapping[str, Any]) -> Iterator[Finding]:
    """Nothing to say of the many releases that have no such part and should have none."""
    released = _released(folder)
    model = str(read_json(folder / "config.json").get("model"))
    holds = bool(released) or model.startswith((f"{DENOISED}:", f"{ATTACKED}:"))
    asked = _asked_for(trust["provenance"]["config"], holds_classifier=holds)
    if not asked and FIELD not in trust:
        return
    parts = _read(trust)
    yield Finding.of(
        "parts that were not learned here",
        [
            *_named(asked, parts),
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


Asked = Mapping[str, tuple[Any, Any, list[str]]]
"""Of each part that settings name: source, digest, and the data behind it."""


def _asked_for(config: Mapping[str, Any], *, holds_classifier: bool) -> Asked:
    """A release that holds a classifier must name it, whatever its settings say."""
    return {
        part: _asked(config, setting)
        for setting, part in OWN_NAMES.items()
        if config.get(setting) is not None or (part == CLASSIFIER and holds_classifier)
    }


def _named(asked: Asked, parts: Mapping[str, FixedPart]) -> Iterator[str]:
    """Each part that the settings name, as they name it."""
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
    config = trust["provenance"]["config"]
    for setting, name in OWN_NAMES.items():
        part, said = parts.get(name), config.get(f"public_{setting}")
        if part is None:
            continue
        if part.public != bool(said):
            yield f"whether the {name} is public is stated otherwise than was said"
        if part.public and part.statement != said:
            yield f"the statement about the {name} is not the one that was made"
        if not part.public and part.paid is None and _is_asked(name, trust):
            yield f"a {name} that may have seen the records has had a part in every gradient"
        yield from _costs(trust, part)
    if trust["analysis"] != "sound":
        return
    mechanism = trust["mechanism"]
    reasons = reasons_to_withhold(
        list(parts.values()), events_of(trust), float(config["delta"]),
        sampler_of(mechanism).adjacencies[0], secret=config.get("noise_seed") is None,
    )  # fmt: skip
    if not set(reasons) <= set(trust["withheld"]):
        yield "a part may have seen the records, and the card does not say what that means"


def _costs(trust: Mapping[str, Any], part: FixedPart) -> Iterator[str]:
    """What a part cost is what its own card said; the cost of these records was to be counted."""
    config, spent = trust["provenance"]["config"], part.spent
    recorded = config.get("attacker_spent") if part.part == ATTACKER else None
    if (None if spent is None else spent.to_text()) != recorded:
        yield f"what the {part.part} cost is not what was found when the run began"
    counted = part.part == ATTACKER and bool(config.get("private_attacker"))
    if counted != (part.paid is not None):
        yield f"whether the cost of the {part.part} is counted is stated otherwise than was asked"
    if part.paid is not None:
        yield from _of_these_records(trust, part, part.paid)
    if spent is not None and (card := own_card(part)) is not None and Spent.of_card(card) != spent:
        yield f"the card of the {part.part}, in {part.source}, says that it cost something else"


def _of_these_records(trust: Mapping[str, Any], part: FixedPart, paid: Spent) -> Iterator[str]:
    data = trust["data"]
    if (paid.data, paid.unit, paid.grouped) != (data["name"], data["unit"], data["grouped"]):
        yield f"the {part.part} was paid for other records, or other units: '{paid.data}'"
    if part.statement != PAID:
        yield f"the {part.part} is counted, and its entry says something else"
    for name in part.data:
        if name != data["name"] and share_records(name, data["name"]):
            yield f"the {part.part} was made of '{name}', too, whose cost is not counted"
    for stated in proved(trust):
        if stated.adjacency not in paid.adjacencies:
            yield f"the {part.part} proves nothing for {stated.adjacency} neighbours"


def own_card(part: FixedPart) -> dict[str, Any] | None:
    """The card of the release that a part came from, where that is still there."""
    folder = Path(part.source)
    try:
        if digest_of(read_weights(folder / "weights.safetensors")) != part.digest:
            return None
        return read_json(folder / "trust.json")
    except (InputError, FaultyEnvironment, OSError):
        return None


def _is_asked(name: str, trust: Mapping[str, Any]) -> bool:
    """Whether gradients of a private run hang on the part."""
    config, sound = trust["provenance"]["config"], trust["analysis"] == "sound"
    if name == CLASSIFIER:
        return bool(config.get("stability")) or (sound and config.get("perturber") is not None)
    return name == ATTACKER and sound


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
