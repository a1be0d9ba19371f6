import json

import pytest

from privet.cli import app
from privet.data import load
from privet.data.description import read_description


@pytest.fixture
def visits(tmp_path):
    rows = [f"u{i // 3},{i % 10},{'yes' if i % 2 else 'no'}" for i in range(60)]
    file = tmp_path / "visits.csv"
    file.write_text("\n".join(["user_id,age,ill", *rows, ""]))
    return file


def declare(visits, *more):
    app(
        [
            *("data", "declare", str(visits), "--label", "ill", "--classes", "no", "yes"),
            *("--feature", "age=0:10", "--nominal-size", "20", "--test-fraction", "0.3"),
            *("--out", str(visits.with_suffix(".toml")), *more),
        ],
        result_action="return_value",
    )
    return visits.with_suffix(".toml")


def test_a_unit_column_given_on_the_command_line_groups_the_records(visits):
    written = declare(visits, "--unit", "user", "--unit-column", "user_id")
    facts = read_description(written)
    assert (facts.unit, facts.unit_column, facts.nominal_size) == ("user", "user_id", 20)
    data = load(written)
    assert data.train.n_units + data.test.n_units == 20
    assert len(data.train) == 3 * data.train.n_units


def test_without_one_every_record_is_a_unit(visits):
    data = load(declare(visits))
    assert data.train.units is None


def test_a_unit_that_is_only_a_name_is_called_one_record(visits, capfd):
    declare(visits, "--unit", "user")
    noted = capfd.readouterr().err
    assert len(noted.strip().splitlines()) == 1
    assert "each record is taken as one user" in noted
    assert "--unit-column" in noted


@pytest.mark.parametrize("more", [(), ("--unit", "user", "--unit-column", "user_id")])
def test_nothing_is_noted_where_nothing_is_in_doubt(visits, capfd, more):
    declare(visits, *more)
    assert capfd.readouterr().err == ""


def test_the_list_and_its_help_tell_of_halves(capfd):
    app(["data", "list"], result_action="return_value")
    assert "halves of the training records: NAME/first, NAME/second" in capfd.readouterr().out
    app(["data", "list", "--help"], result_action="return_value")
    assert "NAME/first and NAME/second" in capfd.readouterr().out


def test_the_list_counts_what_is_protected_and_names_other_cuts(capfd):
    app(["data", "list", "--json"], result_action="return_value")
    listed = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert (listed["activities"]["nominal_size"], listed["activities"]["unit"]) == (60, "user")
    assert (listed["digits"]["unit"], listed["digits"]["cuts"]) == ("example", [])
    app(["data", "list"], result_action="return_value")
    told = " ".join(capfd.readouterr().out.split())
    assert "activities 60 users 3x100 5 embedded" in told
    assert "tested on other users: activities/new-users, hapt/new-users, watch/new-users" in told


def test_a_half_is_trained_on_and_found_again(tmp_path, capfd):
    run = str(tmp_path / "run")
    options = ("--data", "digits/first", "--model", "linear", "--epochs", "1", "--out", run)
    app(["train", "plain", *options, "--json"], result_action="return_value")
    card = json.loads(capfd.readouterr().out)
    assert (card["data"]["name"], card["data"]["nominal_size"]) == ("digits/first", 718)
    app(
        ["attack", run, "--attacks", "fgsm", "--sizes", "0.1", "--json"],
        result_action="return_value",
    )
    assert json.loads(capfd.readouterr().out)["data"] == "digits/first"
    app(["ledger", "show", "digits/first", "--json"], result_action="return_value")
    assert json.loads(capfd.readouterr().out)[0]["name"] == "digits/first"
