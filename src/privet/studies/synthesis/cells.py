"""The cells of the study: (contender, epsilon, seed), and what each is trained with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from privet.data.dataset import Dataset
from privet.errors import InputError
from privet.studies.robust_private.cells import (
    folder_of,
    kept_settings,
    require_budgets,
    target_of,
    title_of,
)
from privet.studies.robust_private.choices import RESERVED, Choices
from privet.studies.synthesis.contenders import CONTENDERS, Contender

OWN: Final = {
    **RESERVED,
    "holdout": "--holdout",
    "without": "--contenders edgamt, igamt-no-time, ...",
}


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training; `settings` is an object of the variant's own class.

    `records` is what decides on the records that it learns from.
    """

    contender: Contender
    epsilon: float | None
    seed: int
    settings: Any
    records: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_of(self.contender.name, self)

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
        records = {"data": data.name, "records": dict(self.records)}
        return {**records, **who, "settings": kept_settings(self.settings)}


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What holds for all cells; `records` as in `Cell`."""

    data: Dataset
    records: Mapping[str, Any]
    choices: Choices
    epsilons: Sequence[float]
    delta: float
    seeds: Sequence[int]
    device: str


def all_cells(taking_part: Sequence[Contender], terms: Terms) -> list[Cell]:
    """Every cell, its settings checked, so that nothing is refused hours later."""
    require_budgets(terms.epsilons, terms.delta, terms.seeds)
    named = {one.name: one.options for one in taking_part}
    terms.choices.require_known(named, set(CONTENDERS) - set(named), OWN)
    return [
        Cell(
            contender=one,
            epsilon=epsilon,
            seed=seed,
            settings=_settings(one, epsilon, seed, terms),
            records=terms.records,
        )
        for one in taking_part
        for epsilon in (terms.epsilons if one.variant.private else (None,))
        for seed in terms.seeds
    ]


def _settings(one: Contender, epsilon: float | None, seed: int, terms: Terms) -> Any:
    given = terms.choices.of(one.name, epsilon, one.options)
    target = target_of(one.variant, epsilon, terms.delta)
    ours = {"init_seed": seed, "device": terms.device, "holdout": terms.records["holdout"]}
    try:
        settings = one.variant.settings(**{**given, **one.own, **target, **ours})
        return settings.filled_for(terms.data)
    except InputError as error:
        raise InputError(f"{one.name}: {error}") from None
