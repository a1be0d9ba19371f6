"""Who takes part.

| name              | what                                                             | basis   |
|-------------------|------------------------------------------------------------------|---------|
| `l2dp-objective`  | one noisy objective for each task, minimised together            | proved  |
| `l2dp`            | private A-GEM, a memory behind secret coins, lifetimes accounted | proved  |
| `er`, `ewc`       | replay from the same memory; springs instead of one              | proved  |
| `naive`           | private steps on one task after another, no memory               | proved  |
| `dpsgd-agem`      | private A-GEM, the (epsilon, delta) of all parts added up        | proved  |
| `joint`           | all tasks at once, for comparison                                | proved  |
| `l2dp:paper`      | L2DP-ML as published                                             | claimed |
| `twin`            | its network and its loop, without noise: A-GEM                   | none    |
| `twin-offset`     | gets the published inputs, and takes the offset off              | none    |
| `agem`, `er:none` | without privacy                                                  | none    |
| `ewc:none`, ...   |                                                                  | none    |
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from privet.errors import InputError
from privet.lifelong.fitting import NONE, Way, find_way
from privet.lifelong.settings import EPISODIC, OBJECTIVE
from privet.training.registry import PAPER, SOUND

HERO: Final = "l2dp-objective"
STUDY_OWN: Final = frozenset(("epsilon", "delta", "init_seed", "device", "variant"))


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method with what makes it this contender; `name` is what all tables call it.

    Attributes:
        method, analysis, memory: as `privet lifelong fit` takes them.
        target: whether it has an epsilon.
        own: settings that may not be changed.
    """

    name: str
    method: str
    analysis: str = SOUND
    memory: str = EPISODIC
    target: bool = True
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def way(self) -> Way:
        """How it learns."""
        return find_way(self.method, self.analysis, self.memory)[1]

    @property
    def options(self) -> set[str]:
        """What may be set about it."""
        return self.way.options - STUDY_OWN


def _twin(name: str, variant: str) -> Contender:
    own = {"variant": variant}
    return Contender(name=name, method="l2dp", analysis=PAPER, target=False, own=own)


def _plain(name: str, method: str) -> Contender:
    return Contender(name=name, method=method, analysis=NONE, target=False)


CONTENDERS: Final = {
    one.name: one
    for one in (
        Contender(name=HERO, method="l2dp", memory=OBJECTIVE),
        Contender(name="l2dp", method="l2dp"),
        *(Contender(name=n, method=n) for n in ("er", "ewc", "naive", "dpsgd-agem", "joint")),
        Contender(name="l2dp:paper", method="l2dp", analysis=PAPER, own={"variant": "published"}),
        _twin("twin", "agem"),
        _twin("twin-offset", "offset"),
        _plain("agem", "agem"),
        *(_plain(f"{n}:none", n) for n in ("er", "ewc", "naive", "joint")),
    )
}
STEPWISE: Final = tuple(
    name for name, one in CONTENDERS.items() if one.analysis != PAPER and one.memory == EPISODIC
)
DEFAULT: Final = (HERO, "l2dp", "naive", "dpsgd-agem", "l2dp:paper", "twin", "agem")


def chosen(names: Sequence[str] | None = None) -> list[Contender]:
    """Those that are named, in the order of the table."""
    asked = DEFAULT if names is None else names
    for name in asked:
        if name not in CONTENDERS:
            near = difflib.get_close_matches(name, CONTENDERS, n=1)
            raise InputError(
                "unknown contender",
                got=f"'{name}'",
                expected=f"one of {', '.join(CONTENDERS)}",
                fix=f"did you mean '{near[0]}'?" if near else "",
            )
    if not asked or len(set(asked)) < len(asked):
        raise InputError("bad list of contenders", got=", ".join(asked), expected="each one once")
    return [one for name, one in CONTENDERS.items() if name in asked]
