"""The form of a trust card: which fields it must have, of which kind.

Whatever the other checks compute with is read here first. A card of another form is bad input, in
one line that names the field; what is left to them is whether the fields agree.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from privet.engine.assumptions import SERVED
from privet.engine.fixed_parts import FIELD
from privet.errors import InputError
from privet.guarantee import Adjacency, Basis
from privet.privacy.local import LOCAL
from privet.privacy.participation import FEDERATED, FEDERATION, SELF_SELECTED, SERVER_SAMPLED
from privet.privacy.precision import PRECISIONS


@dataclass(frozen=True)
class _Kind:
    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list_of(words: str, fits: Callable[[Any], bool]) -> _Kind:
    return _Kind(f"a list of {words}", lambda v: isinstance(v, list) and all(map(fits, v)))


def _one_of(*names: str) -> _Kind:
    return _Kind(
        f"one of {', '.join(names)}", lambda v: isinstance(v, str) and v in [str(n) for n in names]
    )


_PART: Final = _Kind("a record", lambda v: isinstance(v, Mapping))
_PARTS: Final = _list_of("records", lambda v: isinstance(v, Mapping))
_TEXT: Final = _Kind("a text", lambda v: isinstance(v, str) and v != "")
_TEXTS: Final = _list_of("texts", lambda v: isinstance(v, str))
_FLAG: Final = _Kind("true or false", lambda v: isinstance(v, bool))
_NUMBERS: Final = _list_of("numbers", _is_number)
_FROM_0: Final = _Kind("a whole number, at least 0", lambda v: _is_whole(v) and v >= 0)
_FROM_1: Final = _Kind("a whole number, at least 1", lambda v: _is_whole(v) and v >= 1)
_SEED: Final = _Kind("a whole number, or null", lambda v: v is None or _is_whole(v))
_NUMBER: Final = _Kind("a number", _is_number)
_POSITIVE: Final = _Kind("a positive, finite number", lambda v: _is_number(v) and 0 < v < math.inf)

ANALYSES: Final = ("sound", "paper", "none")

_WHOLE_CARD: Final = {
    "method": _TEXT,
    "analysis": _one_of(*ANALYSES),
    "data": _PART,
    "privacy": _PARTS,
    "withheld": _TEXTS,
    "tuning": _PART,
    "mechanism": _PART,
    "events": _PARTS,
    "provenance": _PART,
}
_DATA: Final = {
    "name": _TEXT,
    "unit": _TEXT,
    "grouped": _FLAG,
    "nominal_size": _FROM_1,
    "test_is_public": _FLAG,
    "learned": _PARTS,
}
_LEARNED: Final = {"name": _TEXT, "epsilon": _POSITIVE}
_STATEMENT: Final = {
    "epsilon": _NUMBER,
    "delta": _NUMBER,
    "unit": _TEXT,
    "adjacency": _one_of(*Adjacency),
    "basis": _one_of(*Basis),
    "accountant": _TEXT,
    "sampler": _TEXT,
    "assumptions": _TEXTS,
    "gaps": _TEXTS,
}
_FIXED_PART: Final = {
    "part": _TEXT,
    "source": _TEXT,
    "digest": _TEXT,
    "public": _FLAG,
    "statement": _TEXT,
}
_SPENT: Final = {
    "run": _TEXT,
    "data": _TEXT,
    "unit": _TEXT,
    "grouped": _FLAG,
    "events": _PARTS,
    "adjacencies": _list_of("texts", lambda v: v in [str(a) for a in Adjacency]),
    "assumptions": _TEXTS,
}
_TUNING: Final = {"kind": _TEXT, "detail": _TEXT, "assumption": _TEXT}
_MECHANISM: Final = {
    "sampler": _TEXT,
    "sampling_rate": _POSITIVE,
    "cycle": _FROM_1,
    "steps": _FROM_1,
    "steps_run": _FROM_0,
    "redone_steps": _FROM_0,
    "clipping": _PART,
    "clip_norm": _POSITIVE,
    "contribution": _FROM_1,
    "noise": _one_of("independent", "correlated"),
    "bands": _NUMBERS,
    "noise_multiplier": _POSITIVE,
    "normaliser": _POSITIVE,
    "torch_draws": _FLAG,
}
_MECHANISM_UNPROTECTED: Final = {  # of a release without proved privacy
    "steps": _FROM_1,
    "steps_run": _FROM_0,
    "batch": _FROM_1,
    "precision": _one_of(*PRECISIONS),
    "contribution": _FROM_1,
    "noise": _TEXT,
}
_MECHANISM_LOCAL: Final = {  # of records that were randomised one by one
    "sampler": _TEXT,
    "places": _FROM_1,
    "dimensions": _FROM_1,
    "record_norm": _POSITIVE,
    "noise": _one_of("laplace"),
    "noise_scale": _POSITIVE,
    "classes": _FROM_1,
    "redrawn": _POSITIVE,
    "keep_probability": _POSITIVE,
    "steps": _FROM_1,
    "steps_run": _FROM_0,
    "batch": _FROM_1,
    "precision": _one_of(*PRECISIONS),
}
_MECHANISM_FEDERATED: Final = {  # of clients whose updates are summed
    "sampler": _one_of(*FEDERATED),
    "steps": _FROM_1,
    "steps_run": _FROM_0,
    "redone_steps": _FROM_0,
    "clip_norm": _POSITIVE,
    "contribution": _FROM_1,
    "noise": _one_of("independent", "correlated"),
    "bands": _NUMBERS,
    "noise_multiplier": _POSITIVE,
    "normaliser": _POSITIVE,
    "precision": _one_of(*PRECISIONS),
}
_PARTICIPATION: Final = {
    SELF_SELECTED: {"participations": _FROM_1, "apart": _FROM_1},
    SERVER_SAMPLED: {"sampling_rate": _POSITIVE},
}
_FEDERATION: Final = {
    "rule": _TEXT,
    "rounds": _FROM_1,
    "sums": _FROM_0,
    "by_clock": _FLAG,
    "made_up": _FLAG,
    "parameters_sent": _FROM_1,
}
_SERVED: Final = {
    "server": _TEXT,
    "version": _FROM_0,
    "rounds_run": _FROM_0,
    "rolled_back": _FROM_0,
    "finished": _FLAG,
    "secure_sum": _FLAG,
    "start": _Kind("a text, or null", lambda v: v is None or (isinstance(v, str) and v != "")),
}
_MECHANISM_SINCE: Final = {"precision": _one_of(*PRECISIONS)}  # earlier cards lack it
_CLIPPING: Final = {"name": _TEXT, "numbers": _PART}
_PROVENANCE: Final = {"privet": _TEXT, "run": _TEXT, "init_seed": _SEED, "config": _PART}


def require_form(trust: Mapping[str, Any]) -> None:
    """Refuse a card that lacks a field, or has something else in its place."""
    _require("", trust, _WHOLE_CARD)
    _require("data", trust["data"], _DATA)
    for fact in trust["data"]["learned"]:
        _require("data.learned", fact, _LEARNED)
    for statement in trust["privacy"]:
        _require("privacy", statement, _STATEMENT)
    for part in _optional(trust, FIELD):
        _require(FIELD, part, _FIXED_PART)
        if "spent" in part:
            _require(FIELD, part, {"spent": _PART})
            _require(f"{FIELD}.spent", part["spent"], _SPENT)
    if FEDERATION in trust:
        _require("", trust, {FEDERATION: _PART})
        _require(FEDERATION, trust[FEDERATION], _FEDERATION)
        if SERVED in trust[FEDERATION]:
            _require(FEDERATION, trust[FEDERATION], {SERVED: _PART})
            _require(f"{FEDERATION}.{SERVED}", trust[FEDERATION][SERVED], _SERVED)
    _require("tuning", trust["tuning"], _TUNING)
    _require("provenance", trust["provenance"], _PROVENANCE)
    if trust["analysis"] in ("none", "paper"):
        _require("mechanism", trust["mechanism"], _MECHANISM_UNPROTECTED)
        return
    if trust["mechanism"].get("sampler") == LOCAL:
        _require("mechanism", trust["mechanism"], _MECHANISM_LOCAL)
        return
    if FEDERATION in trust:
        _require("mechanism", trust["mechanism"], _MECHANISM_FEDERATED)
        _require("mechanism", trust["mechanism"], _PARTICIPATION[trust["mechanism"]["sampler"]])
        return
    since = {name: kind for name, kind in _MECHANISM_SINCE.items() if name in trust["mechanism"]}
    _require("mechanism", trust["mechanism"], _MECHANISM | since)
    _require("mechanism.clipping", trust["mechanism"]["clipping"], _CLIPPING)


def _optional(trust: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The records of a field that most cards lack."""
    if name in trust:
        _require("", trust, {name: _PARTS})
    return list(trust.get(name, ()))


def _require(where: str, part: Mapping[str, Any], fields: Mapping[str, _Kind]) -> None:
    for name, kind in fields.items():
        field = f"{where}.{name}" if where else name
        if name not in part:
            raise InputError("incomplete trust.json", got=f"no '{field}'", fix="restore the file")
        if not kind.fits(part[name]):
            raise InputError(
                f"malformed trust.json: '{field}'",
                got=_shown(part[name]),
                expected=kind.words,
                fix="restore the file",
            )


def _shown(value: Any) -> str:
    plain = value is None or isinstance(value, str | int | float)
    return repr(value) if plain else f"a {type(value).__name__}"
