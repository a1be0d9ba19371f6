"""What a card says about patient records: the public facts of their schema, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from privet.reports import figures


def schema_of(trust: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema on the card of a generator of records; None for a classifier's."""
    data = trust.get("data")
    schema = data.get("schema") if isinstance(data, Mapping) else None
    return schema if isinstance(schema, Mapping) else None


def in_a_line(schema: Mapping[str, Any]) -> str:
    """How many columns of each kind there are, and how many rows."""
    kinds = {"temporal": "over time", "static": "static", "outcome": "of outcomes"}
    counts = [f"{len(_list(schema, key))} {words}" for key, words in kinds.items()]
    return f"columns: {', '.join(counts)}; at most {_fact(schema, 'max_steps')} rows a stay"


def facts(schema: Mapping[str, Any]) -> dict[str, str]:
    """All of it, for the report."""
    unit = _fact(schema, "time_unit")
    found = {
        "columns over time": "; ".join(_columns(schema, "temporal")),
        "static columns": "; ".join(_columns(schema, "static")),
        "outcomes": "; ".join(_columns(schema, "outcome")),
        "true of every record": "; ".join(_constraints(schema)),
        "rows of a stay": f"the first {_fact(schema, 'max_steps')}",
        "time between rows": f"up to {_fact(schema, 'max_gap')} {unit}",
    }
    return {name: text for name, text in found.items() if text}


def _columns(schema: Mapping[str, Any], kind: str) -> Iterator[str]:
    for column in _list(schema, kind):
        name = figures.value_text(column.get("name"))
        if "values" in column:
            yield f"{name}: {figures.value_text(column['values'])}"
        else:
            low, high = (figures.value_text(column.get(end)) for end in ("low", "high"))
            yield f"{name}: {low} to {high}"


def _constraints(schema: Mapping[str, Any]) -> Iterator[str]:
    for entry in _list(schema, "constraint"):
        if "above" in entry:
            yield f"{entry['above']} is at least {entry.get('below')}"
        else:
            yield f"nothing comes after {entry.get('column')} = {entry.get('value')}"


def _list(schema: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = schema.get(key)
    return [e for e in entries if isinstance(e, Mapping)] if isinstance(entries, list) else []


def _fact(schema: Mapping[str, Any], key: str) -> str:
    stated = schema.get("records")
    return figures.value_text(stated.get(key) if isinstance(stated, Mapping) else None)
