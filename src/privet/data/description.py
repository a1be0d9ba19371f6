"""The description file: a TOML in which a user declares the public facts about own data.

It is the only way to use one's own data from the command line, because the bounds, the label
space and the size must be declared (or learned privately), never read off the records.
"""

import difflib
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet.data.dataset import EXAMPLE, Bounds, Dataset, LearnedFact
from privet.data.tables import read_arrays, read_table, split_by_content
from privet.data.units import Records, require_apart
from privet.errors import FaultyEnvironment, InputError

TABLE_SUFFIXES = (".csv", ".parquet")
ARRAY_SUFFIXES = (".npz",)


@dataclass(frozen=True, kw_only=True)
class Description:
    """Public facts about a user's data; paths are relative to the description file.

    A table (.csv, .parquet) needs `label` and `features`, whose order is the order of the
    columns; arrays (.npz) need `bounds`. Either `test` or `test_fraction` is given. `parents` are
    data sets in the ledger that this one was made from; it inherits what was spent on them. Where
    a unit has several records, `unit_column` is the column (or array) with its id; `nominal_size`
    counts units.
    """

    name: str
    train: str
    classes: tuple[str, ...]
    nominal_size: int
    test: str | None = None
    test_fraction: float | None = None
    label: str | None = None
    features: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    bounds: tuple[float, float] | None = None
    unit: str = EXAMPLE
    unit_column: str | None = None
    licence: str = "not stated"
    test_is_public: bool = False
    learned: tuple[LearnedFact, ...] = ()
    parents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_facts()
        self._check_parts()
        self._check_columns()

    @property
    def is_table(self) -> bool:
        """Whether the data are a table with named columns, or arrays."""
        return _suffix(self.train) in TABLE_SUFFIXES

    def public_bounds(self) -> Bounds:
        """Return the declared bounds in the order of the columns."""
        pairs = [self.bounds] if self.bounds is not None else list(self.features.values())
        return Bounds(low=tuple(low for low, _ in pairs), high=tuple(high for _, high in pairs))

    def _check_facts(self) -> None:
        distinct = len(set(self.classes)) == len(self.classes) >= 2
        self._need(distinct, "classes", list(self.classes), "at least two different names")
        size = self.nominal_size
        self._need(size >= 1, "nominal_size", size, "a positive whole number")
        for fact in self.learned:
            sound = 0 < fact.epsilon < math.inf
            self._need(sound, "epsilon", fact.epsilon, f"a positive number for {fact.name!r}")

    def _check_parts(self) -> None:
        fraction = self.test_fraction
        got = "neither" if self.test is None else "both"
        one = (self.test is None) != (fraction is None)
        self._need(one, "test", got, "either a test file or a test_fraction")
        inside = fraction is None or 0 < fraction < 1
        self._need(inside, "test_fraction", fraction, "a number between 0 and 1")
        known = (*TABLE_SUFFIXES, *ARRAY_SUFFIXES)
        readable = _suffix(self.train) in known
        self._need(readable, "train", self.train, f"a file ending in {', '.join(known)}")
        kin = TABLE_SUFFIXES if self.is_table else ARRAY_SUFFIXES
        alike = self.test is None or _suffix(self.test) in kin
        self._need(alike, "test", self.test, f"a file ending in {' or '.join(kin)}, as train")

    def _check_columns(self) -> None:
        table, pair, label = self.is_table, self.bounds, self.label
        self._need(table == (label is not None), "label", label, "a column for a table, only")
        apart = label not in self.features
        self._need(apart, "label", label, "a column that is not also a feature")
        names = list(self.features)
        self._need(table == bool(names), "features", names, "bounded columns for a table, only")
        self._need(table == (pair is None), "bounds", pair, "[low, high] for .npz, only")
        self._check_unit_column()
        pairs = {**self.features, **({"bounds": pair} if pair else {})}
        for key, (low, high) in pairs.items():
            sound = low < high and math.isfinite(high - low)
            self._need(sound, key, f"[{low}, {high}]", "finite bounds, low < high")

    def _check_unit_column(self) -> None:
        column = self.unit_column
        if column is None:
            return
        used = (*self.features, self.label) if self.is_table else ("x", "y")
        self._need(
            column not in used, "unit_column", column, "a column that is used for nothing else"
        )
        named = self.unit != EXAMPLE
        self._need(
            named, "unit", self.unit, f"a name for whose records '{column}' groups, as 'user'"
        )

    def _need(self, fulfilled: bool, key: str, got: object, expected: str) -> None:
        if not fulfilled:
            raise InputError(
                f"description of {self.name!r}: bad {key!r}",
                got="nothing" if got in (None, []) else got,
                expected=expected,
                fix=f"correct {key!r} in the description file",
            )


def load_description(path: str | Path) -> Dataset:
    """Read the data that a description file describes, with the facts that it declares."""
    path = Path(path)
    return load_described(read_description(path), path)


def load_described(description: Description, path: Path) -> Dataset:
    """Read the data of a description that stands, or will stand, at `path`."""
    train, test = read_parts(description, path.parent)
    return described(description, path, train, test)


def described(description: Description, path: Path, train: Records, test: Records) -> Dataset:
    """These records with the facts that a description at `path` declares about them."""
    return Dataset(
        name=description.name,
        train=train.split,
        test=test.split,
        bounds=description.public_bounds(),
        classes=description.classes,
        nominal_size=description.nominal_size,
        licence=description.licence,
        source=path.name,  # the name only: a release must not tell the owner's folders
        unit=description.unit,
        test_is_public=description.test_is_public,
        learned=description.learned,
        features=tuple(description.features),
        parents=description.parents,
    )


