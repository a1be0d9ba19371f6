"""What the methods of a study are trained with: three layers, each of them over the one before.

1. `known.SETTINGS` of the data set,
2. a TOML file: a table for each method,
3. `METHOD.OPTION=VALUE` of the command line.

Within a layer what is more special wins: `all`, `all@EPSILON`, `METHOD`, `METHOD@EPSILON`. `all` is
for every method that has the option; under its own name a method must have it.
"""

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from privet.errors import InputError
from privet.studies.robust_private.known import SETTINGS

EVERYONE: Final = "all"
RESERVED: Final = {
    "epsilon": "--epsilons",
    "delta": "--delta",
    "init_seed": "--seeds",
    "device": "--device",
}

Layer = Mapping[str, Mapping[str, Any]]


@final
@dataclass(frozen=True)
class Choices:
    """Layers of settings by method, later ones over earlier ones.

    Attributes:
        asked: on the command line.
        file: lies below; may name methods that do not take part.
        known: lies below both; so may this.
    """

    asked: Layer = field(default_factory=dict)
    file: Layer = field(default_factory=dict)
    known: Layer = field(default_factory=dict)

    def require_known(
        self,
        options: Mapping[str, set[str]],
        others: Collection[str] = (),
        reserved: Mapping[str, str] = RESERVED,
    ) -> None:
        """Refuse what is no method, and options that a method does not have.

        Args:
            options: of every method of the study, by its name there.
            others: names of methods that do not take part; only a file may set them.
            reserved: options of methods that are the study's own, and what sets them.
        """
        for key, settings in (*self.asked.items(), *self.file.items()):
            name = key.partition("@")[0]
            _require_budget(key)
            if name in others and key in self.file and key not in self.asked:
                continue
            if name != EVERYONE and name not in options:
                raise InputError(
                    "settings of a method that does not take part",
                    got=f"'{key}'",
                    expected=f"one of {', '.join([EVERYONE, *options])}",
                    fix=_near(name, options),
                )
            allowed = set().union(*options.values()) if name == EVERYONE else options[name]
            for option in settings:
                _require_option(name, option, allowed, reserved)

    def of(self, name: str, epsilon: float | None, options: set[str]) -> dict[str, Any]:
        """The settings of one method at one budget."""
        found: dict[str, Any] = {}
        for layer in (self.known, self.file, self.asked):
            for whom in (EVERYONE, name):
                found |= {k: v for k, v in layer.get(whom, {}).items() if k in options}
                for key, settings in layer.items():
                    other, at, budget = key.partition("@")
                    if at and other == whom and epsilon is not None and float(budget) == epsilon:
                        found |= {k: v for k, v in settings.items() if k in options}
        return found


def choices_for(
    data: str,
    file: Path | None,
    assignments: Iterable[str],
    known: Mapping[str, Layer] | None = None,
) -> Choices:
    """All layers that there are for this data set; `known`: settings of another study than this."""
    return Choices(
        asked=_assigned(assignments),
        file={} if file is None else _read(file),
        known=(SETTINGS if known is None else known).get(data, {}),
    )


def _read(file: Path) -> Layer:
    try:
        read = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError("no such settings file", got=file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("a settings file that is no TOML", got=f"{file}: {error}") from None
    loose = [name for name, value in read.items() if not isinstance(value, dict)]
    if loose:
        raise InputError(
            "settings outside of a method's table",
            got=f"'{loose[0]}' in {file}",
            expected="a table for each method, or [all]",
            fix=f"write [{EVERYONE}] above it",
        )
    return read


def _assigned(assignments: Iterable[str]) -> Layer:
    layer: dict[str, dict[str, Any]] = {}
    for text in assignments:
        left, equals, value = text.partition("=")
        name, dot, option = left.strip().rpartition(".")
        if not (equals and dot and name and option):
            raise InputError(
                "bad --set", got=f"'{text}'", expected="METHOD.OPTION=VALUE, as dpsgd.epochs=10"
            )
        layer.setdefault(name, {})[option.replace("-", "_")] = _value(value.strip())
    return layer


def _value(text: str) -> Any:
    """As TOML reads it; what it cannot read is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _require_budget(key: str) -> None:
    _, at, budget = key.partition("@")
    try:
        if at:
            float(budget)
    except ValueError:
        raise InputError(
            "settings for a budget that is no number", got=f"'{key}'", expected="METHOD@EPSILON"
        ) from None


def _require_option(name: str, option: str, allowed: set[str], reserved: Mapping[str, str]) -> None:
    if option in reserved:
        raise InputError(
            f"'{option}' is the study's to set", got=f"{name}.{option}", fix=reserved[option]
        )
    if option not in allowed:
        raise InputError(
            f"unknown setting of '{name}'",
            got=f"'{option}'",
            expected=f"some of {', '.join(sorted(allowed - set(reserved)))}",
            fix=_near(option, allowed),
        )


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else ""
