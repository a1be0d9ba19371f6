import io

import dp_accounting as dp
import pytest
from rich.console import Console

from privet.ledger import Ledger
from privet.privacy.accounting import Selection
from privet.reports.ledger_page import account_record, print_account


@pytest.fixture
def account(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.register("toy", unit="example", snapshot="s", rows=[b"0" * 16])
    run = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 30)
    book.reserve("toy", label="dpsgd one", step_event=run, steps=30)
    searched = Selection(run, 10.0, 1.0)
    book.charge(book.reserve("toy", label="tune dpsgd two", step_event=searched, steps=1), 0)
    yield book.account("toy")
    book.close()


def test_a_search_is_one_entry_that_names_the_expected_number_alone(account):
    stream = io.StringIO()
    print_account(account, Console(file=stream, width=160))
    (plain,) = [line for line in stream.getvalue().splitlines() if "dpsgd one" in line]
    (search,) = [line for line in stream.getvalue().splitlines() if "dpsgd two" in line]
    assert "best of" not in plain
    assert "tune dpsgd two, the best of 10 expected runs" in search
    assert "1/1" in search


def test_a_search_survives_as_plain_values(account):
    runs = {run["label"]: run for run in account_record(account)["runs"]}
    record = runs["tune dpsgd two"]["step_event"]
    assert (record["type"], record["mean"], record["shape"]) == ("Selection", 10.0, 1.0)
    assert record["event"]["type"] == "SelfComposed"


def shown(account):
    stream = io.StringIO()
    print_account(account, Console(file=stream, width=160))
    return stream.getvalue()


def test_what_was_charged_is_not_called_steps(account):
    """With samplers in cycles it is turns of several steps; with a search, all of it."""
    assert "steps" not in shown(account)
    assert "charged" in shown(account).splitlines()[2]


@pytest.mark.parametrize(
    ("unit", "grouped", "said"),
    [
        ("example", False, "d (unit: example)"),
        ("patient", True, "d (unit: patient)"),
        ("patient", False, "d (unit: patient, each record one)"),
    ],
)
def test_a_unit_that_is_only_a_name_is_told_apart(tmp_path, unit, grouped, said):
    book = Ledger(tmp_path / "units.db")
    book.register("d", unit=unit, grouped=grouped, snapshot="s", rows=[])
    account = book.account("d")
    book.close()
    assert shown(account).splitlines()[0] == said
    record = account_record(account)
    assert (record["unit"], record["grouped"]) == (unit, grouped)


def test_an_access_without_privacy_is_told_apart(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.register("toy", unit="example", snapshot="s", rows=[b"0" * 16])
    for label, event in (("one", dp.NonPrivateDpEvent()), ("two", dp.GaussianDpEvent(2.0))):
        book.charge(book.reserve("toy", label=label, step_event=event, steps=1), 0)
    lines = shown(book.account("toy")).splitlines()
    book.close()
    assert [("without privacy" in line) for line in lines if "1/1" in line] == [True, False]
