"""The schema file: a TOML in which a user declares the public facts about own records.

    [records]                      name, patient, time, nominal_size, ... as in `Schema`
    [[temporal]]                   a column each, with low and high, or with values
    [[static]], [[outcome]]        likewise
    [[constraint]]                 above and below, or column and value of an end
    [[learned]]                    what was learned privately, and its price

The same facts as JSON stand in the config of a release.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from privet.data.dataset import LearnedFact
from privet.data.records.features import Categorical, Feature, Numeric
from privet.data.records.schema import Constraint, Ends, Order, Schema
from privet.errors import FaultyEnvironment, InputError

TEXT: Final = "a text"
WHOLE: Final = "a whole number"
NUMBER: Final = "a number"
SWITCH: Final = "true or false"
TEXTS: Final = "a list of texts"

# Every key of a section, and what it must be. Missing ones have the default of their class.
RECORDS: Final = {
    "name": TEXT,
    "patient": TEXT,
    "stay": TEXT,
    "time": TEXT,
    "time_unit": TEXT,
    "time_decimals": WHOLE,
    "timestamps": SWITCH,
    "start": TEXT,
    "max_steps": WHOLE,
    "max_gap": NUMBER,
    "horizon": NUMBER,
    "gap_bins": WHOLE,
    "nominal_size": WHOLE,
    "licence": TEXT,
}
NUMERIC: Final = {
    "name": TEXT,
    "low": NUMBER,
    "high": NUMBER,
    "bins": WHOLE,
    "scale": TEXT,
    "decimals": WHOLE,
}
CATEGORICAL: Final = {"name": TEXT, "values": TEXTS}
ORDER: Final = {"above": TEXT, "below": TEXT}
ENDS: Final = {"column": TEXT, "value": TEXT}
LEARNED: Final = {"name": TEXT, "epsilon": NUMBER}

# The sections with columns, and the attribute of `Schema` that each of them fills.
COLUMNS: Final = {"temporal": "temporal", "static": "static", "outcome": "outcomes"}
SECTIONS: Final = ("records", *COLUMNS, "constraint", "learned")


def read_schema(path: str | Path) -> Schema:
    """Read and check a schema file."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError("schema file not found", got=path, fix="check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from error
    return schema_from_json(document, where=str(path))


def write_schema(schema: Schema, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a schema file whole or not at all; an existing one only when told to."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise InputError("the schema file exists", got=path, fix="choose another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(schema_to_toml(schema), encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FaultyEnvironment(
            f"cannot write {path}: {error.strerror}", fix="choose a folder you may write to"
        ) from error


def schema_to_toml(schema: Schema) -> str:
    """A schema as the text of its file."""
    blocks = []
    for section, content in schema_to_json(schema).items():
        title = f"[{section}]" if section == "records" else f"[[{section}]]"
        for entry in [content] if section == "records" else content:
            lines = [title, *(f"{key} = {_toml(value)}" for key, value in entry.items())]
            blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """A schema as JSON: the sections of its file."""
    sections: dict[str, Any] = {"records": _entry(schema, RECORDS)}
    for section, attribute in COLUMNS.items():
        sections[section] = [_entry(f, _keys_of(f)) for f in getattr(schema, attribute)]
    sections["constraint"] = [_entry(c, _keys_of(c)) for c in schema.constraints]
    sections["learned"] = [_entry(fact, LEARNED) for fact in schema.learned]
    return {name: content for name, content in sections.items() if content}


def schema_from_json(document: Mapping[str, Any], *, where: str = "schema") -> Schema:
    """The schema of `schema_to_json`, exactly; what is corrupt is bad input."""
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: not a schema", expected="sections")
    _check_keys(where, "the file", document, SECTIONS, required=("records", "temporal"))
    facts = document["records"]
    _check_entry(where, "[records]", facts, RECORDS, ("name", "nominal_size"))
    columns: dict[str, Any] = {
        attribute: tuple(_feature(where, section, e) for e in _entries(where, document, section))
        for section, attribute in COLUMNS.items()
    }
    learned = _entries(where, document, "learned")
    for entry in learned:
        _check_entry(where, "[[learned]]", entry, LEARNED, LEARNED)
    constraints = [_constraint(where, e) for e in _entries(where, document, "constraint")]
    return Schema(
        **_floats(facts, RECORDS),
        **columns,
        constraints=tuple(constraints),
        learned=tuple(LearnedFact(**_floats(entry, LEARNED)) for entry in learned),
    )


def _keys_of(item: Feature | Constraint) -> Mapping[str, str]:
    kinds = {Numeric: NUMERIC, Categorical: CATEGORICAL, Order: ORDER, Ends: ENDS}
    return kinds[type(item)]


def _entry(item: object, keys: Iterable[str]) -> dict[str, Any]:
    values = {key: getattr(item, key) for key in keys}
    found = {key: value for key, value in values.items() if value is not None}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}


def _entries(where: str, document: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    entries = document.get(section, [])
    if not isinstance(entries, list):
        raise InputError(f"{where}: bad '{section}'", expected=f"sections [[{section}]]")
    return entries


def _feature(where: str, section: str, entry: Any) -> Feature:
    title = f"[[{section}]]"
    if isinstance(entry, Mapping) and "values" in entry:
        _check_entry(where, title, entry, CATEGORICAL, CATEGORICAL)
        return Categorical(name=entry["name"], values=tuple(entry["values"]))
    _check_entry(where, title, entry, NUMERIC | CATEGORICAL, ("name", "low", "high"))
    return Numeric(**_floats(entry, NUMERIC))


def _constraint(where: str, entry: Any) -> Constraint:
    if isinstance(entry, Mapping) and not {"column", "value"} & set(entry):
        _check_entry(where, "[[constraint]]", entry, ORDER | ENDS, ORDER)
        return Order(**entry)
    _check_entry(where, "[[constraint]]", entry, ENDS, ENDS)
    return Ends(**entry)


def _floats(entry: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The entry with every number that may have a fraction as one."""
    return {k: float(v) if keys[k] == NUMBER else v for k, v in entry.items()}


def _check_entry(
    where: str, title: str, entry: Any, keys: Mapping[str, str], required: Iterable[str]
) -> None:
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: bad {title}", expected="keys and values")
    _check_keys(where, title, entry, keys, required)
    for key, value in entry.items():
        if not _fits(value, keys[key]):
            raise InputError(
                f"{where}: bad '{key}' in {title}",
                got=repr(value),
                expected=keys[key],
                fix=f"correct '{key}'",
            )


def _check_keys(
    where: str, title: str, given: Iterable[str], known: Iterable[str], required: Iterable[str]
) -> None:
    given, known = list(given), list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            raise InputError(
                f"{where}: unknown key '{key}' in {title}",
                expected=f"one of {', '.join(known)}",
                fix=f"write '{near[0]}'" if near else f"remove '{key}'",
            )
    for key in required:
        if key not in given:
            raise InputError(f"{where}: key '{key}' is missing in {title}", fix=f"add '{key}'")


def _fits(value: object, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str) and bool(value.strip())
    if kind == SWITCH:
        return isinstance(value, bool)
    if kind == TEXTS:
        return isinstance(value, list) and all(_fits(word, TEXT) for word in value)
    # A bool is an int in Python; TOML's whole numbers have 64 bits, which tomllib lets pass.
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return whole or (kind == NUMBER and isinstance(value, float))


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but TOML knows no surrogate pairs and no bare DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()  # numbers, and true or false
