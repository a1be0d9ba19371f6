"""Records by name or by file with its schema."""

import pytest

from privet.data.locate import FOLDER_NAMES
from privet.data.records.schema_file import write_schema
from privet.data.records.simulator import simulate
from privet.data.records.sources import SIMULATED, SOURCES, load_records, read_source
from privet.data.records.writing import write_records
from privet.errors import InputError


def test_every_source_that_needs_files_has_folder_names():
    for source in SOURCES.values():
        assert source.holds is None or source.name in FOLDER_NAMES
    assert [s.name for s in SOURCES.values() if s.holds is None] == ["simulator"]
    assert SOURCES["simulator"].found()


def test_a_source_without_files_is_not_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not SOURCES["physionet2012"].found(tmp_path)


def test_the_simulator_is_the_default_size():
    records, notes = read_source("simulator")
    assert notes.patients == SIMULATED
    assert notes.rows == len(records.times)


@pytest.mark.parametrize("as_file", [True, False])
def test_a_file_is_read_with_its_schema(tmp_path, assert_same, as_file):
    records = simulate(20)
    write_records(records, tmp_path / "r.csv")
    schema = records.schema
    if as_file:
        write_schema(schema, tmp_path / "s.toml")
        schema = tmp_path / "s.toml"
    found = load_records(tmp_path / "r.csv", schema=schema, keep_duplicates=True)
    assert_same(found, records)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("phisionet2012", "did you mean 'physionet2012'"),
        ("nothing like it", "unknown records"),
        ("r.csv", "--schema schema.toml"),
    ],
)
def test_what_cannot_be_read_is_said(name, words):
    with pytest.raises(InputError, match=words):
        load_records(name)


def test_a_named_source_has_its_own_schema():
    with pytest.raises(InputError, match="schema of its own"):
        load_records("simulator", schema="s.toml")
