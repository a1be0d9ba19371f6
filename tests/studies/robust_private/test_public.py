from contextlib import closing

import pytest

from privet.data.identity import enter_in_ledger
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path
from privet.studies.robust_private.public import public_data, require_no_budget, together


def test_only_the_catalogue_is_public(tmp_path):
    for name in ("mine.toml", str(tmp_path / "patients.csv")):
        with pytest.raises(InputError, match="on public records only"):
            public_data(name, None)
    assert public_data("digits", None).test_is_public


def test_figures_on_those_who_are_protected_are_not_published():
    with pytest.raises(InputError, match="try 'activities/new-users'"):
        public_data("activities", None)
    assert public_data("activities/new-users", None).test_is_public


def test_records_with_a_budget_in_the_users_ledger_are_refused_under_any_name(make_data):
    data = make_data(name="alias")
    require_no_budget(data)  # no ledger, no budget
    assert not default_ledger_path().exists()
    with closing(Ledger(default_ledger_path())) as own:
        enter_in_ledger(make_data(name="patients"), own)
        require_no_budget(data)
        assert own.names() == ["patients"]
        own.cap("patients", 3.0, 1e-5)
    with pytest.raises(InputError, match="capped as 'patients'"):
        require_no_budget(data)
    with closing(Ledger(default_ledger_path())) as own:
        assert own.names() == ["patients"]
    require_no_budget(make_data(seed=1, name="others"))


def proved(epsilon):
    return {"proved": {"add-remove": {"epsilon": epsilon, "delta": 1e-5}}}


def test_sums_are_stated_only_where_all_are_proved():
    found = together({"a": proved(1.0), "b": proved(2.5)}, 0)
    assert (found["epsilon"], found["delta"]) == pytest.approx((3.5, 2e-5))
    for cards, unfinished in (({"a": proved(1.0), "b": {"proved": {}}}, 0), ({"a": proved(1)}, 1)):
        found = together(cards, unfinished)
        assert found["epsilon"] is None
        assert "nothing bounds it" in found["note"]
