"""Drafts come from declarations and a header, never from rows."""

import pytest

from privet.data.records.drafting import draft_schema, parse_constraint, parse_feature
from privet.data.records.features import Categorical, Numeric
from privet.data.records.schema import Ends, Order
from privet.errors import InputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text("patient,time,hr,lactate,sex,died,note\nnot,even,a,number,in,these,rows\n")
    return path


def test_a_draft_has_what_was_declared(file):
    draft = draft_schema(
        file,
        temporal=["hr=0:250:0", "lactate=0:30:log:1"],
        static=["sex=F,M"],
        outcomes=["died=0,1"],
        constraints=["hr>=lactate"],
        nominal_size=100,
    )
    schema = draft.schema
    assert schema.name == "ward"
    assert schema.temporal == (
        Numeric(name="hr", low=0, high=250, decimals=0),
        Numeric(name="lactate", low=0, high=30, scale="log", decimals=1),
    )
    assert schema.static == (Categorical(name="sex", values=("F", "M")),)
    assert schema.constraints == (Order(above="hr", below="lactate"),)
    assert draft.undeclared == ("note",)
    assert draft.unknown == ()


def test_only_the_header_is_read(file):
    """Rows that cannot be read at all do not matter."""
    file.write_text(file.read_text().splitlines()[0] + '\nragged,"never closed')
    assert draft_schema(file, temporal=["hr=0:250"], nominal_size=1).undeclared[-1] == "note"


def test_bounds_to_be_learned_are_listed(file):
    draft = draft_schema(file, temporal=["hr=?:log:0", "lactate=0:30"], nominal_size=1)
    assert draft.unknown == ("hr",)
    assert draft.schema.feature("hr") == Numeric(name="hr", low=0, high=1, scale="log", decimals=0)


def test_the_long_form_has_its_variables_in_the_rows(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("patient,time,variable,value\n")
    draft = draft_schema(path, temporal=["hr=0:250"], nominal_size=1)
    assert draft.undeclared == ()


def test_a_second_file_may_have_the_facts(file, tmp_path):
    other = tmp_path / "facts.csv"
    other.write_text("patient,age\n")
    draft = draft_schema(
        file, temporal=["hr=0:250"], static=["age=0:120"], static_path=other, nominal_size=1
    )
    assert [feature.name for feature in draft.schema.static] == ["age"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temporal": ["hart=0:250"]}, "no column 'hart'.*did you mean"),
        ({"patient": "pateint"}, "no column 'pateint'.*did you mean 'patient'"),
        ({"nominal_size": 0}, "nominal_size"),
        ({"temporal": ["hr=0:250", "hr=0:1"]}, "declared twice"),
        ({"temporal": ["hr"]}, "bad declaration"),
        ({"temporal": ["hr="]}, "bad declaration"),
        ({"temporal": ["=0:1"]}, "bad declaration"),
        ({"temporal": ["hr=a:b"]}, "bad declaration"),
        ({"temporal": ["hr=0:1:log:x"]}, "bad declaration"),
        ({"temporal": ["hr=0:1:2:3"]}, "bad declaration"),
        ({"temporal": ["hr=5:1"]}, "bad bounds"),
        ({"temporal": ["hr=F"]}, "bad vocabulary"),
        ({"constraints": ["hr"]}, "bad constraint"),
    ],
)
def test_slips_are_named(file, changes, words):
    with pytest.raises(InputError, match=words):
        draft_schema(file, **({"temporal": ["hr=0:250"], "nominal_size": 1} | changes))


def test_the_size_must_be_declared(file):
    with pytest.raises(InputError, match="--nominal-size"):
        draft_schema(file, temporal=["hr=0:250"])


def test_declarations_are_parsed():
    assert parse_feature(" x = -1.5 : 2e3 ") == Numeric(name="x", low=-1.5, high=2000)
    assert parse_feature("x=a, b c ,d") == Categorical(name="x", values=("a", "b c", "d"))
    assert parse_constraint("status = died") == Ends(column="status", value="died")
