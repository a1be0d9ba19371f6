"""Reading the sections of a plan: what is not known is refused, and named."""

import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from privet.errors import InputError
from privet.federation.settings import FederationSettings
from privet.federation.wire import Name, Sensing
from privet.release import CUSTOM

RENAMED: Final = {"epochs": "local_epochs", "learning_rate": "client_rate", "seed": "init_seed"}
OF_ROUNDS: Final = (
    *("rule", "rounds", "seconds", "quorum", "buffer", "stale", "cohort", "rate", "patient"),
    *("server_rate", "proximal", "trim", "attackers"),
)
OF_WORK: Final = (
    *("epochs", "batch", "learning_rate", "optimizer", "sample", "pool", "public_pool"),
)
OF_PRIVACY: Final = (
    *("epsilon", "delta", "clip", "times", "apart", "bands", "divisor", "noise_seed"),
)
LONGEST_NAME: Final = 64
NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)
KINDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    **dict.fromkeys(("release", "public_start"), (str, "a text")),
    **dict.fromkeys(
        ("keep_versions", "least_records", "quota", "records"), (int, "a whole number")
    ),
    **dict.fromkeys(("longest", "retry_seconds", "ticket_seconds"), ((int, float), "a number")),
    "secure_sum": (bool, "true or false"),
}  # of the fields that `FederationSettings` does not check


class Sections:
    """Sections of a plan, each a copy that its reader empties."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._left = dict(said)

    def take(self, name: str) -> dict[str, Any]:
        """A section; empty if it is not there."""
        part = self._left.pop(name, {})
        if not isinstance(part, Mapping):
            raise InputError(f"bad section of a plan: '{name}'", got=part, expected=f"[{name}]")
        return dict(part)

    def take_list(self, name: str) -> list[Any]:
        """A section that may come several times."""
        parts = self._left.pop(name, [])
        if not isinstance(parts, list):
            raise InputError(f"bad section of a plan: '{name}'", got=parts, expected=f"[[{name}]]")
        return parts

    def require_empty(self) -> None:
        """Refuse sections that nobody read."""
        if self._left:
            raise InputError(
                "unknown section of a plan",
                got=sorted(self._left)[0],
                expected="model, rounds, work, privacy, phones, sensing, evaluation",
            )


def settings_from(
    model: dict[str, Any],
    rounds: dict[str, Any],
    work: dict[str, Any],
    privacy: dict[str, Any],
    *,
    own_network: bool,
) -> FederationSettings:
    """Rounds, work and privacy, checked as those of a simulation are."""
    for name, part, known in (
        ("rounds", rounds, OF_ROUNDS),
        ("work", work, OF_WORK),
        ("privacy", privacy, OF_PRIVACY),
    ):
        require_known(name, part, known)
    said = {**rounds, **work, **privacy}
    if "seed" in model:
        said["seed"] = model.pop("seed")
    given = {RENAMED.get(name, name): value for name, value in said.items()}
    network = model.pop("network", None)
    if network == CUSTOM and not own_network:
        raise InputError("a plan needs a network by name", got=network, fix="see `privet models`")
    return FederationSettings(**given, model=network)


def require_kinds(section: str, part: Mapping[str, Any]) -> None:
    """Refuse a text where a number is to be, and the like."""
    for name in sorted(set(KINDS) & set(part)):
        (kind, expected), value = KINDS[name], part[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InputError(f"bad [{section}] {name}", got=repr(value), expected=expected)


def classes_from(said: object) -> tuple[str, ...]:
    """What an example may be: each once, as the wire can name it."""
    if not isinstance(said, list):
        raise InputError("bad [model] classes", got=repr(said), expected='["walking", "sitting"]')
    classes = tuple(map(str, said))
    twice = [name for name in classes if classes.count(name) > 1]
    if twice:
        raise InputError("bad [model] classes", got=f"'{twice[0]}' twice", expected="each once")
    for name in classes:
        try:
            NAME.validate_python(name)
        except ValidationError:
            raise InputError(
                "bad name of a class",
                got=repr(name),
                expected="letters, digits, spaces, and . - _; a letter or a digit first",
            ) from None
    return classes


def require_population(settings: FederationSettings, population: object) -> None:
    """Refuse what is no number of devices; without privacy there need be none."""
    whole = isinstance(population, int) and not isinstance(population, bool)
    if population is None and settings.epsilon is None:
        return
    if not whole or not isinstance(population, int) or population < 1:
        raise InputError(
            "bad [privacy] population",
            got=population,
            expected="how many devices there are, as far as is public",
        )


def texts_from(name: str, said: object) -> tuple[str, ...]:
    """A list of names, or one."""
    texts = [said] if isinstance(said, str) else said
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"bad {name}", got=said, expected="a list of names")
    return tuple(texts)


def sensing_from(said: object) -> Sensing:
    """What is collected, of one sensor."""
    try:
        found = Sensing.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(
            f"bad [[sensing]] {where}", got=first["input"], expected=first["msg"]
        ) from None
    if found.least_rate > found.rate:
        raise InputError(
            "bad [[sensing]] least_rate",
            got=found.least_rate,
            expected=f"at most rate: {found.rate}",
        )
    return found


def shape_from(said: object) -> tuple[int, ...]:
    """Of an example."""
    whole = isinstance(said, list | tuple) and all(type(size) is int for size in said)
    if not whole or not isinstance(said, list | tuple) or not said:
        raise InputError("bad [model] shape", got=said, expected="whole numbers, such as [9, 128]")
    return tuple(said)


def bounds_from(said: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of the inputs: one for all places, or one for each."""
    if not isinstance(said, list) or len(said) != 2:
        raise InputError("bad [model] bounds", got=said, expected="[low, high]")
    sides = [tuple(side) if isinstance(side, list) else (side,) for side in said]
    numbers = [number for side in sides for number in side]
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise InputError("bad [model] bounds", got=said, expected="finite numbers")
    low, high = (tuple(map(float, side)) for side in sides)
    if len(low) != len(high) or any(a >= b for a, b in zip(low, high, strict=True)):
        raise InputError("bad [model] bounds", got=said, expected="low below high in every place")
    return low, high


def require_known(section: str, part: Mapping[str, Any], known: Any) -> None:
    """Refuse a field that nobody reads."""
    unknown = sorted(set(part) - set(known))
    if unknown:
        expected = ", ".join(known) or "nothing more"
        raise InputError(f"unknown field of [{section}]", got=unknown[0], expected=expected)


def require_name(name: str) -> None:
    """Refuse a name that does not fit into an address."""
    plain = isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum()
    if not plain or not name.isascii() or not name[0].isalnum() or len(name) > LONGEST_NAME:
        raise InputError(
            "bad name of a model",
            got=repr(name),
            expected="letters, digits, - and _",
            fix="har-wild",
        )
