"""Who takes part."""

import pytest

from privet.errors import InputError
from privet.studies.transdenoiser.contenders import CONTENDERS, DEFAULT, chosen


def test_what_costs_no_privacy_always_takes_part_and_first():
    assert [one.name for one in chosen(["dpcert", "td"])] == [
        "classifier", "public-denoiser", "td", "dpcert",
    ]  # fmt: skip
    assert [one.name for one in chosen()] == list(DEFAULT)


def test_only_those_two_learn_from_the_public_half():
    public = [name for name, one in CONTENDERS.items() if one.half == "first"]
    assert public == ["classifier", "public-denoiser"]


def test_targets_and_analyses():
    without = {name for name, one in CONTENDERS.items() if not one.target}
    assert without == {"classifier", "public-denoiser", "paper-nodp"}
    sound = {name for name, one in CONTENDERS.items() if one.analysis == "sound"}
    assert {"td-1", "td", "td-stability", "td-labels", "td-start", "td-sliced", "dpcert"} < sound
    assert {"securesgd-prt", "td-start-labels"} < sound


@pytest.mark.parametrize(
    ("names", "said"),
    [(["td-0"], "did you mean 'td-1'"), (["td", "td"], "each one once"), (["plain"], "unknown")],
)
def test_bad_names_are_refused(names, said):
    with pytest.raises(InputError, match=said):
        chosen(names)
