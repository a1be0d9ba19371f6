"""What is searched: a public list of values for each setting, drawn uniformly for each trial.

Every trial must be one and the same mechanism: draw a candidate, train it, score it. Its Renyi
divergence is at most the largest over the candidates, order by order (the candidate drawn is part
of the output, and it does not depend on the records). So that this costs nothing, only settings
that leave the run's event as it is may be searched; the others have one value.
"""

import difflib
import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from privet.errors import InputError
from privet.privacy.randomness import SecretStream
from privet.training.settings import Settings

_NUMBER: Final = (int, float)
SEARCHABLE: Final[Mapping[str, tuple[type, ...]]] = {
    "learning_rate": _NUMBER,
    "schedule": (str,),
    "warmup": _NUMBER,
    "optimizer": (str,),
    "momentum": _NUMBER,
    "clip_norm": _NUMBER,
    "clipping": (str,),
    "contribution": (int,),
    "augment": (str,),
    "views": (int,),
    "input_noise": _NUMBER,
    "adversarial_norm": (str,),
    "adversarial_size": _NUMBER,
    "adversarial_steps": (int,),
    "ema": _NUMBER,
    "model": (str,),
    "init_seed": (int,),
}
# These decide how often, and how, a unit is touched: they change the event.
PLANNED: Final[Mapping[str, tuple[type, ...]]] = {
    "batch": (int,),
    "epochs": _NUMBER,
    "sampler": (str,),
    "cycle": (int,),
    "bands": (int,),
}
MOST_CANDIDATES: Final = 10_000  # all are checked before anything is charged


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings with one value each (`base`), and lists of candidates for the rest (`axes`)."""

    base: Settings
    axes: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, search: Mapping[str, Any], fixed: Mapping[str, Any]) -> Self:
        """From a mapping of names to a value or a list of values, and settings given elsewhere."""
        unknown = set(fixed) - {field.name for field in fields(Settings)}
        if unknown:
            raise InputError("unknown setting", got=", ".join(sorted(unknown)))
        for name, value in search.items():
            _require_setting(name, value, fixed)
        axes = {name: tuple(v) for name, v in search.items() if isinstance(v, list | tuple)}
        for name, values in axes.items():
            _require_choice(name, values)
        count = _size(axes)
        if not 2 <= count <= MOST_CANDIDATES:
            raise InputError(
                "bad number of candidates",
                got=count,
                expected=f"2 to {MOST_CANDIDATES}",
                fix="list several values of a setting" if count < 2 else "list fewer values",
            )
        first = {name: values[0] for name, values in axes.items()}
        built = cls(base=Settings(**{**fixed, **search, **first}), axes=axes)
        for _ in built.candidates():  # each is checked as it is built
            pass
        return built

    def __len__(self) -> int:
        """How many candidates there are."""
        return _size(self.axes)

    def filled(self, base: Settings) -> "Search":
        """The same around another base."""
        return replace(self, base=base)

    def candidates(self) -> Iterator[Settings]:
        """All of them."""
        for values in itertools.product(*self.axes.values()):
            yield self._with(values)

    def draw(self, trial: int, stream: SecretStream) -> Settings:
        """The candidate of a trial: a uniform draw for each setting, from the trial's address."""
        u = stream.uniform(len(self.axes), purpose="candidate", step=trial)
        pairs = zip(self.axes.values(), u, strict=True)
        return self._with(tuple(values[int(len(values) * x)] for values, x in pairs))

    def _with(self, values: tuple[Any, ...]) -> Settings:
        return replace(self.base, **dict(zip(self.axes, values, strict=True)))


def read_search(path: str | Path) -> dict[str, Any]:
    """The search in a TOML file: `learning_rate = [0.1, 0.5]`, `epochs = 20`, ..."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("file not found", got=path, expected="a search (.toml)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("corrupt TOML", got=f"{path}: {error}") from None


def _size(axes: Mapping[str, tuple[Any, ...]]) -> int:
    count = 1
    for values in axes.values():
        count *= len(values)
    return count


def _require_setting(name: str, value: Any, fixed: Mapping[str, Any]) -> None:
    known = {**SEARCHABLE, **PLANNED}
    if name not in known:
        _refuse_name(name, known)
    if name in fixed:
        raise InputError(f"'{name}' is given twice", got="in the search and beside it")
    if isinstance(value, list | tuple) and name not in SEARCHABLE:
        raise InputError(
            f"'{name}' cannot be searched",
            got=f"{len(value)} values",
            expected="one value: it decides how records are touched, and every trial must be"
            " the same event",
            fix="give one value, or search once for each",
        )
    values = value if isinstance(value, list | tuple) else [value]
    for entry in values:
        if not isinstance(entry, known[name]) or isinstance(entry, bool):
            kinds = " or ".join(kind.__name__ for kind in known[name])
            raise InputError(f"bad value of '{name}' in the search", got=entry, expected=kinds)


def _refuse_name(name: str, known: Mapping[str, Any]) -> NoReturn:
    if name in {field.name for field in fields(Settings)}:
        raise InputError(
            f"'{name}' is no part of a search",
            expected=f"some of {', '.join(known)}",
            fix="give it beside the search",
        )
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        "unknown setting in the search",
        got=f"'{name}'",
        expected=f"some of {', '.join(known)}",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )


def _require_choice(name: str, values: tuple[Any, ...]) -> None:
    if not values or len(set(values)) < len(values):
        raise InputError(
            f"bad candidates for '{name}'",
            got=list(values),
            expected="at least one value, none of them twice",
        )
