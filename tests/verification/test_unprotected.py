"""A card without privacy: any word of a guarantee in it is a contradiction."""

import contextlib

import pytest

from privet.data.dataset import LearnedFact
from privet.errors import InputError
from privet.ledger import Ledger
from privet.training import train
from privet.verification.books import check_ledger
from privet.verification.form import require_form
from privet.verification.statements import check_basis, check_epsilons, check_withheld
from privet.verification.unprotected import check_unprotected, is_unprotected


@pytest.fixture
def book(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(params=[(), (LearnedFact(name="bounds", epsilon=0.5),)], ids=["", "learned"])
def plain(request, make_data, book):
    data = make_data(learned=request.param)
    return train("plain", data, model="linear", epochs=1, ledger=book).trust


def test_a_card_as_it_was_made_holds(plain, book, against):
    require_form(plain)
    assert is_unprotected(plain)
    checks = (check_unprotected, check_withheld, check_epsilons, check_basis)
    assert [against(check(plain)) for check in checks] == [""] * 4
    assert against(check_ledger(plain, book)) == ""


@pytest.mark.parametrize(
    ("part", "name", "value", "said"),
    [
        ("", "events", [], "not one access without privacy"),
        ("", "withheld", [], "no reason why there is no guarantee"),
        ("config", "epsilon", 3.0, "it names epsilon"),
        ("mechanism", "noise_multiplier", 1.1, "it names noise_multiplier"),
        ("mechanism", "clip_norm", 1.0, "it names clip_norm"),
        ("mechanism", "steps", 7, "is stated"),
        ("mechanism", "steps_run", 0, "is stated"),
        ("mechanism", "precision", "bf16", "precision float32 was asked for, bf16 is stated"),
        ("config", "init_seed", 5, "of another seed"),
    ],
)
def test_what_contradicts_it_is_found(plain, against, part, name, value, said):
    place = {"": plain, "mechanism": plain["mechanism"], "config": plain["provenance"]["config"]}
    place[part][name] = value
    assert said in against(check_unprotected(plain))


def test_an_epsilon_beside_the_reason_is_found(plain, card, against):
    plain["privacy"] = card("poisson")["privacy"]
    assert "yet one is stated" in against(check_withheld(plain))


def test_events_of_a_private_run_do_not_pass(plain, card, against):
    plain["events"] = card("poisson")["events"]
    assert "not one access without privacy" in against(check_unprotected(plain))


def test_a_private_run_in_the_ledger_is_not_its_entry(plain, make_data, book, against):
    private = train(
        "dpsgd", make_data(), epsilon=3.0, model="linear", epochs=1, noise_seed=1, ledger=book
    )
    plain["provenance"]["run"] = private.trust["provenance"]["run"]
    assert "charged: 5 in the ledger, 1 here" in against(check_ledger(plain, book))


def test_the_form_is_its_own(plain):
    del plain["mechanism"]["batch"]
    with pytest.raises(InputError, match=r"no 'mechanism\.batch'"):
        require_form(plain)
