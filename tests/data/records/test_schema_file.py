"""Schema files: exact round trips, and every way in which one can be wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data.dataset import LearnedFact
from privet.data.records.eicu import SCHEMA as EICU
from privet.data.records.features import Categorical, Numeric
from privet.data.records.mimic import SCHEMA as MIMIC
from privet.data.records.physionet import SCHEMA as PHYSIONET
from privet.data.records.schema import Ends, Order, Schema
from privet.data.records.schema_file import (
    read_schema,
    schema_from_json,
    schema_to_json,
    write_schema,
)
from privet.errors import FaultyEnvironment, InputError

MINIMAL = """
[records]
name = "ward"
nominal_size = 100

[[temporal]]
name = "hr"
low = 0
high = 250
"""

# TOML has no surrogates, and its line ends are normalised.
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip)


@st.composite
def schemas(draw):
    names = draw(st.lists(words, min_size=8, max_size=8, unique=True))
    low = draw(st.floats(-1e6, 1e6))
    number = Numeric(
        name=names[0],
        low=low,
        high=low + draw(st.floats(1e-3, 1e6)),
        bins=draw(st.integers(2, 254)),
        scale=draw(st.sampled_from(["linear", "log"])),
        decimals=draw(st.none() | st.integers(0, 12)),
    )
    other = Numeric(name=names[1], low=0.1 + 0.2, high=1e300)
    word = Categorical(
        name=names[2], values=tuple(draw(st.lists(words, min_size=2, max_size=4, unique=True)))
    )
    dated = draw(st.booleans())
    return Schema(
        name=draw(words),
        patient=names[3],
        stay=draw(st.none() | st.just(names[4])),
        time=names[5],
        timestamps=dated,
        start=names[6] if dated else None,
        time_unit=draw(st.sampled_from(["seconds", "minutes", "hours", "days"])),
        temporal=(number, other, word),
        outcomes=(Categorical(name=names[7], values=("a", "b")),),
        constraints=(
            Order(above=names[0], below=names[1]),
            Ends(column=names[2], value=word.values[0]),
        ),
        max_steps=draw(st.integers(1, 4096)),
        max_gap=draw(st.floats(1e-3, 1e9)),
        horizon=draw(st.none() | st.floats(1e-3, 1e9)),
        nominal_size=draw(st.integers(1, 2**62)),
        learned=(LearnedFact(name="bounds of x", epsilon=draw(st.floats(1e-6, 10))),),
    )


@given(schema=schemas())
def test_json_is_exact(schema):
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema


@given(schema=schemas())
def test_toml_is_exact(tmp_path_factory, schema):
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    write_schema(schema, path)
    assert read_schema(path) == schema


@pytest.mark.parametrize("schema", [PHYSIONET, MIMIC, EICU], ids=lambda s: s.name)
def test_the_named_sources_round_trip(tmp_path, schema):
    write_schema(schema, tmp_path / "s.toml")
    assert read_schema(tmp_path / "s.toml") == schema_from_json(schema_to_json(schema)) == schema


def test_defaults_are_those_of_the_class(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(MINIMAL)
    expected = Schema(
        name="ward", nominal_size=100, temporal=(Numeric(name="hr", low=0, high=250),)
    )
    assert read_schema(path) == expected


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "nominal_size",
            "nominal_sise",
            r"unknown key 'nominal_sise' in \[records\].*'nominal_size'",
        ),
        ("high", "hihg", r"'hihg' in \[\[temporal\]\].*write 'high'"),
        ("[[temporal]]", "[[temporel]]", "write 'temporal'"),
        ("[[temporal]]", "[temporal]", r"sections \[\[temporal\]\]"),
        ("nominal_size = 100\n", "", "'nominal_size' is missing"),
        ("high = 250", "", "'high' is missing"),
        ("100", '"many"', "bad 'nominal_size'.*a whole number"),
        ("100", "true", "a whole number"),
        ("low = 0", "low = false", "bad 'low'.*a number"),
        ("low = 0", "low = 251", "bad bounds"),
        ("low = 0", "low = nan", "bad bounds"),
        ('"hr"', '"  "', "a text"),
        ('"hr"', '"time"', "declared twice"),
        ("[records]", "[records", "not a readable TOML"),
        ("high = 250", "high = 250\n[[static]]\nname = 'x'\nvalues = 'F,M'", "a list of texts"),
        ("high = 250", "high = 250\n[[static]]\nname = 'x'\nvalues = ['F']", "bad vocabulary"),
        ("high = 250", "high = 250\n[[constraint]]\nabove = 'hr'", "'below' is missing"),
        ("high = 250", "high = 250\n[[constraint]]\ncolumn = 'hr'", "'value' is missing"),
        ("high = 250", "high = 250\n[[learned]]\nname = 'hr'", "'epsilon' is missing"),
    ],
)
def test_a_slip_is_named(tmp_path, old, new, words):
    path = tmp_path / "s.toml"
    path.write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(InputError, match=words) as caught:
        read_schema(path)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("corrupt", [[], "x", {"records": 1, "temporal": []}, {"records": {}}])
def test_corrupt_json_is_bad_input(corrupt):
    with pytest.raises(InputError):
        schema_from_json(corrupt)


def test_an_existing_file_stays(tmp_path, ward):
    path = tmp_path / "s.toml"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        write_schema(ward(), path)
    assert path.read_text() == "mine"
    write_schema(ward(), path, overwrite=True)
    assert read_schema(path) == ward()


def test_where_nothing_can_be_written_is_said(tmp_path, ward):
    with pytest.raises(FaultyEnvironment, match="cannot write"):
        write_schema(ward(), tmp_path / "no" / "s.toml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="not found"):
        read_schema(tmp_path / "s.toml")
