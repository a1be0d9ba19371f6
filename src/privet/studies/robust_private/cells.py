"""Who takes part: every method of the registry, under each of its analyses, and its cells.

A *cell* is one training: (method, analysis, epsilon, seed). A method without a privacy target has
no epsilon, and one cell for each seed. The seed is that of the first weights; sampling and noise of
private methods are secret, so two cells differ by more than that.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, final

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.guarantee import check_target
from privet.studies.robust_private.choices import Choices
from privet.studies.robust_private.training import Lesson
from privet.training.recipes import settings_of
from privet.training.registry import METHODS, Method, Variant, find_in, find_method
from privet.training.with_classifier import WithClassifier


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method under one analysis; `name` is what `--methods` and all tables call it."""

    name: str
    method: str
    analysis: str
    variant: Variant


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training, with all its settings; `settings` is an object of the variant's own class."""

    contender: Contender
    epsilon: float | None
    seed: int
    settings: Any

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_of(f"{self.contender.method}-{self.contender.analysis}", self)

    @property
    def title(self) -> str:
        """For a progress bar."""
        return title_of(self)

    @property
    def needs(self) -> tuple[str, ...]:
        """No other cell."""
        return ()

    def asked(self, data: Dataset) -> dict[str, Any]:
        """What decides on the training; where it runs does not."""
        who = {"method": self.contender.method, "analysis": self.contender.analysis}
        return {"data": data.name, **who, "settings": kept_settings(self.settings)}


def folder_of(who: str, cell: Lesson) -> str:
    """The name of a cell's folder; `who` may have a colon, the name has none."""
    budget = [] if cell.epsilon is None else [f"epsilon{cell.epsilon!r}"]
    return "-".join([who.replace(":", "-"), *budget, f"seed{cell.seed}"])


def title_of(cell: Lesson) -> str:
    """A cell in words."""
    budget = "" if cell.epsilon is None else f", epsilon {cell.epsilon:g}"
    return f"{cell.contender.name}{budget}, seed {cell.seed}"


def kept_settings(settings: Any) -> dict[str, Any]:
    """Settings as JSON reads them again; on which device they are used does not count."""
    kept: dict[str, Any] = json.loads(json.dumps(asdict(settings) | {"device": None}))
    return kept


def target_of(variant: Variant, epsilon: float | None, delta: float) -> dict[str, float]:
    """The target as settings; one whose own delta is zero claims pure privacy, and takes none."""
    if epsilon is None:
        return {}
    takes = any(f.name == "delta" and f.default != 0.0 for f in fields(variant.settings))
    return {"epsilon": epsilon, "delta": delta} if takes else {"epsilon": epsilon}


def contenders(names: Sequence[str] | None = None) -> list[Contender]:
    """Those that are named, `METHOD` or `METHOD:ANALYSIS`.

    Default: all of the registry, but for those that need a classifier which is there already: they
    have a study of their own.
    """
    if names is None:
        return [
            _contender(method.name, analysis)
            for method in _self_contained().values()
            for analysis in method.analyses
        ]
    for name in names:
        _require_self_contained(*_split(name))
    chosen = [_contender(*_split(name)) for name in names]
    if not chosen or len({one.name for one in chosen}) < len(chosen):
        raise InputError("bad list of methods", got=", ".join(names), expected="each one once")
    return chosen


def all_cells(
    chosen: Sequence[Contender],
    data: Dataset,
    choices: Choices,
    *,
    epsilons: Sequence[float],
    delta: float,
    seeds: Sequence[int],
    device: str,
) -> list[Cell]:
    """Every cell, its settings checked, so that nothing is refused hours later."""
    require_budgets(epsilons, delta, seeds)
    taking_part = {one.name: one.variant.settable for one in chosen}
    choices.require_known(taking_part, {one.name for one in contenders()} - set(taking_part))
    return [
        Cell(
            contender=one,
            epsilon=epsilon,
            seed=seed,
            settings=_settings(one, data, choices, epsilon, delta, seed, device),
        )
        for one in chosen
        for epsilon in (epsilons if one.variant.private else (None,))
        for seed in seeds
    ]


def _split(name: str) -> tuple[str, str | None]:
    method, colon, analysis = name.partition(":")
    return method, analysis if colon else None


def _require_self_contained(method: str, analysis: str | None) -> None:
    """Refuse what is unknown, and a method that needs a classifier: this study has none."""
    if method in METHODS and method not in _self_contained():
        raise InputError(
            f"'{method}' needs a classifier that is there already",
            got=f"--methods {method if analysis is None else f'{method}:{analysis}'}",
            expected=f"some of {', '.join(_self_contained())}",
            fix="see `privet study transdenoiser`",
        )
    find_in(_self_contained(), method, where="privet methods")


def _self_contained() -> dict[str, Method]:
    """The methods that need nothing but records."""
    return {
        name: method
        for name, method in METHODS.items()
        if not issubclass(method.under(None).settings, WithClassifier)
    }


def _contender(method: str, analysis: str | None) -> Contender:
    found = find_method(method)
    variant, first = found.under(analysis), next(iter(found.analyses))
    named = first if analysis is None else analysis
    return Contender(
        name=method if named == first else f"{method}:{named}",
        method=method,
        analysis=named,
        variant=variant,
    )


def _settings(
    one: Contender,
    data: Dataset,
    choices: Choices,
    epsilon: float | None,
    delta: float,
    seed: int,
    device: str,
) -> Any:
    options = one.variant.options
    given = choices.of(one.name, epsilon, options)
    given = settings_of(given.get("recipe"), given, data.nominal_size) | given
    target = target_of(one.variant, epsilon, delta)
    ours = {"init_seed": seed, "device": device}
    return one.variant.settings(**given, **target, **ours).filled_for(data)


def require_budgets(epsilons: Sequence[float], delta: float, seeds: Sequence[int]) -> None:
    """Refuse bad targets, and lists that are empty or name one twice."""
    for epsilon in epsilons:
        check_target(epsilon, delta)
    for what, values in (("epsilons", epsilons), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise InputError(f"bad {what}", got=list(values), expected="at least one, each once")
