"""Who takes part: a network of the family (or the reference), under one analysis.

| name                       | what                                                  | in papers   |
|----------------------------|-------------------------------------------------------|-------------|
| `autoregressive`           | a transformer over discretised rows: the reference    |             |
| `vae`, `gan`, `vaegan`,    | recurrent networks: the baselines                     | VAE, GAN,   |
| `aae`, `daae`              |                                                       | ...         |
| `dgat`                     | `igamt` without imitator, mask critic and embeddings  | w/o_emb     |
| `dgatt`                    | the same with the embedding of time                   | only_t_emb  |
| `dgamt`                    | the same with all embeddings                          | w/o_imi     |
| `edgamt`                   | the same with the mask critic: all but the imitator   | w/o_imi_var |
| `igamt`                    | everything                                            | IGAMT       |
| `igamt-no-mask`, ...       | everything but one part; take part if they are named  |             |

`NAME` is the sound version, `NAME:paper` as published, `NAME:none` without privacy. `all`,
`all:paper` and `all:none` are all of a kind that there are. The reference is always in the tables.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from privet.errors import InputError
from privet.synthesis.fitting import METHODS
from privet.training.registry import Variant

REFERENCE: Final = "autoregressive"
HERO: Final = "igamt"
EVERY: Final = "all"
SOUND, PAPER, NONE = ANALYSES = ("sound", "paper", "none")
BASELINES: Final = ("vae", "gan", "vaegan", "aae", "daae")
LADDER: Final = {
    "dgat": "imitator,mask,time,mixed",
    "dgatt": "imitator,mask,mixed",
    "dgamt": "imitator,mask",
    "edgamt": "imitator",
}
SINGLE: Final = {"igamt-no-mask": "mask", "igamt-no-time": "time", "igamt-no-mixed": "mixed"}


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A network under one analysis; `name` is what all tables call it.

    Attributes:
        base: its name without the analysis.
        method, analysis: of the registry of `privet synthesize`.
        own: settings that make it what it is; may not be changed.
    """

    base: str
    method: str
    analysis: str
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The sound one has the plain name."""
        return self.base if self.analysis == SOUND else f"{self.base}:{self.analysis}"

    @property
    def variant(self) -> Variant:
        """How it is trained."""
        return METHODS[self.method].under(self.analysis)

    @property
    def options(self) -> set[str]:
        """What may be set about it."""
        return self.variant.settable - set(self.own)

    @property
    def lacks(self) -> str:
        """Why it cannot take part; nothing if it can."""
        if self.method not in METHODS:
            return f"there is no method '{self.method}'"
        if self.analysis not in METHODS[self.method].analyses:
            return f"'{self.method}' has no analysis '{self.analysis}'"
        foreign = sorted(set(self.own) - self.variant.options)
        return f"'{self.method}' has no option '{foreign[0]}'" if foreign else ""


def _bases() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for name in (REFERENCE, *BASELINES):
        yield name, name, {}
    for name, parts in LADDER.items():
        yield name, HERO, {"without": parts}
    yield HERO, HERO, {}
    for name, part in SINGLE.items():
        yield name, HERO, {"without": part}


CONTENDERS: Final = {
    one.name: one
    for analysis in ANALYSES
    for base, method, own in _bases()
    for one in [Contender(base=base, method=method, analysis=analysis, own=own)]
}
USUAL: Final = tuple(EVERY if a == SOUND else f"{EVERY}:{a}" for a in ANALYSES)


@final
@dataclass(frozen=True, kw_only=True)
class Field:
    """Who takes part, and who was asked for and cannot, with the reason."""

    taking_part: tuple[Contender, ...]
    left_out: Mapping[str, str]


def chosen(names: Sequence[str] | None = None) -> Field:
    """Those that are named, and the reference beside them; in the order of the table.

    One that is named itself must be there; of `all` those are left out that are not.
    """
    asked = USUAL if names is None else names
    if not asked or len(set(asked)) < len(asked):
        raise InputError("bad list of contenders", got=", ".join(asked), expected="each one once")
    wanted, left_out = set[str](), {}
    for name in asked:
        for one in _meant(name):
            if not one.lacks:
                wanted.add(one.name)
            elif name.partition(":")[0] == EVERY:
                left_out[one.name] = one.lacks
            else:
                raise InputError(f"'{name}' cannot take part", got=one.lacks)
    analyses = dict.fromkeys([SOUND, *(CONTENDERS[name].analysis for name in wanted)])
    wanted |= {one.name for a in analyses for one in _meant(_name(REFERENCE, a)) if not one.lacks}
    taking_part = tuple(one for name, one in CONTENDERS.items() if name in wanted)
    return Field(taking_part=taking_part, left_out=left_out)


def _meant(name: str) -> list[Contender]:
    """One, or all of an analysis but for those that must be named."""
    base, colon, analysis = name.partition(":")
    if base == EVERY and (analysis or SOUND) in ANALYSES:
        kind = analysis or SOUND
        return [c for c in CONTENDERS.values() if c.analysis == kind and c.base not in SINGLE]
    full = _name(base, analysis) if colon else base
    if full in CONTENDERS:
        return [CONTENDERS[full]]
    near = difflib.get_close_matches(name, CONTENDERS, n=1)
    bases = [one.base for one in CONTENDERS.values() if one.analysis == SOUND]
    raise InputError(
        "unknown contender",
        got=f"'{name}'",
        expected=f"NAME, NAME:paper or NAME:none, where NAME is one of {', '.join(bases)}, {EVERY}",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )


def _name(base: str, analysis: str) -> str:
    return base if analysis == SOUND else f"{base}:{analysis}"
