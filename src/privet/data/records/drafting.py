"""Draft a schema from what its owner declares; of the file only the header is read.

A column is declared as NAME=LOW:HIGH[:log][:DECIMALS], or as NAME=WORD,WORD,..., or, where its
bounds are still to be learned privately, as NAME=?[:log][:DECIMALS]. A constraint is ABOVE>=BELOW,
or COLUMN=WORD for "nothing comes after it".
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from privet.data.records.chunks import check_kind, header_of
from privet.data.records.features import Categorical, Feature, Numeric
from privet.data.records.layouts import VALUE, VARIABLE
from privet.data.records.schema import Constraint, Ends, Order, Schema
from privet.errors import InputError

FORM: Final = "NAME=LOW:HIGH[:log][:DECIMALS], NAME=WORD,WORD or NAME=? to learn its bounds"
LEARN: Final = "?"
UNKNOWN: Final = ("0", "1")  # stand for bounds until they are learned


@final
@dataclass(frozen=True, kw_only=True)
class Draft:
    """A schema, and what is still to do about it.

    Attributes:
        schema: as declared; the bounds of `unknown` columns only hold the place.
        unknown: columns whose bounds are to be learned (`learn_schema`) before anything else.
        undeclared: columns of the file that the schema does not have; they will not be read.
    """

    schema: Schema
    unknown: tuple[str, ...]
    undeclared: tuple[str, ...]


def draft_schema(
    path: str | Path,
    *,
    temporal: Sequence[str | Feature],
    static: Sequence[str | Feature] = (),
    outcomes: Sequence[str | Feature] = (),
    constraints: Sequence[str | Constraint] = (),
    static_path: str | Path | None = None,
    **facts: Any,
) -> Draft:
    """The schema of a file of records, from declared facts alone.

    Args:
        path: of the file, in wide or long form.
        temporal: columns, declared as `parse_feature` reads them.
        static: likewise.
        outcomes: likewise.
        constraints: declared as `parse_constraint` reads them.
        static_path: of the second file with static columns and outcomes.
        facts: the other facts of a `Schema`: name, patient, time, nominal_size, ...

    Nothing is read off the records: a column that is declared and not in the header is bad input.
    """
    facts.setdefault("name", Path(path).name.split(".")[0])
    if "nominal_size" not in facts:
        raise InputError(
            "no nominal_size given",
            expected="about how many patients there are, a public number",
            fix="add --nominal-size N",
        )
    schema = Schema(
        temporal=tuple(map(_feature, temporal)),
        static=tuple(map(_feature, static)),
        outcomes=tuple(map(_feature, outcomes)),
        constraints=tuple(parse_constraint(c) if isinstance(c, str) else c for c in constraints),
        **facts,
    )
    declared = [*temporal, *static, *outcomes]
    header = header_of(check_kind(Path(path)))
    second = [] if static_path is None else header_of(check_kind(Path(static_path)))
    return Draft(
        schema=schema,
        unknown=tuple(_unknown(text) for text in declared if _unknown(text)),
        undeclared=_compare(Path(path), schema, header, second),
    )


def parse_feature(text: str) -> Feature:
    """A column of NAME=LOW:HIGH[:log][:DECIMALS], NAME=?[:log][:DECIMALS] or NAME=WORD,WORD,..."""
    name, sign, what = text.partition("=")
    if not sign or not name.strip() or not what.strip():
        raise _bad(text)
    parts = [part.strip() for part in what.split(":")]
    if parts[0] == LEARN:
        parts = [*UNKNOWN, *parts[1:]]
    if len(parts) == 1:
        return Categorical(name=name.strip(), values=tuple(w.strip() for w in what.split(",")))
    low, high, *rest = parts
    scale = "log" if rest[:1] == ["log"] else "linear"
    decimals = rest[1:] if scale == "log" else rest
    if len(decimals) > 1:
        raise _bad(text)
    try:
        return Numeric(
            name=name.strip(),
            low=float(low),
            high=float(high),
            scale=scale,
            decimals=int(decimals[0]) if decimals else None,
        )
    except ValueError:
        raise _bad(text) from None


def parse_constraint(text: str) -> Constraint:
    """A constraint of ABOVE>=BELOW, or COLUMN=WORD for "nothing comes after it"."""
    above, sign, below = text.partition(">=")
    if sign:
        return Order(above=above.strip(), below=below.strip())
    column, sign, value = text.partition("=")
    if not sign:
        raise InputError("bad constraint", got=f"'{text}'", expected="ABOVE>=BELOW or COLUMN=WORD")
    return Ends(column=column.strip(), value=value.strip())


def _feature(declared: str | Feature) -> Feature:
    return parse_feature(declared) if isinstance(declared, str) else declared


def _unknown(declared: str | Feature) -> str:
    """The name of a column whose bounds are to be learned; empty for any other."""
    name, _, what = declared.partition("=") if isinstance(declared, str) else ("", "", "")
    return name.strip() if what.strip().startswith(LEARN) else ""


def _bad(text: str) -> InputError:
    return InputError("bad declaration of a column", got=f"'{text}'", expected=FORM)


def _compare(
    path: Path, schema: Schema, header: Sequence[str], second: Sequence[str]
) -> tuple[str, ...]:
    """Refuse declared columns that are nowhere; return the others, which nobody declared."""
    columns = {*header, *second}
    temporal = {feature.name for feature in schema.temporal}
    long = {VARIABLE, VALUE} <= columns and not temporal <= columns
    special = {name for name in (schema.patient, schema.stay, schema.time, schema.start) if name}
    facts = {feature.name for feature in (*schema.static, *schema.outcomes)}
    # In the long form variables are in the rows, which are not read.
    declared = special | facts | ({VARIABLE, VALUE} if long else temporal)
    for name in sorted(declared - columns):
        near = difflib.get_close_matches(name, columns, 1)
        raise InputError(
            f"{path} has no column '{name}'",
            expected=f"one of its columns: {', '.join([*header, *second][:20])}",
            fix=f"did you mean '{near[0]}'?" if near else "",
        )
    return tuple(dict.fromkeys(name for name in [*header, *second] if name not in declared))
