from typing import Any

from rich.console import Console

from privet.data.records.schema_file import schema_to_json
from privet.data.records.simulator import simulate
from privet.reports import Curves, print_card, records
from privet.reports.release_report import render_report

SCHEMA = schema_to_json(simulate(3).schema)


def of_records(card: dict[str, Any]) -> dict[str, Any]:
    coded = {"classes": [], "shape": [51, 10], "features": [], "test_is_public": False}
    data = card["data"] | coded | {"unit": "patient", "grouped": True, "schema": SCHEMA}
    return card | {"method": "autoregressive", "data": data, "utility": {}}


def test_a_classifier_has_no_schema(card) -> None:
    assert records.schema_of(card()) is None
    assert records.schema_of({}) is None


def test_the_columns_are_counted_and_told() -> None:
    assert records.in_a_line(SCHEMA) == (
        "columns: 9 over time, 5 static, 2 of outcomes; at most 50 rows a stay"
    )
    told = records.facts(SCHEMA)
    assert "heartrate: 30 to 190" in told["columns over time"]
    assert "gender: F, M" in told["static columns"]
    assert told["true of every record"] == (
        "sbp is at least dbp; nothing comes after status = died"
    )
    assert told["time between rows"] == "up to 1440 minutes"


def test_what_is_not_there_is_not_told() -> None:
    told = records.facts({"records": {"max_steps": 2}, "temporal": [{"name": "x"}]})
    assert told["columns over time"] == "x: not stated to not stated"
    assert "outcomes" not in told
    assert "true of every record" not in told


def test_the_terminal_speaks_of_records_and_not_of_accuracy(card, capsys) -> None:
    print_card(of_records(card()), Console(width=100))
    told = capsys.readouterr().out
    assert "columns: 9 over time" in told
    assert "fidelity   not published" in told
    for foreign in ("accuracy", "robustness", "attacks"):
        assert foreign not in told


def test_the_report_speaks_of_records_and_a_classifiers_does_not(card) -> None:
    ours, others = (render_report(t, Curves()) for t in (of_records(card()), card()))
    said = ("Truth of single records", "Patients set aside", "the same holds for them")
    meant_for_classifiers = ("The test records", "shape of one example", "Robustness")
    assert all(words in ours for words in said)
    assert not any(words in others for words in said)
    assert not any(words in ours for words in meant_for_classifiers)
    assert all(words in others for words in meant_for_classifiers)
