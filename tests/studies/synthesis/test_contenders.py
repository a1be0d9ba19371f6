import pytest

from privet.errors import InputError
from privet.studies.synthesis.contenders import BASELINES, CONTENDERS, LADDER, chosen
from privet.synthesis.fitting import METHODS


def names(field):
    return [one.name for one in field.taking_part]


def test_the_reference_is_always_there_under_each_analysis():
    assert names(chosen(["vae"])) == ["autoregressive", "vae"]
    assert names(chosen(["vae:none"])) == ["autoregressive", "autoregressive:none", "vae:none"]
    assert names(chosen(["igamt", "vae:paper"])) == ["autoregressive", "igamt", "vae:paper"]


def test_all_are_the_papers_table():
    """The reference has no paper: that is said, not hidden."""
    field = chosen(["all", "all:paper"])
    bases = ["autoregressive", *BASELINES, *LADDER, "igamt"]
    paper = [f"{base}:paper" for base in bases[1:]]
    assert names(field) == [*bases, *paper]
    assert list(field.left_out) == ["autoregressive:paper"]
    assert "no analysis 'paper'" in field.left_out["autoregressive:paper"]


def test_by_default_all_analyses_take_part():
    assert names(chosen()) == names(chosen(["all", "all:paper", "all:none"]))
    assert "igamt-no-mask" not in names(chosen())


def test_ablations_are_those_of_the_papers():
    """DGAT has no embedding at all, DGATT that of time alone, DGAMT all, EDGAMT the mask critic."""
    without = {name: CONTENDERS[name].own["without"] for name in LADDER}
    assert without == {
        "dgat": "imitator,mask,time,mixed",
        "dgatt": "imitator,mask,mixed",
        "dgamt": "imitator,mask",
        "edgamt": "imitator",
    }
    assert CONTENDERS["igamt-no-time:none"].own == {"without": "time"}
    assert CONTENDERS["igamt"].own == {}


@pytest.mark.parametrize("name", [name for name, one in CONTENDERS.items() if not one.lacks])
def test_settings_of_all_can_be_made(name):
    one = CONTENDERS[name]
    target = {"epsilon": 1.5} if one.variant.private else {}
    settings = one.variant.settings(**one.own, **target)
    assert all(getattr(settings, key) == value for key, value in one.own.items())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["vea"], "did you mean 'vae'"),
        (["all:soun"], "unknown contender"),
        (["vae", "vae"], "each one once"),
        ([], "each one once"),
        (["autoregressive:paper"], "no analysis 'paper'"),
    ],
)
def test_bad_lists_are_refused(asked, said):
    with pytest.raises(InputError, match=said):
        chosen(asked)


def test_who_is_not_there_is_left_out_of_all_with_a_reason(monkeypatch):
    monkeypatch.delitem(METHODS, "gan")
    field = chosen(["all"])
    assert "gan" not in names(field)
    assert "no method 'gan'" in field.left_out["gan"]
    with pytest.raises(InputError, match="no method 'gan'"):
        chosen(["gan"])
