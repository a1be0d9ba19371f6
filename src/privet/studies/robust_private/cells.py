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
from privet.training.recipes import settings_of
from privet.training.registry import METHODS, Variant, find_method


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method under one analysis; `name` is what `--methods` and all tables call it."""

    name: str
    method: str
    analysis: str
    variant: Variant

    @property
    def takes_delta(self) -> bool:
        """Whether its target has a delta; one whose own is zero claims pure privacy."""
        return any(f.name == "delta" and f.default != 0.0 for f in fields(self.variant.settings))


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
        budget = [] if self.epsilon is None else [f"epsilon{self.epsilon!r}"]
        who = (self.contender.method, self.contender.analysis)
        return "-".join([*who, *budget, f"seed{self.seed}"])

    @property
    def title(self) -> str:
        """For a progress bar."""
        budget = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return f"{self.contender.name}{budget}, seed {self.seed}"

    def asked(self, data: Dataset) -> dict[str, Any]:
        """What decides on the training; where it runs does not."""
        settings = asdict(self.settings) | {"device": None}
        who = {"method": self.contender.method, "analysis": self.contender.analysis}
        asked: dict[str, Any] = json.loads(
            json.dumps({"data": data.name, **who, "settings": settings})
        )
        return asked


def contenders(names: Sequence[str] | None = None) -> list[Contender]:
    """Those that are named, `METHOD` or `METHOD:ANALYSIS`; default: all of the registry."""
    if names is None:
        return [
            _contender(method.name, analysis)
            for method in METHODS.values()
            for analysis in method.analyses
        ]
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
    _require_budgets(epsilons, delta, seeds)
    taking_part = {one.name: one.variant.options for one in chosen}
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
    target: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    if epsilon is not None and one.takes_delta:
        target["delta"] = delta
    ours = {"init_seed": seed, "device": device}
    return one.variant.settings(**given, **target, **ours).filled_for(data)


def _require_budgets(epsilons: Sequence[float], delta: float, seeds: Sequence[int]) -> None:
    for epsilon in epsilons:
        check_target(epsilon, delta)
    for what, values in (("epsilons", epsilons), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise InputError(f"bad {what}", got=list(values), expected="at least one, each once")
