"""The cells of the study: (stream, contender, epsilon, seed), and what each learns with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, final

from privet.errors import InputError
from privet.studies.lifelong.contenders import CONTENDERS, Contender
from privet.studies.lifelong.known import SETTINGS
from privet.studies.lifelong.streams import Wanted
from privet.studies.robust_private.cells import folder_of, require_budgets, title_of
from privet.studies.robust_private.choices import RESERVED, Choices
from privet.training.registry import PAPER

OWN: Final = {**RESERVED, "variant": "--contenders l2dp:paper, twin, twin-offset"}


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One stream, learned once; `options` are those of `privet lifelong fit`."""

    stream: Wanted
    contender: Contender
    epsilon: float | None
    seed: int
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """Of its folder."""
        label = self.stream.label.replace("/", "-").replace(":", "-")
        return f"{label}-{folder_of(self.contender.name, self)}"

    @property
    def title(self) -> str:
        """For a progress bar."""
        return f"{self.stream.label}, {title_of(self)}"

    @property
    def needs(self) -> tuple[str, ...]:
        """No other cell."""
        return ()

    def asked(self) -> dict[str, Any]:
        """What decides on it; on which device it learns does not."""
        one = self.contender
        asked = {
            "data": self.stream.label,
            "stream": self.stream.asked(),
            "method": one.method,
            "analysis": one.analysis,
            "memory": one.memory,
            "settings": {k: v for k, v in self.options.items() if k != "device"},
        }
        return dict(json.loads(json.dumps(asked)))


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What holds for all cells; `choices` by the names of the streams."""

    streams: Sequence[Wanted]
    choices: dict[str, Choices]
    epsilons: Sequence[float]
    delta: float
    seeds: Sequence[int]
    device: str


def all_cells(taking_part: Sequence[Contender], terms: Terms) -> list[Cell]:
    """Every cell, its settings checked, so that nothing is refused hours later."""
    require_budgets(terms.epsilons, terms.delta, terms.seeds)
    named = {one.name: one.options for one in taking_part}
    for choices in terms.choices.values():
        choices.require_known(named, set(CONTENDERS) - set(named), OWN)
    return [
        Cell(
            stream=stream,
            contender=one,
            epsilon=epsilon,
            seed=seed,
            options=_options(stream, one, epsilon, seed, terms),
        )
        for stream in terms.streams
        for one in taking_part
        for epsilon in (terms.epsilons if one.target else (None,))
        for seed in terms.seeds
    ]


def known_settings(stream: Wanted) -> dict[str, Any]:
    """What is known about a stream, as `choices_for` takes it."""
    return {stream.base: SETTINGS.get(stream.base, {}).get(stream.is_shared, {})}


def _options(
    stream: Wanted, one: Contender, epsilon: float | None, seed: int, terms: Terms
) -> dict[str, Any]:
    way = one.way
    given = {**terms.choices[stream.label].of(one.name, epsilon, one.options), **one.own}
    ours = {"init_seed": seed, "device": terms.device}
    options = given | {k: v for k, v in ours.items() if k in way.options}
    if epsilon is not None:
        options["epsilon"] = epsilon
        if any(f.name == "delta" for f in fields(way.settings)) and one.analysis != PAPER:
            options["delta"] = terms.delta
    try:
        way.settings(**options)
    except (InputError, TypeError) as error:
        raise InputError(f"{one.name}: {error}") from None
    return options
