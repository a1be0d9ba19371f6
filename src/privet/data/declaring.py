"""Write a description file; learn privately, and charge, what its owner does not know."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from privet.data.dataset import EXAMPLE, LearnedFact, Split
from privet.data.description import Description, load_described, write_description
from privet.data.identity import entered_in_ledger
from privet.data.learning import charge, learn_bounds, learn_size, one_of_each
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.randomness import Randomness, SecretStream

Pair = tuple[float, float]
SIZE: Final = "nominal size"
UNKNOWN: Final = (0.0, 1.0)  # stands for bounds until they are learned; never written


def declare(
    file: Path,
    out: Path,
    *,
    features: Mapping[str, Pair | None],
    bounds: Pair | None,
    nominal_size: int | None,
    learn_epsilon: float | None,
    ledger: Ledger,
    test: Path | None = None,
    **facts: Any,
) -> Description:
    """Write the description of `file` to `out`; what is None is learned with `learn_epsilon`.

    Everything learned is charged to the ledger before it is written, and listed in the
    description, so that every release from this data counts it. Where `unit_column` is given, all
    of it is learned and charged for units: the size counts them, and each gives one record.
    """
    if out.exists():  # before anything is charged
        raise InputError("the description file exists", got=out, fix="choose another name")
    _require_unit_name(**facts)
    is_table = bool(features)
    if is_table and facts.get("label") is None:
        raise InputError("no label column given", fix="add --label NAME")
    if test is None and facts.get("test_fraction") is None:
        raise InputError("no test records given", fix="add --test FILE or --test-fraction 0.2")
    unknown_columns = [name for name, pair in features.items() if pair is None]
    missing_bounds = bool(unknown_columns) if is_table else bounds is None
    draft = Description(
        **facts,
        train=_relative(file, out),
        test=None if test is None else _relative(test, out),
        features={name: pair or UNKNOWN for name, pair in features.items()},
        bounds=None if is_table else (bounds or UNKNOWN),
        nominal_size=nominal_size or 1,
    )
    unknown = [
        *([SIZE] if nominal_size is None else []),
        *([f"bounds of {', '.join(unknown_columns) or 'the values'}"] if missing_bounds else []),
    ]
    data = load_described(draft, out)
    if unknown:
        share = _share(unknown, learn_epsilon)
        to_learn = [LearnedFact(name=name, epsilon=share) for name in unknown]
        # Charged before it is computed: even "too little data" is an answer.
        with entered_in_ledger(data, ledger, bounds_known=not missing_bounds):
            charge(ledger, data.name, to_learn)
        draft = _learned(draft, data.train, to_learn, unknown_columns)
    write_description(draft, out)
    return draft


def _require_unit_name(*, unit: str = EXAMPLE, unit_column: str | None = None, **_: Any) -> None:
    if unit_column is not None and unit == EXAMPLE:
        raise InputError(
            f"--unit-column {unit_column} without a name for what it groups",
            got=f"unit '{EXAMPLE}', which is one record",
            fix="add --unit NAME: whose id that column holds, as in --unit patient",
        )


def _learned(
    draft: Description, records: Split, facts: list[LearnedFact], columns: list[str]
) -> Description:
    random = Randomness.fresh()  # two facts, two secret streams
    changes: dict[str, Any] = {"learned": tuple(facts)}
    for fact in facts:
        if fact.name == SIZE:
            changes["nominal_size"] = learn_size(records.n_units, fact.epsilon, random.sampling)
        else:
            changes |= _learned_bounds(draft, records, columns, fact.epsilon, random.noise)
    return replace(draft, **changes)


def _learned_bounds(
    draft: Description, records: Split, columns: list[str], epsilon: float, stream: SecretStream
) -> dict[str, Any]:
    # A unit counts once, however many records it has.
    rows = records.x if records.units is None else records.x[one_of_each(records, stream)]
    if not draft.is_table:
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        # One record adds its smallest and its largest value: two columns.
        ends = np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1)
        (low, _), (_, high) = learn_bounds(ends, epsilon, stream)
        return {"bounds": (low, high)}
    places = [list(draft.features).index(name) for name in columns]
    pairs = learn_bounds(rows[:, places].astype(np.float64), epsilon, stream)
    return {"features": {**draft.features, **dict(zip(columns, pairs, strict=True))}}


def _share(unknown: list[str], learn_epsilon: float | None) -> float:
    if learn_epsilon is None:
        raise InputError(
            f"not declared: {' and '.join(unknown)}",
            expected="every public fact, or a budget to learn it",
            fix="declare it, or give --learn-epsilon 0.5 to learn it privately",
        )
    return learn_epsilon / len(unknown)


def _relative(file: Path, out: Path) -> str:
    return os.path.relpath(file.resolve(), out.resolve().parent)
