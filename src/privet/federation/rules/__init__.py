"""Rules of aggregation by name, one a file."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final

from privet.engine.arguments import in_words
from privet.errors import InputError
from privet.federation.rule import Rule
from privet.federation.rules.fedadam import fedadam
from privet.federation.rules.fedavg import fedavg
from privet.federation.rules.fedbuff import fedbuff
from privet.federation.rules.fedprox import fedprox
from privet.federation.rules.flsys import flsys
from privet.federation.rules.krum import krum
from privet.federation.rules.median import median
from privet.federation.rules.trimmed_mean import trimmed_mean

RULES: Final[Mapping[str, Callable[..., Rule]]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedadam": fedadam,
    "fedbuff": fedbuff,
    "flsys": flsys,
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
}

# What other rules are made of fedavg by: nobody asks fedavg itself for it.
_MADE_OF: Final[Mapping[str, tuple[str, ...]]] = {"fedavg": ("name", "proximal")}


def rule_named(name: str, **settings: Any) -> Rule:
    """The rule of that name with these settings; those that are None keep their defaults."""
    if name not in RULES:
        raise InputError("unknown rule", got=f"'{name}'", expected=" | ".join(RULES))
    given = {key: value for key, value in settings.items() if value is not None}
    known = [key for key in signature(RULES[name]).parameters if key not in _MADE_OF.get(name, ())]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(
            f"'{name}' has no such setting",
            got=in_words(unknown[0]),
            expected=", ".join(map(in_words, known)),
        )
    return RULES[name](**given)


__all__ = ["RULES", "rule_named"]