def read_description(path: str | Path) -> Description:
    """Read and check a description file, without opening the data."""
    path = Path(path)
    document = _read_toml(path)
    _check_keys(path, "the file", document, ("data", "features", "learned"), required=("data",))
    data = _section(path, document, "data")
    _check_keys(path, "[data]", data, _DATA_KEYS, required=_REQUIRED)
    for key, value in data.items():
        _check_type(path, key, value, _DATA_KEYS[key])
    features = _section(path, document, "features")
    for key, value in features.items():
        _check_type(path, key, value, "a pair of numbers")
    facts: dict[str, Any] = dict(data, classes=tuple(data["classes"]))
    facts["parents"] = tuple(data.get("parents", ()))
    if "bounds" in data:
        facts["bounds"] = _pair(data["bounds"])
    return Description(
        **facts,
        features={key: _pair(value) for key, value in features.items()},
        learned=_learned(path, document.get("learned", [])),
    )


def write_description(
    description: Description, path: str | Path, *, overwrite: bool = False
) -> None:
    """Write a description file whole or not at all; an existing one only when told to."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise InputError("the description file exists", got=path, fix="choose another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(_as_toml(description), encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        if temporary.exists():
            temporary.unlink()
        raise FaultyEnvironment(
            f"cannot write {path}: {error.strerror}", fix="choose a folder you may write to"
        ) from error


def read_parts(description: Description, folder: Path) -> tuple[Records, Records]:
    """Training and test records, as the description says."""
    train = _read_part(description, folder / description.train)
    if description.test is None:
        return split_by_content(train, description.test_fraction or 0.0)
    test = _read_part(description, folder / description.test)
    if description.test_is_public:
        require_apart(train, test, description.unit)
    return train, test


def _read_part(facts: Description, path: Path) -> Records:
    if facts.label is None:
        return read_arrays(path, classes=facts.classes, unit_column=facts.unit_column)
    return read_table(
        path,
        features=[*facts.features],
        label=facts.label,
        classes=facts.classes,
        unit_column=facts.unit_column,
    )


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _pair(value: list[float]) -> tuple[float, float]:
    return float(value[0]), float(value[1])


_REQUIRED = ("name", "train", "classes", "nominal_size")
_DATA_KEYS = {
    "name": "a text",
    "train": "a text",
    "test": "a text",
    "test_fraction": "a number",
    "label": "a text",
    "classes": "a list of texts",
    "nominal_size": "a whole number",
    "unit": "a text",
    "unit_column": "a text",
    "licence": "a text",
    "test_is_public": "true or false",
    "bounds": "a pair of numbers",
    "parents": "a list of texts",
}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: object) -> bool:
    # A bool is an int in Python; TOML's whole numbers have 64 bits, which tomllib lets pass.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: object) -> bool:
    return _is_whole(value) or isinstance(value, float)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "a text": _is_text,
    "a whole number": _is_whole,
    "a number": _is_number,
    "true or false": lambda value: isinstance(value, bool),
    "a list of texts": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "a pair of numbers": lambda value: (
        isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
    ),
}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError("description file not found", got=path, fix="check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}") from error


def _section(path: Path, document: dict[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise InputError(f"{path}: bad '{name}'", expected=f"a section [{name}]")
    return section


def _check_keys(
    path: Path, where: str, given: Iterable[str], known: Iterable[str], required: Iterable[str]
) -> None:
    given, known = list(given), list(known)
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise InputError(
                f"{path}: unknown key {key!r} in {where}",
                expected=f"one of {', '.join(known)}",
                fix=f"write '{near[0]}'" if near else f"remove {key!r}",
            )
    for key in required:
        if key not in given:
            raise InputError(
                f"{path}: key '{key}' is missing in {where}",
                expected=_DATA_KEYS.get(key, f"a section [{key}]"),
                fix=f"add '{key}'",
            )


def _check_type(path: Path, key: str, value: object, expected: str) -> None:
    if not _TYPES[expected](value):
        raise InputError(
            f"{path}: bad {key!r}", got=repr(value), expected=expected, fix=f"correct {key!r}"
        )


def _learned(path: Path, entries: object) -> tuple[LearnedFact, ...]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: bad 'learned'", expected="sections [[learned]]")
    for entry in entries:
        _check_keys(path, "[[learned]]", entry, ("name", "epsilon"), required=("name", "epsilon"))
        _check_type(path, "name", entry["name"], "a text")
        _check_type(path, "epsilon", entry["epsilon"], "a number")
    return tuple(LearnedFact(name=e["name"], epsilon=float(e["epsilon"])) for e in entries)


def _as_toml(description: Description) -> str:
    facts = {key: getattr(description, key) for key in _DATA_KEYS}
    lines = ["[data]", *(f"{k} = {_value(v)}" for k, v in facts.items() if v not in (None, ()))]
    if description.features:
        lines += ["", "[features]"]
        lines += [f"{_value(name)} = {_value(pair)}" for name, pair in description.features.items()]
    for fact in description.learned:
        lines += ["", "[[learned]]"]
        lines += [f"name = {_value(fact.name)}", f"epsilon = {_value(fact.epsilon)}"]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but TOML knows no surrogate pairs and no bare DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()  # numbers, and true or false
